//! `kill -9` of the server, and what it has lost then.

use super::{
    over,
    server::{durable, lose_everything},
};
use crate::{
    services::{late::tells_of, settled, ulid, until},
    support::redis::Server,
};

#[tokio::test]
async fn a_server_with_an_append_only_file_loses_no_answer() {
    let mut server = durable().await;
    let service = over(&server).testbed().await;
    for _ in 0..3 {
        let key = ulid();
        let request = service.post("/echo?status=201").key(&key).body("charge");
        let first = request.send().await;
        assert_eq!(first.status, 201, "{first}");
        server.kill().await;
        let refused = request.send().await;
        let problem = refused.problem(503, "idempotency_store_unavailable");
        assert_eq!(problem["retry"], "same-key-later");
        server.restart().await;
        let replay = until("the store is back", async || {
            let answer = settled(&request).await;
            (answer.status != 503).then_some(answer)
        });
        replay.await.must_replay(&first);
        assert_eq!(service.executions(&key).await, 1);
    }
}

/// Its lease does not run out: the renewals go on when the server is back.
#[tokio::test]
async fn a_handler_that_runs_while_the_server_restarts_is_recorded() {
    let mut server = durable().await;
    let service = over(&server).set("LEASE", "5s").testbed().await;
    let key = ulid();
    let request = service.post("/echo?delay_ms=1000").key(&key).body("charge");
    let running = request.begin().await;
    service.has_executed(&key, 1).await;
    server.kill().await;
    server.restart().await;
    let first = running.answer().await.expect("its answer");
    assert_eq!(first.status, 200, "{first}");
    assert_eq!(first.json()["attempt"], 1, "{first}");
    settled(&request).await.must_replay(&first);
    assert_eq!(service.executions(&key).await, 1);
}

/// What was completed is in the archive, with status and id, before its client
/// knew of it.
async fn is_told_by_the_archive(lookup: &str, key: &str) {
    let server = Server::start().await;
    // So short that no key is too young to be looked up.
    let site = over(&server).set("TTL", "1s").set("ARCHIVE_LOOKUP", lookup);
    let service = site.testbed().await;
    let request = service.post("/echo?status=201").key(key).body("charge");
    let first = request.send().await;
    assert_eq!(first.status, 201, "{first}");
    lose_everything(&server).await;
    tells_of(&request.send().await, &first, true);
    assert_eq!(service.executions(key).await, 1);
}

#[tokio::test]
async fn where_all_keys_are_looked_up_a_server_that_lost_everything_repeats_no_effect() {
    is_told_by_the_archive("all", "opaque").await;
    is_told_by_the_archive("all", &ulid()).await;
}

#[tokio::test]
async fn a_key_that_is_looked_up_is_told_by_the_archive_though_the_server_lost_everything() {
    is_told_by_the_archive("timestamped", &ulid()).await;
}
