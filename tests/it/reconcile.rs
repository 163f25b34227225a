//! What a client sees when it has to look up what happened: every such row of
//! the contract's table, with what is and is not known.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{Abandoned, FingerprintOptions, Recording, Retry};
use http::StatusCode;
use serde_json::json;

use crate::support::{Backend, Work, on_every_backend, on_tokio_time};

on_every_backend!(
    a_late_retry_is_told_what_the_expired_record_knows,
    a_late_retry_with_another_body_is_told_that_it_differs,
    a_late_retry_that_cannot_be_compared_is_told_so,
    a_late_retry_of_a_request_without_an_outcome_is_told_that_it_is_unknown,
    a_late_retry_is_told_what_the_archive_knows,
    a_late_retry_is_told_that_the_archive_knows_no_outcome,
    a_retry_from_before_the_archive_is_told_that_nothing_is_known,
    a_late_retry_gets_the_status_that_the_policy_names,
    a_response_that_was_too_large_to_keep_is_named_by_its_status_and_resource,
    a_response_that_was_streamed_is_named_by_its_status_and_resource,
    a_route_that_keeps_no_bodies_names_status_and_resource,
    a_response_that_names_no_resource_has_null_for_it,
    an_abandoned_request_that_may_not_run_again_has_an_unknown_outcome,
    an_attempt_that_was_fenced_by_a_running_one_has_an_unknown_outcome,
);

on_tokio_time!(an_attempt_that_was_aborted_at_max_lease_has_an_unknown_outcome,);

async fn a_late_retry_is_told_what_the_expired_record_knows(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    backend.clock.advance(DAY);
    let late = shop.post("/charges").key("k").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_1",
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "completed",
            "same_request": true,
        }));
    assert_eq!(shop.work.runs(), 1, "a late retry ran again");
}

async fn a_late_retry_with_another_body_is_told_that_it_differs(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    backend.clock.advance(DAY);
    let late = shop.post("/charges").key("k").body("{}").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_1",
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "completed",
            "same_request": false,
        }));
}

async fn a_late_retry_that_cannot_be_compared_is_told_so(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.fingerprint(FingerprintOptions::none()))
        .open()
        .await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    backend.clock.advance(DAY);
    let late = shop.post("/charges").key("k").body("{}").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_1",
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "completed",
            "same_request": null,
        }));
}

async fn a_late_retry_of_a_request_without_an_outcome_is_told_that_it_is_unknown(backend: Backend) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let handler = stuck.work.hold();
    let _first = stuck.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(DAY);
    let shop = backend.shop().open().await;
    let late = shop.post("/charges").key("k").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": null,
            "resource_id": null,
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "unknown",
            "same_request": true,
        }));
    assert_eq!(shop.work.runs(), 0, "a late retry ran again");
}

async fn a_late_retry_is_told_what_the_archive_knows(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 1, "the expired record is swept");
    assert!(
        backend.record(&key).await.is_none(),
        "it has left the store"
    );
    let late = shop.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_1",
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "completed",
            "same_request": true,
        }));
    let other = shop.post("/charges").key(&key).body("{}").send().await;
    other
        .expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_1",
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "completed",
            "same_request": false,
        }));
    assert_eq!(shop.work.runs(), 1, "a late retry ran again");
    assert!(
        backend.record(&key).await.is_none(),
        "a late retry left a claim"
    );
}

async fn a_late_retry_is_told_that_the_archive_knows_no_outcome(backend: Backend) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let handler = stuck.work.hold();
    let key = backend.ulid_made_before(Duration::ZERO);
    let _first = stuck.post("/charges").key(&key).start();
    handler.reached().await;
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 1, "the abandoned record is swept");
    let shop = backend.shop().open().await;
    let late = shop.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": null,
            "resource_id": null,
            "created_at": FIRST,
            "expired_at": A_DAY_LATER,
            "outcome": "unknown",
            "same_request": true,
        }));
    assert_eq!(shop.work.runs(), 0, "a late retry ran again");
}

async fn a_retry_from_before_the_archive_is_told_that_nothing_is_known(backend: Backend) {
    let short = backend.archive().with_retention(30 * DAY);
    let shop = backend.shop().archive(short).open().await;
    let judged = backend.ulid_made_before(30 * DAY);
    let beyond = backend.ulid_made_before(30 * DAY + Duration::from_secs(1));
    shop.post("/charges")
        .key(&judged)
        .send()
        .await
        .expect_run(1);
    let late = shop.post("/charges").key(&beyond).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile)
        .with(&json!({
            "original_status": null,
            "resource_id": null,
            "created_at": null,
            "expired_at": null,
            "outcome": "unknown",
            "same_request": null,
        }));
    assert_eq!(shop.work.runs(), 1, "a key older than the archive ran");
    assert!(
        backend.record(&beyond).await.is_none(),
        "its claim was not given back"
    );
}

