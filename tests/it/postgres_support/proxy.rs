//! What a proxy does to a connection.

use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use super::{SILENCE, connect, count_notes, make_notes, run, take_note};
use crate::support::{
    in_time,
    postgres::{Proxy, Schema},
};

/// A client by way of a proxy, and a witness who looks at the server itself.
struct Scene {
    proxy: Proxy,
    client: PgConnection,
    witness: PgConnection,
    /// Last, as its end is that of every connection.
    _schema: Schema,
}

impl Scene {
    async fn set() -> Self {
        let schema = Schema::new();
        let proxy = Proxy::before(&schema.url());
        let mut witness = connect(&schema.url()).await;
        make_notes(&mut witness).await;
        Self {
            client: connect(&proxy.url()).await,
            proxy,
            witness,
            _schema: schema,
        }
    }

    async fn noted(&mut self) -> i64 {
        count_notes(&mut self.witness).await
    }
}

#[tokio::test]
async fn everything_passes_by_default() {
    in_time(async {
        let mut scene = Scene::set().await;
        let long = "long ".repeat(100_000);
        take_note(&mut scene.client, &long).await.unwrap();
        let back: String = super::ask(&mut scene.client, "SELECT note FROM notes").await;
        assert!(back == long, "it comes back as it went");
        assert_eq!(scene.proxy.fired(), 0);
    })
    .await;
}

#[tokio::test]
async fn an_insert_whose_answer_is_cut_is_committed_and_failed_for_its_client() {
    in_time(async {
        let mut scene = Scene::set().await;
        take_note(&mut scene.client, "before").await.unwrap();
        scene.proxy.cut_answer_to("the parameter");
        take_note(&mut scene.client, "other").await.unwrap();
        let cut = take_note(&mut scene.client, "with the parameter").await;
        assert!(matches!(cut, Err(sqlx::Error::Io(_))), "{cut:?}");
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.noted().await, 3);

        // Once, unless it is armed again.
        let mut client = connect(&scene.proxy.url()).await;
        take_note(&mut client, "with the parameter").await.unwrap();
        scene.proxy.cut_answer_to("the parameter");
        take_note(&mut client, "with the parameter")
            .await
            .unwrap_err();
        assert_eq!(scene.noted().await, 5);
        assert_eq!(scene.proxy.fired(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_statement_is_known_by_its_text_when_it_is_executed() {
    in_time(async {
        let mut scene = Scene::set().await;
        // To prepare it is not to have done it.
        scene.proxy.cut_answer_to("INTO notes");
        take_note(&mut scene.client, "first").await.unwrap_err();
        assert_eq!(scene.noted().await, 1);

        // Nor does it matter that it was prepared long before.
        let mut client = connect(&scene.proxy.url()).await;
        take_note(&mut client, "second").await.unwrap();
        scene.proxy.cut_answer_to("INTO notes");
        take_note(&mut client, "third").await.unwrap_err();
        assert_eq!(scene.noted().await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_cut_has_happened() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.cut_answer_to("COMMIT");
        let mut transaction = scene.client.begin().await.unwrap();
        take_note(&mut transaction, "in a transaction")
            .await
            .unwrap();
        transaction.commit().await.unwrap_err();
        assert_eq!(scene.noted().await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_swallowed_answer_never_comes_and_requests_still_arrive() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.swallow_answers_from("swallowed");
        let silent = timeout(SILENCE, take_note(&mut scene.client, "swallowed")).await;
        silent.expect_err("no answer, and no end of the connection either");
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.noted().await, 1);
        // Somebody else is answered.
        let mut client = connect(&scene.proxy.url()).await;
        take_note(&mut client, "swallowed").await.unwrap();

        scene.proxy.cut();
        take_note(&mut scene.client, "cut").await.unwrap_err();
        assert_eq!(scene.noted().await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_cut_ends_all_connections_and_takes_new_ones() {
    in_time(async {
        let mut scene = Scene::set().await;
        let mut other = connect(&scene.proxy.url()).await;
        scene.proxy.cut();
        take_note(&mut scene.client, "cut").await.unwrap_err();
        take_note(&mut other, "cut").await.unwrap_err();
        let mut client = connect(&scene.proxy.url()).await;
        take_note(&mut client, "again").await.unwrap();
        assert_eq!(scene.noted().await, 1);
    })
    .await;
}

#[tokio::test]
async fn who_is_refused_finds_nobody_and_the_others_stay() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.refuse().await;
        let refused = PgConnection::connect(&scene.proxy.url()).await;
        let Err(sqlx::Error::Io(refused)) = refused else {
            panic!("not refused: {refused:?}");
        };
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        take_note(&mut scene.client, "stays").await.unwrap();

        scene.proxy.accept();
        let mut client = connect(&scene.proxy.url()).await;
        take_note(&mut client, "again").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_stall_holds_back_both_directions_and_loses_nothing() {
    in_time(async {
        let mut scene = Scene::set().await;
        scene.proxy.stall();
        let note = {
            let mut note = std::pin::pin!(take_note(&mut scene.client, "held back"));
            timeout(SILENCE, &mut note).await.unwrap_err();
            let noted = count_notes(&mut scene.witness).await;
            let newcomer = PgConnection::connect(&scene.proxy.url());
            timeout(SILENCE, newcomer).await.expect_err("not served");
            scene.proxy.resume();
            note.await.unwrap();
            noted
        };
        assert_eq!(note, 0, "the server has not heard of it");
        assert_eq!(scene.noted().await, 1);
    })
    .await;
}

#[tokio::test]
async fn nothing_outlives_a_proxy() {
    in_time(async {
        let mut scene = Scene::set().await;
        let url = scene.proxy.url();
        drop(scene.proxy);
        take_note(&mut scene.client, "gone").await.unwrap_err();
        PgConnection::connect(&url).await.unwrap_err();
        run(&mut scene.witness, "SELECT 1").await;
    })
    .await;
}
