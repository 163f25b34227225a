//! A commit to PostgreSQL that is cut off: with its process, or with its
//! connection alone.

use super::{Service, Site, has_one_effect_and_one_answer, work};
use crate::{
    services::{settled, ulid},
    support::postgres::{CommitGate, Proxy, Schema},
};

/// A process that is within a commit.
async fn within_a_commit(url: &str) -> (Site, Service, CommitGate) {
    let site = Site::over(url.to_owned()).set("LEASE", "1s");
    let service = site.testbed().await;
    let gate = CommitGate::before(url, "executions").await;
    (site, service, gate)
}

#[tokio::test]
async fn by_the_end_of_a_process_and_the_server_finishes_it() {
    let schema = Schema::new();
    let (site, service, mut gate) = within_a_commit(&schema.url()).await;
    let key = ulid();
    let running = work(&service, &key, "").begin().await;
    let standing = gate.reached().await;
    service.kill().await;
    running.answer().await.expect_err("it was killed");
    gate.let_through(standing).await;
    let service = site.testbed().await;
    // At once: there is no lease to wait for.
    let told = work(&service, &key, "").send().await;
    assert!(told.is_replay(), "{told}");
    assert_eq!(told.json()["attempt"], 1, "{told}");
    has_one_effect_and_one_answer(&site, &key, "").await;
}

#[tokio::test]
async fn by_the_end_of_a_process_and_the_server_rolls_it_back() {
    let schema = Schema::new();
    let (site, service, mut gate) = within_a_commit(&schema.url()).await;
    let key = ulid();
    let running = work(&service, &key, "").begin().await;
    let standing = gate.reached().await;
    service.kill().await;
    running.answer().await.expect_err("it was killed");
    gate.turn_away(standing).await;
    gate.open().await;
    let service = site.testbed().await;
    assert_eq!(service.executions(&key).await, 0);
    let again = settled(&work(&service, &key, "")).await;
    assert_eq!(again.json()["attempt"], 2, "{again}");
    has_one_effect_and_one_answer(&site, &key, "").await;
}

/// The lease is over long before the server is done with the commit: nobody takes
/// over in between.
#[tokio::test]
async fn by_the_end_of_a_process_for_longer_than_its_lease() {
    let schema = Schema::new();
    let (site, service, mut gate) = within_a_commit(&schema.url()).await;
    let key = ulid();
    let running = work(&service, &key, "").begin().await;
    let standing = gate.reached().await;
    service.kill().await;
    running.answer().await.expect_err("it was killed");
    let service = site.testbed().await;
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    for _ in 0..5 {
        let early = work(&service, &key, "").send().await;
        early.problem(409, "idempotency_request_in_progress");
    }
    gate.let_through(standing).await;
    let told = settled(&work(&service, &key, "")).await;
    assert_eq!(told.json()["attempt"], 1, "{told}");
    has_one_effect_and_one_answer(&site, &key, "").await;
}

#[tokio::test]
async fn by_the_end_of_its_backend() {
    let schema = Schema::new();
    let (site, service, mut gate) = within_a_commit(&schema.url()).await;
    let key = ulid();
    let running = work(&service, &key, "").begin().await;
    let standing = gate.reached().await;
    gate.turn_away(standing).await;
    gate.open().await;
    // Nothing happened, as the handler says: the retry runs.
    let first = running.answer().await.expect("an answer");
    assert_eq!(first.status, 503, "{first}");
    assert_eq!(service.executions(&key).await, 0);
    has_one_effect_and_one_answer(&site, &key, "").await;
}

/// The server has committed, and nobody is told. The handler says that nothing
/// happened, and is not believed.
#[tokio::test]
async fn by_the_end_of_its_connection() {
    let schema = Schema::new();
    let proxy = Proxy::before(&schema.url());
    let by_way_of = Site::over(proxy.url()).set("LEASE", "1s");
    let service = by_way_of.testbed().await;
    let key = ulid();
    let running = work(&service, &key, "?delay_ms=300").begin().await;
    proxy.cut_answer_to("COMMIT");
    let first = running.answer().await.expect("an answer");
    proxy.has_fired(1).await;
    assert_eq!(first.status, 201, "{first}");
    let site = Site::over(schema.url());
    let other = site.testbed().await;
    work(&other, &key, "?delay_ms=300")
        .send()
        .await
        .must_replay(&first);
    assert_eq!(other.executions(&key).await, 1);
}