async fn a_late_retry_gets_the_status_that_the_policy_names(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.late_status(StatusCode::GONE))
        .open()
        .await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    let live = shop.post("/charges").key(&key).send().await;
    live.expect_problem(410, "idempotency_key_expired", Retry::Reconcile);
    backend.sweep().await;
    let archived = shop.post("/charges").key(&key).send().await;
    archived.expect_problem(410, "idempotency_key_expired", Retry::Reconcile);
}

async fn a_response_that_was_too_large_to_keep_is_named_by_its_status_and_resource(
    backend: Backend,
) {
    let shop = backend
        .shop()
        .policy(|policy| policy.response_limit(8))
        .open()
        .await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat
        .expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile)
        .with(&json!({"original_status": 201, "resource_id": "ch_1", "created_at": FIRST}));
    assert_eq!(
        shop.work.runs(),
        1,
        "a request ran again because its response was large"
    );
}

async fn a_response_that_was_streamed_is_named_by_its_status_and_resource(backend: Backend) {
    let work =
        Work::answering(|seen| async move { (Recording::Stream, seen.charge()).into_response() });
    let shop = backend.shop().work(work).open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat
        .expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile)
        .with(&json!({"original_status": 201, "resource_id": "ch_1", "created_at": FIRST}));
    assert_eq!(
        shop.work.runs(),
        1,
        "a request ran again because its response was a stream"
    );
}

async fn a_route_that_keeps_no_bodies_names_status_and_resource(backend: Backend) {
    let shop = backend
        .shop()
        .policy(axum_idempotency::PolicyBuilder::keep_no_bodies)
        .open()
        .await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat
        .expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile)
        .with(&json!({"original_status": 201, "resource_id": "ch_1", "created_at": FIRST}));
    assert_eq!(
        shop.work.runs(),
        1,
        "a request ran again because its response is not kept"
    );
}

async fn a_response_that_names_no_resource_has_null_for_it(backend: Backend) {
    let work = Work::answering(|_| async { (Recording::Stream, "done").into_response() });
    let shop = backend.shop().work(work).open().await;
    assert_eq!(shop.post("/charges").key("k").send().await.status, 200);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat
        .expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile)
        .with(&json!({"original_status": 200, "resource_id": null, "created_at": FIRST}));
}

async fn an_abandoned_request_that_may_not_run_again_has_an_unknown_outcome(backend: Backend) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let handler = stuck.work.hold();
    let _first = stuck.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(LEASE);
    let shop = backend
        .shop()
        .policy(|policy| policy.abandoned(Abandoned::Refuse))
        .open()
        .await;
    let retry = shop.post("/charges").key("k").send().await;
    retry
        .expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile)
        .with(&json!({"created_at": FIRST}));
    let other = shop.post("/charges").key("k").body("{}").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    assert_eq!(shop.work.runs(), 0, "an abandoned request ran again");
}

/// 1. The first attempt's lease lapses while its handler runs.
/// 2. A second attempt takes over and is still running.
/// 3. The first handler answers: its completion is refused, and there is no
///    outcome yet to give its client instead.
async fn an_attempt_that_was_fenced_by_a_running_one_has_an_unknown_outcome(backend: Backend) {
    let slow = backend.shop().open().await;
    slow.loses_its_leases();
    let quick = backend.shop().open().await;
    let (first_handler, second_handler) = (slow.work.hold(), quick.work.hold());
    let first = slow.post("/charges").key("k").start();
    first_handler.reached().await;
    backend.clock.advance(LEASE);
    let second = quick.post("/charges").key("k").start();
    second_handler.reached().await;
    first_handler.open();
    let fenced = first.answer().await;
    fenced
        .expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile)
        .with(&json!({"created_at": FIRST}));
    second_handler.open();
    second.answer().await.expect_run(1);
}

/// 1. The handler hangs, and its lease is renewed.
/// 2. `max_lease` passes: the handler is aborted.
async fn an_attempt_that_was_aborted_at_max_lease_has_an_unknown_outcome(backend: Backend) {
    let shop = backend.shop().in_memory();
    let _never_opened = shop.work.hold();
    let answer = shop.post("/charges").key("k").send().await;
    answer
        .expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile)
        .with(&json!({"created_at": FIRST}));
    assert_eq!(shop.work.aborted(), 1, "the handler was left running");
}

const DAY: Duration = Duration::from_hours(24);
const LEASE: Duration = Duration::from_secs(30);

/// When the tests' clock begins, and a day after.
const FIRST: &str = "2026-12-01T00:00:00Z";
const A_DAY_LATER: &str = "2026-12-02T00:00:00Z";
