//! What a proxy does to a connection.

use std::io;

use tokio::time::timeout;

use super::{Client, SILENCE};
use crate::support::{
    in_time,
    redis::{Proxy, Server},
};

/// A client by way of a proxy, and the server itself.
struct Scene {
    proxy: Proxy,
    client: Client,
    server: Server,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::before(&server.url());
        Self {
            client: Client::connect(&proxy.url()).await.unwrap(),
            proxy,
            server,
        }
    }

    async fn newcomer(&self) -> io::Result<Client> {
        Client::connect(&self.proxy.url()).await
    }

    async fn noted(&self) -> String {
        self.server.cli(&["LLEN", "notes"]).await
    }
}

async fn take_note(client: &mut Client, note: &str) -> io::Result<String> {
    client.ask(&["RPUSH", "notes", note]).await
}

#[tokio::test]
async fn everything_passes_by_default() {
    in_time(async {
        let mut scene = Scene::set().await;
        let long = "long\r\n".repeat(100_000);
        take_note(&mut scene.client, &long).await.unwrap();
        let back = scene.client.ask(&["LINDEX", "notes", "0"]).await.unwrap();
        assert!(back == long, "it comes back as it went");
        assert_eq!(scene.proxy.round_trips(), 2);
        assert_eq!(scene.proxy.fired(), 0);
    })
    .await;
}

#[tokio::test]
async fn new_connections_go_where_they_are_led() {
    in_time(async {
        let mut scene = Scene::set().await;
        let other = Server::start().await;
        scene.proxy.lead_to(&other.url());
        take_note(&mut scene.client, "a").await.unwrap();
        let mut newcomer = scene.newcomer().await.unwrap();
        take_note(&mut newcomer, "b").await.unwrap();
        take_note(&mut newcomer, "c").await.unwrap();
        assert_eq!(scene.noted().await, "1");
        assert_eq!(other.cli(&["LLEN", "notes"]).await, "2");
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_answer_is_cut_is_done_and_failed_for_its_client() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.cut_answer_to("the parameter");
        take_note(&mut scene.client, "other").await.unwrap();
        take_note(&mut scene.client, "with the parameter")
            .await
            .unwrap_err();
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.noted().await, "2");

        // Once, unless it is armed again.
        let mut client = scene.newcomer().await.unwrap();
        take_note(&mut client, "with the parameter").await.unwrap();
        scene.proxy.cut_answer_to("the parameter");
        take_note(&mut client, "with the parameter")
            .await
            .unwrap_err();
        assert_eq!(scene.noted().await, "4");
        assert_eq!(scene.proxy.fired(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_command_that_was_sent_back_is_not_the_one() {
    in_time(async {
        let mut scene = Scene::set().await;
        let script = "return redis.call('RPUSH', KEYS[1], ARGV[1])";
        let mut elsewhere = Client::connect(&scene.server.url()).await.unwrap();
        scene.proxy.cut_answer_to("a note");
        let digest = "0".repeat(40);
        let unknown = ["EVALSHA", &digest, "1", "notes", "a note"];
        let answer = scene.client.ask(&unknown).await.unwrap();
        assert!(answer.starts_with("-NOSCRIPT"), "{answer}");
        let digest = elsewhere.ask(&["SCRIPT", "LOAD", script]).await.unwrap();
        let known = ["EVALSHA", &digest, "1", "notes", "a note"];
        scene.client.ask(&known).await.unwrap_err();
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.noted().await, "1");
    })
    .await;
}

#[tokio::test]
async fn a_swallowed_answer_never_comes_and_commands_still_arrive() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.swallow_answers_from("swallowed");
        let silent = timeout(SILENCE, take_note(&mut scene.client, "swallowed")).await;
        assert!(silent.is_err(), "no answer, and no end of the connection");
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.noted().await, "1");
        // Somebody else is answered.
        let mut client = scene.newcomer().await.unwrap();
        take_note(&mut client, "swallowed").await.unwrap();

        let silent = timeout(SILENCE, take_note(&mut scene.client, "later")).await;
        assert!(silent.is_err(), "nor does a later one");
        assert_eq!(scene.noted().await, "3");
        scene.proxy.cut();
        take_note(&mut scene.client, "cut").await.unwrap_err();
        assert_eq!(scene.noted().await, "3");
    })
    .await;
}

#[tokio::test]
async fn a_cut_ends_all_connections_and_takes_new_ones() {
    in_time(async {
        let mut scene = Scene::set().await;
        let mut other = scene.newcomer().await.unwrap();
        take_note(&mut other, "before").await.unwrap();
        take_note(&mut scene.client, "before").await.unwrap();
        scene.proxy.cut();
        take_note(&mut scene.client, "cut").await.unwrap_err();
        take_note(&mut other, "cut").await.unwrap_err();
        let mut client = scene.newcomer().await.unwrap();
        take_note(&mut client, "again").await.unwrap();
        assert_eq!(scene.noted().await, "3");
    })
    .await;
}

#[tokio::test]
async fn who_is_refused_finds_nobody_and_the_others_stay() {
    in_time(async {
        let mut scene = Scene::set().await;
        take_note(&mut scene.client, "before").await.unwrap();
        scene.proxy.refuse().await;
        let refused = scene.newcomer().await.err().expect("it is refused");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        take_note(&mut scene.client, "stays").await.unwrap();

        scene.proxy.accept();
        let mut client = scene.newcomer().await.unwrap();
        take_note(&mut client, "again").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_stall_holds_back_both_directions_and_loses_nothing() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.stall();
        let mut client = scene.newcomer().await.unwrap();
        let mut newcomer = std::pin::pin!(take_note(&mut client, "new"));
        {
            let mut note = std::pin::pin!(take_note(&mut scene.client, "held back"));
            timeout(SILENCE, &mut note).await.unwrap_err();
            timeout(SILENCE, &mut newcomer).await.unwrap_err();
            let noted = scene.server.cli(&["LLEN", "notes"]).await;
            assert_eq!(noted, "0", "the server has not heard of it");
            scene.proxy.resume();
            note.await.unwrap();
        }
        newcomer.await.unwrap();
        assert_eq!(scene.noted().await, "2");
    })
    .await;
}

#[tokio::test]
async fn nothing_outlives_a_proxy() {
    in_time(async {
        let mut scene = Scene::set().await;
        take_note(&mut scene.client, "before").await.unwrap();
        let url = scene.proxy.url();
        drop(scene.proxy);
        take_note(&mut scene.client, "gone").await.unwrap_err();
        assert!(Client::connect(&url).await.is_err());
        assert_eq!(scene.server.cli(&["PING"]).await, "PONG");
    })
    .await;
}
