//! A server that does not answer.

use std::time::Duration;

use super::{Aftermath, Load, Repeats, Services, services::impatient};
use crate::support::{
    in_time,
    redis::{Proxy, Server},
};

async fn on(url: &str) -> Load {
    let store = || impatient(url.to_owned());
    Load::on(Services::with([store(), store()]).await).await
}

/// Clients are told so in time, and nothing runs for them.
async fn nothing_runs(load: &mut Load) {
    load.is_refused().await;
    let effects = load.ledger().effects();
    load.is_refused().await;
    let ran = load.ledger().effects() - effects;
    assert_eq!(ran, 0, "it ran without a record");
}

/// Nothing was lost, and nobody waited for more than a claim, a completion and
/// what becomes of it.
async fn all_is_well(after: Aftermath) {
    after.runs_nothing_twice();
    let slowest = after.slowest();
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    after.keeps_its_word(Repeats::Replays).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_answering_costs_nobody_more_than_the_timeouts() {
    in_time(async {
        let server = Server::start().await;
        let mut load = on(&server.url()).await;
        for _ in 0..2 {
            server.pause().await;
            nothing_runs(&mut load).await;
            server.resume().await;
            load.goes_well().await;
        }
        all_is_well(load.stop().await).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_connections_costs_nobody_more_than_the_timeouts() {
    in_time(async {
        let server = Server::start().await;
        let mut address = Proxy::before(&server.url());
        let mut load = on(&address.url()).await;
        for _ in 0..2 {
            address.refuse().await;
            address.cut();
            nothing_runs(&mut load).await;
            address.accept();
            load.goes_well().await;
        }
        all_is_well(load.stop().await).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_stalls_costs_nobody_more_than_the_timeouts() {
    in_time(async {
        let server = Server::start().await;
        let address = Proxy::before(&server.url());
        let mut load = on(&address.url()).await;
        address.stall();
        nothing_runs(&mut load).await;
        address.resume();
        load.goes_well().await;
        all_is_well(load.stop().await).await;
    })
    .await;
}
