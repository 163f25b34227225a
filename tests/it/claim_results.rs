//! A claim whose result is unknown: its client is told that nothing ran, and
//! the ghost it may have left is released in the background.

use std::time::Duration;

use axum_idempotency::{Retry, store::StoreErrorKind};
use tokio::time::sleep;

use crate::support::{Backend, Fault, Gate, PATIENCE, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    a_claim_whose_answer_was_lost_is_released_in_the_background,
    until_a_ghost_is_released_its_key_is_in_flight,
    a_ghost_is_released_as_often_as_it_takes,
    a_claim_that_never_reached_the_store_blocks_nobody,
    a_claim_that_was_answered_with_an_error_leaves_no_ghost,
    a_ghost_never_takes_the_record_of_the_next_attempt,
);

on_tokio_time!(
    a_claim_that_landed_and_timed_out_is_released,
    a_claim_that_lands_late_is_released,
    a_claim_that_never_lands_is_given_up,
);

async fn a_claim_whose_answer_was_lost_is_released_in_the_background(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let answer = shop.post("/charges").key("k").send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.store.answered(Verb::Release, 1).await;
    assert_eq!(backend.record("k").await, None, "a ghost blocks the key");
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn until_a_ghost_is_released_its_key_is_in_flight(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let release = shop.store.hold_before(Verb::Release);
    let answer = shop.post("/charges").key("k").send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    release.reached().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    release.open();
    shop.store.answered(Verb::Release, 1).await;
    let retry = shop.post("/charges").key("k").send().await;
    retry.expect_run(1);
    assert_eq!(retry.json()["attempt"], 1, "nothing had run");
}

async fn a_ghost_is_released_as_often_as_it_takes(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    for _ in 0..3 {
        shop.store.next(Verb::Release, Fault::DOWN);
    }
    shop.post("/charges").key("k").send().await;
    shop.store.answered(Verb::Release, 4).await;
    assert_eq!(backend.record("k").await, None, "a ghost blocks the key");
}

async fn a_claim_that_never_reached_the_store_blocks_nobody(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Claim, Fault::DOWN);
    let answer = shop.post("/charges").key("k").send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.post("/charges").key("k").send().await.expect_run(1);
    // The release of what never was does not touch the record that is.
    shop.store.answered(Verb::Release, 1).await;
    let repeat = shop.post("/charges").key("k").send().await;
    assert!(repeat.is_marked_as_replay(), "a record was released");
}

/// An error that says "no effect" leaves nothing to give back.
async fn a_claim_that_was_answered_with_an_error_leaves_no_ghost(backend: Backend) {
    let shop = backend.shop().open().await;
    for kind in [StoreErrorKind::Corrupt, StoreErrorKind::Full] {
        shop.store.next(Verb::Claim, Fault::Fails(kind));
        let answer = shop.post("/charges").key("k").send().await;
        assert_eq!(answer.status, 503, "{kind:?}");
    }
    let nothing_pends = shop.layer.shutdown(PATIENCE).await;
    assert_eq!(nothing_pends, Ok(()), "something is still to be told");
    assert_eq!(
        shop.store.calls(Verb::Release),
        0,
        "what was never claimed is released"
    );
}

/// 1. A's claim lands and its answer is lost.
/// 2. The ghost lapses, and B takes over.
/// 3. A's release arrives: it owns nothing any more.
async fn a_ghost_never_takes_the_record_of_the_next_attempt(backend: Backend) {
    let (a, b) = (backend.shop().open().await, backend.shop().open().await);
    a.store.next(Verb::Claim, Fault::AnswerLost);
    let release = a.store.hold_before(Verb::Release);
    a.post("/charges").key("k").send().await;
    release.reached().await;
    backend.clock.advance(Duration::from_secs(30));
    let handler = b.work.hold();
    let second = b.post("/charges").key("k").start();
    handler.reached().await;
    release.open();
    a.store.answered(Verb::Release, 1).await;
    handler.open();
    let second = second.answer().await;
    second.expect_run(1);
    a.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&second);
}

/// 1. The claim lands, and its answer does not come in time.
/// 2. 503; the ghost is released.
async fn a_claim_that_landed_and_timed_out_is_released(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.next(Verb::Claim, Fault::HangsAfter);
    let answer = shop.post("/charges").key("k").send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 0, "a request ran without its claim");
    shop.store.answered(Verb::Release, 1).await;
    assert_eq!(backend.record("k").await, None, "a ghost blocks the key");
}

/// 1. The connection is lost; the claim is still on its way.
/// 2. 503; the store knows of no claim to release.
/// 3. The claim lands after all, and is released then.
async fn a_claim_that_lands_late_is_released(backend: Backend) {
    let shop = backend.shop().in_memory();
    let landing = Gate::closed();
    shop.store
        .next(Verb::Claim, Fault::LandsLate(landing.clone()));
    let answer = shop.post("/charges").key("k").send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.store.answered(Verb::Release, 2).await;
    sleep(Duration::from_secs(20)).await;
    landing.open();
    tokio::task::yield_now().await;
    assert!(backend.record("k").await.is_some(), "the claim has landed");
    let so_far = shop.store.calls(Verb::Release);
    shop.store.answered(Verb::Release, so_far + 1).await;
    assert_eq!(backend.record("k").await, None, "a ghost blocks the key");
}

/// The store is asked again at a growing distance, and not for ever.
async fn a_claim_that_never_lands_is_given_up(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.next(Verb::Claim, Fault::DOWN);
    shop.post("/charges").key("k").send().await;
    sleep(Duration::from_secs(31)).await;
    let calls = shop.store.calls(Verb::Release);
    assert!(
        calls <= 60,
        "the store was asked {calls} times for one claim that failed"
    );
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        shop.store.calls(Verb::Release),
        calls,
        "it is never given up"
    );
}
