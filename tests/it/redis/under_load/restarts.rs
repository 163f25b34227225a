//! A server that is killed and comes back.

use tokio::time::Instant;

use super::{Load, Repeats, Services};
use crate::support::{in_time, redis::Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_an_append_only_file_is_killed_and_loses_nothing() {
    in_time(async {
        let always = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut server = Server::with(&always).await;
        let services = Services::over([server.url(), server.url()]).await;
        let mut load = Load::on(services).await;
        for _ in 0..2 {
            server.kill().await;
            load.is_refused().await;
            server.restart().await;
            load.goes_well().await;
        }
        let after = load.stop().await;
        after.runs_nothing_twice();
        after.keeps_its_word(Repeats::Replays).await;
    })
    .await;
}

/// The record of a request that is under way is lost as well: a retry in another
/// process runs beside it, and both clients get the retry's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_is_made_up_for_by_the_archive() {
    in_time(async {
        let mut server = Server::start().await;
        let services = Services::over([server.url(), server.url()]).await;
        let mut load = Load::on(services).await;
        let under_way = load.ledger().hold();
        under_way.reached().await;
        let killed = Instant::now();
        server.kill().await;
        load.is_refused().await;
        server.restart().await;
        let back = Instant::now();
        load.runs_one_again().await;
        under_way.open();
        load.goes_well().await;
        let after = load.stop().await;
        let twice = after.runs_twice_only_what_was_lost_under_way(&(killed..back));
        assert_eq!(twice.len(), 1, "what else was under way was archived");
        let counts = after.keeps_its_word(Repeats::ReplaysOrArchive).await;
        assert!(counts.archived > 0, "nothing was lost: {counts:?}");
    })
    .await;
}
