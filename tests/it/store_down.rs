//! The open policy: while the store is down requests run without protection,
//! and what the store took all the same is told of the outcome.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{InFlight, PolicyBuilder, Retry, StoreDown, store::StoreErrorKind};
use http::StatusCode;

use crate::support::{
    Backend, Fault, Gate, Logs, Opening, PATIENCE, Verb, Work, on_every_backend, on_tokio_time,
};

on_every_backend!(
    an_open_policy_runs_while_the_store_is_down_and_says_so_in_the_log,
    a_claim_that_landed_is_completed_in_the_background,
    a_claim_that_landed_is_released_when_nothing_happened,
    a_panic_without_protection_is_recorded_where_the_claim_landed,
    duplicates_in_the_same_process_are_held_back_all_the_same,
    those_who_wait_for_a_run_without_protection_get_its_answer,
    one_of_those_who_wait_runs_when_nothing_happened_without_protection,
    the_archive_being_down_is_unavailable_in_an_open_policy_too,
    a_row_that_cannot_be_read_is_no_store_that_is_down,
    a_completion_that_fails_is_repeated_in_an_open_policy_too,
    a_reuse_is_told_as_soon_as_the_store_is_back,
);

on_tokio_time!(
    a_claim_that_lands_late_is_completed,
    max_lease_aborts_a_handler_without_protection_too,
);

fn open(opening: Opening) -> Opening {
    opening.policy(|policy| policy.store_down(StoreDown::Open))
}

async fn an_open_policy_runs_while_the_store_is_down_and_says_so_in_the_log(backend: Backend) {
    let logs = Logs::capture();
    let shop = open(backend.shop()).open().await;
    shop.store.always(Verb::Claim, Fault::DOWN);
    shop.post("/charges").key("k").send().await.expect_run(1);
    shop.post("/charges").key("k").send().await.expect_run(2);
    let text = logs.text();
    assert!(
        text.contains("running without protection"),
        "nobody is told: {text}"
    );
    assert_eq!(shop.layer.unprotected_runs(), 2, "they are counted");
    shop.store.heal(Verb::Claim);
    shop.post("/charges").key("k").send().await.expect_run(3);
    let repeat = shop.post("/charges").key("k").send().await;
    assert!(
        repeat.is_marked_as_replay(),
        "the protection did not come back"
    );
}

async fn a_claim_that_landed_is_completed_in_the_background(backend: Backend) {
    let shop = open(backend.shop()).open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 1).await;
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(
        shop.work.runs(),
        1,
        "it ran twice although the claim had landed"
    );
}

async fn a_claim_that_landed_is_released_when_nothing_happened(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let first = StatusCode::TOO_MANY_REQUESTS.into_response();
        if seen.run == 1 { first } else { seen.charge() }
    });
    let shop = open(backend.shop().work(work)).open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    assert_eq!(shop.post("/charges").key("k").send().await.status, 429);
    shop.store.answered(Verb::Release, 1).await;
    shop.post("/charges").key("k").send().await.expect_run(2);
}

async fn a_panic_without_protection_is_recorded_where_the_claim_landed(backend: Backend) {
    let work = Work::answering(|_| async { panic!("as the test asked") });
    let shop = open(backend.shop().work(work)).open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 500);
    shop.store.answered(Verb::Complete, 1).await;
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "a panic ran twice");
}

async fn duplicates_in_the_same_process_are_held_back_all_the_same(backend: Backend) {
    let shop = open(backend.shop()).open().await;
    shop.store.always(Verb::Claim, Fault::DOWN);
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    let reuse = shop.post("/charges").key("k").body("other").send().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    handler.open();
    first.answer().await.expect_run(1);
}

/// 1. The store is down; the first request runs without protection.
/// 2. Three duplicates wait for it in the same process.
/// 3. It answers. The process knows the answer, store or no store.
async fn those_who_wait_for_a_run_without_protection_get_its_answer(backend: Backend) {
    let waiting = |policy: PolicyBuilder| policy.in_flight(InFlight::Wait(PATIENCE));
    let shop = open(backend.shop()).policy(waiting).in_memory();
    shop.store.always(Verb::Claim, Fault::DOWN);
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting: Vec<_> = (0..3)
        .map(|_| shop.post("/charges").key("k").start())
        .collect();
    let other = shop.post("/charges").key("k").body("other").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    handler.open();
    let first = first.answer().await;
    first.expect_run(1);
    for duplicate in waiting {
        duplicate.answer().await.expect_replay_of(&first);
    }
    assert_eq!(
        shop.work.runs(),
        1,
        "those who waited ran one after another"
    );
}

