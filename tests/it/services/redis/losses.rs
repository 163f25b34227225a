//! Redis evicts, or comes back empty: what was completed is in the archive.

use std::time::Duration;

use super::{
    load::Load,
    over,
    seen::{Rules, must_hold},
    server::record_of,
};
use crate::{
    services::{ulid, until},
    support::redis::Server,
};

/// The charge is the record that was used least recently.
#[tokio::test]
async fn an_evicted_charge_is_told_by_the_archive_and_not_made_again() {
    let server = Server::with(&["--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let site = over(&server).set("ARCHIVE_LOOKUP", "all");
    let service = site.testbed().await;
    for key in [ulid(), format!("order-{}", ulid())] {
        let request = service.post("/echo?status=201").key(&key).body("charge");
        let first = request.send().await;
        assert_eq!(first.status, 201, "{first}");
        request.send().await.must_replay(&first);
        let id = first.json()["id"].as_str().expect("an id").to_owned();
        let record = record_of(&server, &id).await;
        until("the charge is evicted", async || {
            let filler = service.post("/echo?size=200000").key(&ulid());
            let answer = filler.send().await;
            assert_eq!(answer.status, 200, "a full server takes new keys: {answer}");
            // Unlike reading it, this does not make it a recently used one.
            let there = server.cli(&["EXISTS", &record]).await;
            (there == "0").then_some(())
        })
        .await;
        let retry = request.send().await;
        let problem = retry.problem(409, "idempotency_key_expired");
        assert_eq!(problem["original_status"], 201, "{retry}");
        assert_eq!(problem["resource_id"], id, "{retry}");
        assert_eq!(problem["outcome"], "completed", "{retry}");
        assert_eq!(problem["same_request"], true, "{retry}");
        assert_eq!(service.executions(&key).await, 1);
    }
    let evicted = server.info("stats").await["evicted_keys"].clone();
    assert_ne!(evicted, "0", "Redis evicted nothing");
}

/// The lease is so long that nothing is taken over.
#[tokio::test]
async fn a_server_that_comes_back_empty_under_load_repeats_no_effect_that_was_answered() {
    let mut server = Server::start().await;
    let site = over(&server).set("ARCHIVE_LOOKUP", "all");
    let (one, other) = tokio::join!(site.testbed(), site.testbed());
    let load = Load::begin(&[&one, &other], RULES);
    for _ in 0..RESTARTS {
        load.settles(60).await;
        server.kill().await;
        load.loses();
        server.restart().await;
    }
    load.settles(60).await;
    assert_eq!(load.broken(), 0, "the services run");
    let mut seen = load.end().await;
    must_hold(&mut seen, &one, RESTARTS).await;
}

const RULES: Rules = Rules {
    lease: Duration::from_secs(30),
    ttl: Duration::from_hours(24),
};

const RESTARTS: usize = 3;
