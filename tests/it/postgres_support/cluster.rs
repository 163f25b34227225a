//! Servers that crash and stop answering.

use tokio::time::timeout;

use super::{SILENCE, ask, connect, count_notes, make_notes, run, take_note};
use crate::support::{in_time, postgres::Cluster};

#[tokio::test]
async fn what_was_committed_survives_a_crash_and_what_was_not_does_not() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let mut client = connect(&cluster.url()).await;
        let fsync: String = ask(&mut client, "SHOW fsync").await;
        assert_eq!(fsync, "on");
        make_notes(&mut client).await;
        take_note(&mut client, "committed").await.unwrap();
        run(&mut client, "BEGIN").await;
        take_note(&mut client, "not committed").await.unwrap();

        // More than once, as an id or shared memory of the last might be in
        // the way of the next.
        for _ in 0..3 {
            cluster.kill().await;
            take_note(&mut client, "too late").await.unwrap_err();
            cluster.restart().await;
            client = connect(&cluster.url()).await;
            assert_eq!(count_notes(&mut client).await, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_clean_restart_keeps_place_settings_and_rows() {
    in_time(async {
        let mut cluster = Cluster::with(&[("max_connections", "17")]).await;
        let url = cluster.url();
        let mut client = connect(&url).await;
        make_notes(&mut client).await;
        take_note(&mut client, "committed").await.unwrap();
        cluster.restart().await;
        take_note(&mut client, "too late").await.unwrap_err();

        assert_eq!(cluster.url(), url);
        let mut client = connect(&url).await;
        assert_eq!(count_notes(&mut client).await, 1);
        let connections: String = ask(&mut client, "SHOW max_connections").await;
        assert_eq!(connections, "17");
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_answers_nobody_and_then_everybody() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let mut client = connect(&cluster.url()).await;
        make_notes(&mut client).await;
        cluster.pause().await;
        {
            let url = cluster.url();
            let mut note = std::pin::pin!(take_note(&mut client, "late"));
            let mut newcomer = std::pin::pin!(connect(&url));
            timeout(SILENCE, &mut note).await.unwrap_err();
            timeout(SILENCE, &mut newcomer).await.unwrap_err();
            cluster.resume();
            note.await.unwrap();
            newcomer.await;
        }
        assert_eq!(count_notes(&mut client).await, 1);
        // Neither does a pause keep it from being restarted or dropped.
        cluster.pause().await;
        cluster.restart().await;
        cluster.pause().await;
    })
    .await;
}
