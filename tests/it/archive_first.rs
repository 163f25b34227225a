//! Outcomes that go into the archive first, where that takes long.

use std::time::Duration;

use axum_idempotency::Retry;
use tokio::time::sleep;

use crate::support::{Backend, Fault, Shop, Verb, on_tokio_time};

on_tokio_time!(
    an_outcome_that_waits_for_the_archive_keeps_its_lease_past_the_longest,
    a_release_does_not_wait_for_outcomes_that_the_archive_refuses,
    a_record_that_cannot_be_read_is_told_once,
);

fn process(backend: &Backend) -> Shop {
    let store = backend.process().keeping_until_expired();
    backend.shop().over(store).in_memory()
}

/// 1. The archive takes no rows; the handler has run, and its client has the
///    answer.
/// 2. The longest lease is over many times: still nobody may run it again.
/// 3. The archive is back: every retry gets the answer.
async fn an_outcome_that_waits_for_the_archive_keeps_its_lease_past_the_longest(backend: Backend) {
    let (shop, other) = (process(&backend), process(&backend));
    shop.archive.always(Verb::Insert, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    for _ in 0..6 {
        sleep(Duration::from_mins(5)).await;
        let early = other.post("/charges").key("k").send().await;
        early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    }
    shop.archive.heal(Verb::Insert);
    shop.store.answered(Verb::Complete, 1).await;
    let retry = other.post("/charges").key("k").send().await;
    retry.expect_replay_of(&first);
    assert_eq!(other.work.runs(), 0, "it ran again");
}

/// 1. More outcomes wait for the archive than are told at a time.
/// 2. The answer to a claim is lost: its client is told that nothing ran, and the
///    claim is released behind its back.
async fn a_release_does_not_wait_for_outcomes_that_the_archive_refuses(backend: Backend) {
    let shop = process(&backend);
    shop.archive.always(Verb::Insert, Fault::DOWN);
    for number in 0..20 {
        let order = format!("order-{number}");
        shop.post("/charges")
            .key(&order)
            .send()
            .await
            .expect_run(number + 1);
    }
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let refused = shop.post("/charges").key("k").send().await;
    refused.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.store.answered(Verb::Release, 1).await;
    assert_eq!(backend.record("k").await, None, "a ghost blocks the key");
}

/// Nothing that is repeated makes it readable.
async fn a_record_that_cannot_be_read_is_told_once(backend: Backend) {
    let shop = process(&backend);
    let corrupt = axum_idempotency::store::StoreErrorKind::Corrupt;
    shop.store.always(Verb::Complete, Fault::Fails(corrupt));
    shop.post("/charges").key("k").send().await.expect_run(1);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(shop.store.calls(Verb::Complete), 2, "calls to complete");
    let shut_down = shop.layer.shutdown(Duration::from_secs(30)).await;
    shut_down.expect("nothing is left to be told");
}
