//! An outcome goes into the archive and then into its record. Wherever a process
//! dies on that way, the effect happens once for every attempt that could not
//! know of it, and never again once the archive does.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{Abandoned, ArchiveLookup, Clock as _, Retry, StoreDown};
use http::StatusCode;
use serde_json::json;

use super::places::{Place, beside_every_archive};
use crate::support::{Fault, Gate, Shop, Started, Verb, Work, scoped};

beside_every_archive!(
    a_completed_record_is_in_the_archive_already,
    a_process_that_dies_before_the_archive_leaves_an_attempt_to_take_over,
    a_process_that_dies_after_the_archive_never_runs_again,
    a_process_that_dies_after_the_archive_is_told_where_nothing_may_run_again,
    a_process_that_dies_after_the_archive_is_told_past_the_ttl,
    a_process_that_dies_after_the_archive_is_told_after_a_sweep,
    a_process_that_dies_after_the_record_leaves_a_replay,
    while_the_archive_is_down_the_first_client_has_its_answer_and_the_key_stays_in_flight,
    an_archive_that_answers_too_late_ends_with_the_right_outcome,
    a_status_that_is_not_kept_leaves_nothing,
    a_completion_whose_claim_was_not_answered_is_archived_too,
    a_settled_outcome_is_archived_before_it_is_recorded,
);

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);

/// A process that stops for good where the gate is: its leases lapse.
async fn dies_at(place: &Place, gate: impl FnOnce(&Shop) -> Gate) -> (Shop, Started) {
    let shop = place.backend.shop().open().await;
    shop.loses_its_leases();
    let gate = gate(&shop);
    let first = shop.post("/charges").key("k").start();
    gate.reached().await;
    (shop, first)
}

async fn dies_before_the_archive(place: &Place) -> (Shop, Started) {
    dies_at(place, |shop| shop.archive.hold_before(Verb::Insert)).await
}

async fn dies_after_the_archive(place: &Place) -> (Shop, Started) {
    dies_at(place, |shop| shop.archive.hold_after(Verb::Insert)).await
}

/// Its outcome is that of the first attempt.
async fn expect_not_kept(shop: &Shop) {
    let retry = shop.post("/charges").key("k").send().await;
    retry
        .expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_1",
            "created_at": "2026-12-01T00:00:00Z",
        }));
    assert_eq!(shop.work.runs(), 0, "it ran although its outcome was known");
}

async fn expect_late(shop: &Shop) {
    let late = shop.post("/charges").key("k").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    let late = late.json();
    assert_eq!(late["outcome"], "completed");
    assert_eq!(late["original_status"], 201);
    assert_eq!(late["resource_id"], "ch_1");
    assert_eq!(shop.work.runs(), 0, "it ran although its outcome was known");
}

async fn a_completed_record_is_in_the_archive_already(place: Place) {
    let shop = place.backend.shop().open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let row = place.backend.tombstone("k").await;
    let row = row.expect("its outcome is archived");
    assert_eq!(row.status, 201);
    assert_eq!(row.resource_id.expect("an id").as_str(), "ch_1");
    let record = place.backend.record("k").await.expect("a record");
    assert_eq!(row.expired_at, record.expires_at);
    assert_eq!(row.created_at, record.created_at);
    assert_eq!(row.fingerprint, record.fingerprint);
    assert_eq!(shop.archive.calls(Verb::Insert), 1);
    assert_eq!(shop.archive.calls(Verb::Lookup), 0, "the key may be young");
}

async fn a_process_that_dies_before_the_archive_leaves_an_attempt_to_take_over(place: Place) {
    let (_dead, _first) = dies_before_the_archive(&place).await;
    place.backend.clock.advance(LEASE);
    let shop = place.backend.shop().open().await;
    let retry = shop.post("/charges").key("k").send().await;
    retry.expect_run(1);
    assert_eq!(retry.json()["attempt"], 2, "the handler is told");
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&retry);
}

async fn a_process_that_dies_after_the_archive_never_runs_again(place: Place) {
    let (dead, _first) = dies_after_the_archive(&place).await;
    assert_eq!(dead.work.runs(), 1);
    let shop = place.backend.shop().open().await;
    let early = shop.post("/charges").key("k").send().await;
    early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    place.backend.clock.advance(LEASE);
    expect_not_kept(&shop).await;
    assert_eq!(shop.archive.calls(Verb::Lookup), 1);
    // By now the record tells.
    expect_not_kept(&shop).await;
    assert_eq!(shop.archive.calls(Verb::Lookup), 1);
    let reuse = shop.post("/charges").key("k").body("other").send().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
}