async fn one_of_those_who_wait_runs_when_nothing_happened_without_protection(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let first = StatusCode::TOO_MANY_REQUESTS.into_response();
        if seen.run == 1 { first } else { seen.charge() }
    });
    let waiting = |policy: PolicyBuilder| policy.in_flight(InFlight::Wait(PATIENCE));
    let shop = open(backend.shop().work(work)).policy(waiting).in_memory();
    shop.store.always(Verb::Claim, Fault::DOWN);
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting = shop.post("/charges").key("k").start();
    tokio::task::yield_now().await;
    handler.open();
    assert_eq!(first.answer().await.status, 429);
    waiting.answer().await.expect_run(2);
}

async fn the_archive_being_down_is_unavailable_in_an_open_policy_too(backend: Backend) {
    let shop = open(backend.shop()).open().await;
    let key = backend.ulid_made_before(Duration::from_hours(48));
    shop.archive.next(Verb::Lookup, Fault::DOWN);
    let answer = shop.post("/charges").key(&key).send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 0, "it ran without its lookup");
}

/// The row is there, and may be that of a request which ran.
async fn a_row_that_cannot_be_read_is_no_store_that_is_down(backend: Backend) {
    let shop = open(backend.shop()).open().await;
    shop.store
        .next(Verb::Claim, Fault::Fails(StoreErrorKind::Corrupt));
    let answer = shop.post("/charges").key("k").send().await;
    answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    assert_eq!(
        shop.work.runs(),
        0,
        "it ran beside a record that nobody can read"
    );
}

async fn a_completion_that_fails_is_repeated_in_an_open_policy_too(backend: Backend) {
    let shop = open(backend.shop()).open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    shop.store.next(Verb::Complete, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 2).await;
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
}

async fn a_reuse_is_told_as_soon_as_the_store_is_back(backend: Backend) {
    let shop = open(backend.shop()).open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    shop.store.next(Verb::Claim, Fault::DOWN);
    shop.post("/charges")
        .key("k")
        .body("other")
        .send()
        .await
        .expect_run(2);
    let reuse = shop.post("/charges").key("k").body("other").send().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
}

#[tokio::test]
async fn a_store_that_is_full_is_not_down() {
    let backend = Backend::with_capacity(1);
    let shop = open(backend.shop()).open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let full = shop.post("/charges").key("another").send().await;
    full.expect_problem(503, "idempotency_store_full", Retry::SameKeyLater);
    assert_eq!(
        shop.work.runs(),
        1,
        "a full store let a request run unprotected"
    );
}

/// 1. The connection is lost; the claim is still on its way.
/// 2. The handler runs without protection and answers.
/// 3. The store knows of no claim that could be completed.
/// 4. The claim lands after all, and is completed then.
async fn a_claim_that_lands_late_is_completed(backend: Backend) {
    let shop = open(backend.shop()).in_memory();
    let landing = Gate::closed();
    shop.store
        .next(Verb::Claim, Fault::LandsLate(landing.clone()));
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 2).await;
    landing.open();
    let so_far = shop.store.calls(Verb::Complete);
    shop.store.answered(Verb::Complete, so_far + 1).await;
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1);
}

/// 1. The claim lands and its answer is lost; the handler hangs.
/// 2. `max_lease` aborts it: it may have had its effect, so the ghost is
///    neither completed nor released.
async fn max_lease_aborts_a_handler_without_protection_too(backend: Backend) {
    let shop = open(backend.shop()).in_memory();
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let _never_opened = shop.work.hold();
    let first = shop.post("/charges").key("k").send().await;
    first.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    assert_eq!(shop.work.aborted(), 1, "the handler was left running");
    let left = backend
        .record("k")
        .await
        .expect("the attempt is not forgotten");
    assert_eq!(left.attempt, 1);
    let next = shop.post("/charges").key("k").send().await;
    assert_eq!(
        next.json()["attempt"],
        2,
        "it does not know of the first attempt"
    );
}
