//! Servers that crash, stop answering, and follow each other.

use std::path::Path;

use tokio::time::timeout;

use super::{Client, SILENCE};
use crate::support::{in_time, redis::Server};

#[tokio::test]
async fn a_server_answers_and_counts_what_it_was_asked() {
    in_time(async {
        let server = Server::start().await;
        assert_eq!(server.calls("set").await, 0);
        assert_eq!(server.cli(&["PING"]).await, "PONG");
        server.cli(&["SET", "a", "two words"]).await;
        server.cli(&["SET", "b", ""]).await;
        assert_eq!(server.cli(&["GET", "a"]).await, "two words");
        assert_eq!(server.cli(&["GET", "b"]).await, "");
        assert_eq!(server.calls("SET").await, 2);
        let refused = server.try_cli(&["INCR", "a"]).await;
        assert!(refused.unwrap_err().contains("not an integer"));
    })
    .await;
}

#[tokio::test]
async fn a_crash_takes_everything_along() {
    in_time(async {
        let mut server = Server::start().await;
        let url = server.url();
        let mut client = Client::connect(&url).await.unwrap();
        // More than once, as the last might be in the way of the next.
        for _ in 0..3 {
            client.ask(&["SET", "a", "b"]).await.unwrap();
            server.kill().await;
            assert!(!server.is_up());
            client.ask(&["GET", "a"]).await.unwrap_err();
            assert!(Client::connect(&url).await.is_err(), "nobody listens");
            server.restart().await;
            assert_eq!(server.url(), url);
            client = Client::connect(&url).await.unwrap();
            assert_eq!(client.ask(&["GET", "a"]).await.unwrap(), "$-1");
        }
    })
    .await;
}

#[tokio::test]
async fn with_a_synced_log_nothing_is_lost() {
    in_time(async {
        let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        server.cli(&["SET", "a", "b"]).await;
        server.kill().await;
        server.restart().await;
        assert_eq!(server.cli(&["GET", "a"]).await, "b");
        // Neither does a clean stop lose anything.
        server.cli(&["SET", "a", "c"]).await;
        server.restart().await;
        assert_eq!(server.cli(&["GET", "a"]).await, "c");
    })
    .await;
}

#[tokio::test]
async fn settings_are_a_servers_own_and_stay() {
    in_time(async {
        let settings = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"];
        let (mut one, other) = tokio::join!(Server::with(&settings), Server::start());
        one.kill().await;
        one.restart().await;
        let (one, other) = (one.info("memory").await, other.info("memory").await);
        assert_eq!(one["maxmemory"], "4194304");
        assert_eq!(one["maxmemory_policy"], "allkeys-lru");
        assert_eq!(other["maxmemory"], "0");
        assert_eq!(other["maxmemory_policy"], "noeviction");
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_answers_nobody_and_then_everybody() {
    in_time(async {
        let mut server = Server::start().await;
        let mut client = Client::connect(&server.url()).await.unwrap();
        server.pause().await;
        assert!(!server.is_up());
        {
            let mut late = std::pin::pin!(client.ask(&["SET", "a", "b"]));
            timeout(SILENCE, &mut late).await.unwrap_err();
            server.resume().await;
            assert_eq!(late.await.unwrap(), "+OK");
        }
        assert_eq!(server.cli(&["GET", "a"]).await, "b");
        // Neither does a pause keep it from being killed, restarted or dropped.
        server.pause().await;
        server.kill().await;
        server.restart().await;
        server.pause().await;
        server.restart().await;
        assert!(server.is_up());
        server.pause().await;
    })
    .await;
}

#[tokio::test]
async fn a_replica_follows_until_it_is_promoted() {
    in_time(async {
        let mut master = Server::start().await;
        master.cli(&["SET", "a", "b"]).await;
        let mut replica = Server::replica_of(&master).await;
        assert_eq!(replica.cli(&["GET", "a"]).await, "b");
        master.cli(&["SET", "a", "c"]).await;
        master.is_followed_by(&replica).await;
        assert_eq!(replica.cli(&["GET", "a"]).await, "c");
        let refused = replica.try_cli(&["SET", "a", "d"]).await;
        assert!(refused.unwrap_err().contains("READONLY"));
        replica.restart().await;
        assert_eq!(replica.info("replication").await["role"], "slave");
        master.is_followed_by(&replica).await;

        master.kill().await;
        replica.promote().await;
        assert_eq!(replica.cli(&["GET", "a"]).await, "c");
        replica.cli(&["SET", "a", "d"]).await;
        replica.restart().await;
        assert_eq!(replica.info("replication").await["role"], "master");
    })
    .await;
}

#[tokio::test]
async fn nothing_outlives_a_server() {
    in_time(async {
        let server = Server::with(&["--appendonly", "yes"]).await;
        let url = server.url();
        let about = server.info("server").await;
        let process = Path::new("/proc").join(&about["process_id"]);
        let files = server.cli(&["CONFIG", "GET", "dir"]).await;
        let files = files.lines().last().expect("a directory").to_owned();
        assert!(process.exists() && Path::new(&files).exists());
        drop(server);
        assert!(!process.exists(), "the process is gone");
        assert!(!Path::new(&files).exists(), "the files are gone");
        assert!(Client::connect(&url).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn valkey_serves_where_it_is_installed() {
    in_time(async {
        let Some(server) = Server::valkey().await else {
            println!("Valkey is not installed");
            return;
        };
        assert_eq!(server.cli(&["PING"]).await, "PONG");
        assert!(server.info("server").await.contains_key("valkey_version"));
    })
    .await;
}