async fn a_process_that_dies_after_the_archive_is_told_where_nothing_may_run_again(place: Place) {
    let (_dead, _first) = dies_after_the_archive(&place).await;
    place.backend.clock.advance(LEASE);
    let shop = place
        .backend
        .shop()
        .policy(|policy| policy.abandoned(Abandoned::Refuse))
        .open()
        .await;
    expect_not_kept(&shop).await;
    shop.archive.next(Verb::Lookup, Fault::DOWN);
    let down = shop.post("/charges").key("k").send().await;
    down.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
}

async fn a_process_that_dies_after_the_archive_is_told_past_the_ttl(place: Place) {
    let (_dead, _first) = dies_after_the_archive(&place).await;
    place.backend.clock.advance(DAY);
    let shop = place.backend.shop().open().await;
    expect_late(&shop).await;
}

async fn a_process_that_dies_after_the_archive_is_told_after_a_sweep(place: Place) {
    let (_dead, _first) = dies_after_the_archive(&place).await;
    place.backend.clock.advance(DAY);
    assert_eq!(place.backend.sweep().await, 1, "records left in progress");
    assert_eq!(place.backend.record("k").await, None, "it is swept");
    let shop = place
        .backend
        .shop()
        .policy(|policy| policy.archive_lookup(ArchiveLookup::AllKeys))
        .open()
        .await;
    expect_late(&shop).await;
}

async fn a_process_that_dies_after_the_record_leaves_a_replay(place: Place) {
    let (_dead, first) = dies_at(&place, |shop| shop.store.hold_after(Verb::Complete)).await;
    assert!(!first.is_answered());
    let shop = place.backend.shop().open().await;
    let repeat = shop.post("/charges").key("k").send().await;
    assert!(repeat.is_marked_as_replay());
    assert_eq!(repeat.json()["id"], "ch_1");
    assert_eq!(shop.work.runs(), 0);
}

async fn while_the_archive_is_down_the_first_client_has_its_answer_and_the_key_stays_in_flight(
    place: Place,
) {
    let shop = place.backend.shop().open().await;
    shop.archive.always(Verb::Insert, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    let record = place.backend.record("k").await.expect("a record");
    assert!(
        record.has_live_lease(place.backend.clock.now()),
        "it was completed without the archive"
    );
    let early = shop.post("/charges").key("k").send().await;
    early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    shop.archive.heal(Verb::Insert);
    shop.store.answered(Verb::Complete, 1).await;
    let elsewhere = place.backend.shop().open().await;
    let repeat = elsewhere.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert!(place.backend.tombstone("k").await.is_some());
}

async fn an_archive_that_answers_too_late_ends_with_the_right_outcome(place: Place) {
    let shop = place
        .backend
        .shop()
        .policy(|policy| policy.store_timeout(Duration::from_millis(50)))
        .open()
        .await;
    shop.archive.next(Verb::Insert, Fault::HangsAfter);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 1).await;
    let elsewhere = place.backend.shop().open().await;
    let repeat = elsewhere.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

async fn a_status_that_is_not_kept_leaves_nothing(place: Place) {
    let busy = Work::answering(async |_| StatusCode::TOO_MANY_REQUESTS.into_response());
    let shop = place.backend.shop().work(busy).open().await;
    for _ in 0..2 {
        let answer = shop.post("/charges").key("k").send().await;
        assert_eq!(answer.status, 429);
    }
    assert_eq!(shop.work.runs(), 2);
    assert_eq!(shop.archive.calls(Verb::Insert), 0);
    assert_eq!(place.backend.tombstone("k").await, None);
}

/// 1. The answer to a claim is lost; the route runs without protection.
/// 2. The claim has landed: its outcome is archived and recorded.
async fn a_completion_whose_claim_was_not_answered_is_archived_too(place: Place) {
    let shop = place
        .backend
        .shop()
        .policy(|policy| policy.store_down(StoreDown::Open))
        .open()
        .await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 1).await;
    let row = place.backend.tombstone("k").await;
    assert_eq!(row.expect("its outcome is archived").status, 201);
    let elsewhere = place.backend.shop().open().await;
    let repeat = elsewhere.post("/charges").key("k").send().await;
    assert!(repeat.is_marked_as_replay());
}

async fn a_settled_outcome_is_archived_before_it_is_recorded(place: Place) {
    let (_dead, _first) = dies_before_the_archive(&place).await;
    let shop = place.backend.shop().open().await;
    let key = scoped("alice", "k");
    let settle = async || {
        let settled = shop.layer.settle(key, StatusCode::ACCEPTED, None);
        settled.await.expect("store and archive answer")
    };
    assert!(!settle().await, "it is still running");
    assert_eq!(place.backend.tombstone("k").await, None);
    place.backend.clock.advance(LEASE);
    assert!(settle().await, "it lapsed without an outcome");
    let row = place.backend.tombstone("k").await;
    assert_eq!(row.expect("its outcome is archived").status, 202);
    assert!(!settle().await, "an outcome was settled twice");
}
