//! A claim that is won before the archive has answered: until then nothing may
//! be concluded from it.

use std::time::Duration;

use axum_idempotency::{InFlight, RecordState, Retry};

use crate::support::{Backend, Fault, Gate, PATIENCE, Shop, Started, Verb, on_every_backend};

on_every_backend!(
    another_request_meets_a_speculative_claim_of_another_process_and_is_not_accused,
    another_request_meets_a_speculative_claim_of_its_own_process_and_is_not_accused,
    another_request_that_waits_is_judged_when_the_archive_has_answered,
    a_repeat_of_a_late_retry_is_told_that_it_is_late,
    a_speculative_claim_that_lapsed_belongs_to_whoever_comes_next,
    a_speculative_claim_that_expired_is_no_evidence,
    the_mark_is_taken_away_before_the_handler_runs,
    when_the_confirmation_fails_nothing_runs,
);

/// A request whose key is old, held at the archive.
async fn at_the_archive(backend: &Backend) -> (Shop, String, Gate, Started) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(2 * DAY);
    let lookup = shop.archive.hold_before(Verb::Lookup);
    let first = shop.post("/charges").key(&key).start();
    lookup.reached().await;
    (shop, key, lookup, first)
}

/// 1. A has claimed the key; the archive has not answered yet, so A may still
///    turn out to be the late retry of something else.
/// 2. B sends another request with the key: in progress, never "reused".
/// 3. The archive has answered; the handler runs.
/// 4. B's request is a reuse.
async fn another_request_meets_a_speculative_claim_of_another_process_and_is_not_accused(
    backend: Backend,
) {
    let (a, key, lookup, first) = at_the_archive(&backend).await;
    let b = backend.shop().open().await;
    let early = b.post("/charges").key(&key).body("other").send().await;
    early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    let handler = a.work.hold();
    lookup.open();
    handler.reached().await;
    let reuse = b.post("/charges").key(&key).body("other").send().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    handler.open();
    first.answer().await.expect_run(1);
    assert_eq!(b.work.runs(), 0);
}

async fn another_request_meets_a_speculative_claim_of_its_own_process_and_is_not_accused(
    backend: Backend,
) {
    let (shop, key, lookup, first) = at_the_archive(&backend).await;
    let early = shop.post("/charges").key(&key).body("other").send().await;
    early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    let handler = shop.work.hold();
    lookup.open();
    handler.reached().await;
    let reuse = shop.post("/charges").key(&key).body("other").send().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    handler.open();
    first.answer().await.expect_run(1);
}

async fn another_request_that_waits_is_judged_when_the_archive_has_answered(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .open()
        .await;
    let key = backend.ulid_made_before(2 * DAY);
    let lookup = shop.archive.hold_before(Verb::Lookup);
    let handler = shop.work.hold();
    let first = shop.post("/charges").key(&key).start();
    lookup.reached().await;
    let other = shop.post("/charges").key(&key).body("other").start();
    tokio::task::yield_now().await;
    lookup.open();
    let other = other.answer().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    handler.open();
    first.answer().await.expect_run(1);
}

/// 1. The key is in the archive. Two late retries come, the second while the
///    archive is answering the first.
/// 2. The second is not told "reused" or replayed: it asks for itself.
async fn a_repeat_of_a_late_retry_is_told_that_it_is_late(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .open()
        .await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    backend.sweep().await;
    let lookup = shop.archive.hold_before(Verb::Lookup);
    let one = shop.post("/charges").key(&key).start();
    lookup.reached().await;
    let two = shop.post("/charges").key(&key).body("other").start();
    tokio::task::yield_now().await;
    lookup.open();
    for (late, is_same) in [(one, true), (two, false)] {
        let late = late.answer().await;
        late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
        assert_eq!(late.json()["same_request"], is_same);
    }
    assert_eq!(shop.work.runs(), 1, "a late retry ran again");
}

/// 1. A has claimed the key and is stuck at the archive; its lease lapses.
/// 2. B sends another request with the key. Nothing ran under A's claim, so B
///    is neither a reuse nor a second attempt.
/// 3. The archive answers A: its claim is gone, and nothing runs there.
async fn a_speculative_claim_that_lapsed_belongs_to_whoever_comes_next(backend: Backend) {
    let (a, key, lookup, first) = at_the_archive(&backend).await;
    a.loses_its_leases();
    backend.clock.advance(Duration::from_secs(30));
    let b = backend.shop().open().await;
    let next = b.post("/charges").key(&key).body("other").send().await;
    next.expect_run(1);
    assert_eq!(next.json()["attempt"], 1, "nothing had run before");
    a.store.heal(Verb::Renew);
    lookup.open();
    let first = first.answer().await;
    first.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    assert_eq!(a.work.runs(), 0, "it ran although its claim was gone");
    let again = a.post("/charges").key(&key).send().await;
    again.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
}

/// Nothing ran under it, so the archive must not say that something may have.
async fn a_speculative_claim_that_expired_is_no_evidence(backend: Backend) {
    let (_a, key, _lookup, _first) = at_the_archive(&backend).await;
    backend.clock.advance(DAY);
    backend.sweep().await;
    assert_eq!(backend.record(&key).await, None, "it is swept");
    assert_eq!(backend.tombstone(&key).await, None, "it left a tombstone");
    let b = backend.shop().open().await;
    b.post("/charges").key(&key).send().await.expect_run(1);
}

async fn the_mark_is_taken_away_before_the_handler_runs(backend: Backend) {
    let (shop, key, lookup, first) = at_the_archive(&backend).await;
    let is_speculative = async || {
        let record = backend.record(&key).await.expect("the key is claimed");
        matches!(
            record.state,
            RecordState::InProgress {
                speculative: true,
                ..
            }
        )
    };
    assert!(
        is_speculative().await,
        "a claim is not marked before its lookup"
    );
    let handler = shop.work.hold();
    lookup.open();
    handler.reached().await;
    assert!(
        !is_speculative().await,
        "a handler runs under a speculative claim"
    );
    handler.open();
    first.answer().await.expect_run(1);
}

/// The handler would run under a claim that others may take as never used.
async fn when_the_confirmation_fails_nothing_runs(backend: Backend) {
    let (shop, key, lookup, first) = at_the_archive(&backend).await;
    shop.store.always(Verb::Renew, Fault::DOWN);
    lookup.open();
    let first = first.answer().await;
    first.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 0, "it ran under a speculative claim");
    assert_eq!(
        backend.record(&key).await,
        None,
        "the claim was not given back"
    );
    shop.store.heal(Verb::Renew);
    shop.post("/charges").key(&key).send().await.expect_run(1);
}

const DAY: Duration = Duration::from_hours(24);
