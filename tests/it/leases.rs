//! Leases of running handlers: renewed together while they run, and their loss
//! is told.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::Retry;
use tokio::time::sleep;

use crate::support::{Backend, Fault, Gate, Logs, Verb, Work, on_tokio_time};

on_tokio_time!(
    a_lease_is_renewed_for_as_long_as_the_handler_runs,
    all_leases_of_a_process_are_renewed_in_one_call,
    leases_that_soon_are_due_go_with_those_that_are,
    a_handler_is_told_that_its_lease_could_not_be_renewed,
    a_handler_is_told_that_the_store_was_too_slow_to_renew_its_lease,
    a_store_that_panics_once_does_not_end_all_renewals,
    a_lease_that_ends_with_its_completion_is_not_logged_as_lost,
    after_a_slow_claim_the_lease_is_renewed_before_the_handler_starts,
    after_a_quick_claim_nothing_has_to_be_renewed,
    after_a_claim_that_was_too_slow_nothing_runs,
    after_a_slow_claim_that_cannot_be_renewed_nothing_runs,
    a_claim_that_expired_before_its_handler_started_leaves_nothing,
    a_handler_is_told_that_another_attempt_has_taken_over,
);

/// A handler that runs for `minutes` and then charges.
fn running_for(minutes: u64) -> Work {
    Work::answering(move |seen| async move {
        sleep(Duration::from_mins(minutes)).await;
        seen.charge()
    })
}

/// The handler outlives its first lease ten times over; nobody takes over.
async fn a_lease_is_renewed_for_as_long_as_the_handler_runs(backend: Backend) {
    let slow = backend.shop().work(running_for(5)).in_memory();
    let other = backend.shop().in_memory();
    let first = slow.post("/charges").key("k").start();
    slow.work.begun(1).await;
    for _ in 0..29 {
        sleep(Duration::from_secs(10)).await;
        let repeat = other.post("/charges").key("k").send().await;
        repeat
            .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
            .with_retry_after_up_to(30);
    }
    let first = first.answer().await;
    first.expect_run(1);
    let repeat = other.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(
        other.work.runs(),
        0,
        "a lease was lost while its handler ran"
    );
}

async fn all_leases_of_a_process_are_renewed_in_one_call(backend: Backend) {
    let shop = backend.shop().work(running_for(1)).in_memory();
    let asks: Vec<_> = (0..50)
        .map(|key| shop.post("/charges").key(&format!("k-{key}")).start())
        .collect();
    shop.work.begun(50).await;
    shop.store.answered(Verb::Renew, 1).await;
    let renewed: Vec<_> = shop.store.renewals().iter().map(Vec::len).collect();
    assert_eq!(renewed, [50], "the leases were not renewed together");
    for ask in asks {
        assert_eq!(ask.answer().await.status, 201);
    }
    let left = shop.store.calls(Verb::Renew);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(
        shop.store.calls(Verb::Renew),
        left,
        "ended leases are renewed"
    );
}

async fn leases_that_soon_are_due_go_with_those_that_are(backend: Backend) {
    let shop = backend.shop().work(running_for(1)).in_memory();
    let early = shop.post("/charges").key("early").start();
    shop.work.begun(1).await;
    sleep(Duration::from_secs(4)).await;
    let late = shop.post("/charges").key("late").start();
    shop.work.begun(2).await;
    shop.store.answered(Verb::Renew, 1).await;
    assert_eq!(
        shop.store.renewals()[0].len(),
        2,
        "a second call was needed"
    );
    early.answer().await.expect_run(1);
    late.answer().await.expect_run(2);
}

/// A handler that answers once it is told that its lease is lost.
fn told_when_it_is_lost() -> Work {
    Work::answering(|seen| async move {
        let idempotency = seen.idempotency();
        assert!(!idempotency.is_lease_lost(), "a young lease is lost");
        idempotency.lease_lost().await;
        assert!(idempotency.is_lease_lost());
        "stopped before the irreversible step".into_response()
    })
}

/// 1. The store cannot be reached for longer than the lease.
/// 2. The handler is told, without having to ask the store.
async fn a_handler_is_told_that_its_lease_could_not_be_renewed(backend: Backend) {
    let shop = backend.shop().work(told_when_it_is_lost()).in_memory();
    shop.store.always(Verb::Renew, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "stopped before the irreversible step");
    // Nobody took over, so its outcome counts.
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

async fn a_handler_is_told_that_the_store_was_too_slow_to_renew_its_lease(backend: Backend) {
    let shop = backend.shop().work(told_when_it_is_lost()).in_memory();
    shop.store.always(Verb::Renew, Fault::Hangs);
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "stopped before the irreversible step");
}

/// 1. The store's clock jumps ahead, and A's lease lapses before A renews it.
/// 2. B takes over.
/// 3. A's renewal arrives, and is told that the lease is another's.
async fn a_handler_is_told_that_another_attempt_has_taken_over(backend: Backend) {
    let a = backend.shop().work(told_when_it_is_lost()).in_memory();
    let b = backend.shop().in_memory();
    let first = a.post("/charges").key("k").start();
    a.work.begun(1).await;
    backend.clock.advance(Duration::from_secs(30));
    let winner = b.post("/charges").key("k").send().await;
    winner.expect_run(1);
    first.answer().await.expect_replay_of(&winner);
    assert_eq!(
        a.store.calls(Verb::Renew),
        1,
        "it was not the store that told"
    );
}

/// 1. A call to renew panics.
/// 2. The next handler's lease is renewed all the same.
async fn a_store_that_panics_once_does_not_end_all_renewals(backend: Backend) {
    let shop = backend.shop().work(running_for(1)).in_memory();
    shop.store.next(Verb::Renew, Fault::Panics);
    let first = shop.post("/charges").key("first").start();
    shop.store.begun(Verb::Renew, 1).await;
    sleep(Duration::from_secs(40)).await;
    let second = shop.post("/charges").key("second").start();
    shop.work.begun(2).await;
    sleep(Duration::from_secs(40)).await;
    let other = backend.shop().in_memory();
    let repeat = other.post("/charges").key("second").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    first.answer().await.expect_run(1);
    second.answer().await.expect_run(2);
}

/// 1. The completion has taken effect, and its answer is slow.
/// 2. The lease is due; the store rightly says that nothing is in progress.
/// 3. Nobody has taken over, and the log does not say so.
async fn a_lease_that_ends_with_its_completion_is_not_logged_as_lost(backend: Backend) {
    let logs = Logs::capture();
    let opening = backend
        .shop()
        .policy(|policy| policy.store_timeout(Duration::from_mins(5)));
    let shop = opening.in_memory();
    let complete = shop.store.hold_after(Verb::Complete);
    let first = shop.post("/charges").key("k").start();
    complete.reached().await;
    shop.store.answered(Verb::Renew, 1).await;
    complete.open();
    first.answer().await.expect_run(1);
    assert!(
        !logs.text().contains("lost"),
        "a false alarm: {}",
        logs.text()
    );
}

/// A policy whose store may take long, and whose claims are held on the way
/// back.
fn with_slow_claims(backend: &Backend) -> (crate::support::Shop, Gate) {
    let opening = backend
        .shop()
        .policy(|policy| policy.store_timeout(Duration::from_mins(5)));
    let shop = opening.in_memory();
    let claim = shop.store.hold_after(Verb::Claim);
    (shop, claim)
}

/// 1. The claim takes effect; its answer takes longer than half the lease.
/// 2. The lease is renewed, and only then does the handler start.
async fn after_a_slow_claim_the_lease_is_renewed_before_the_handler_starts(backend: Backend) {
    let (shop, claim) = with_slow_claims(&backend);
    let renewal = Gate::closed();
    shop.store
        .always(Verb::Renew, Fault::HeldBefore(renewal.clone()));
    let first = shop.post("/charges").key("k").start();
    claim.reached().await;
    sleep(Duration::from_secs(16)).await;
    claim.open();
    renewal.reached().await;
    assert_eq!(shop.work.runs(), 0, "the handler started on an old lease");
    renewal.open();
    first.answer().await.expect_run(1);
}

async fn after_a_quick_claim_nothing_has_to_be_renewed(backend: Backend) {
    let (shop, claim) = with_slow_claims(&backend);
    let first = shop.post("/charges").key("k").start();
    claim.reached().await;
    sleep(Duration::from_secs(9)).await;
    claim.open();
    first.answer().await.expect_run(1);
    assert_eq!(shop.store.calls(Verb::Renew), 0, "a call too many");
}

/// 1. A's claim takes effect; its answer takes longer than the whole lease.
/// 2. B takes over, and runs.
/// 3. A's renewal is refused: nothing runs there.
async fn after_a_claim_that_was_too_slow_nothing_runs(backend: Backend) {
    let (a, claim) = with_slow_claims(&backend);
    let b = backend.shop().work(running_for(1)).in_memory();
    let first = a.post("/charges").key("k").start();
    claim.reached().await;
    sleep(Duration::from_secs(31)).await;
    let second = b.post("/charges").key("k").start();
    b.work.begun(1).await;
    claim.open();
    let refused = first.answer().await;
    refused
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(30);
    assert_eq!(a.work.runs(), 0, "it ran twice");
    second.answer().await.expect_run(1);
}

/// 1. The claim takes effect; its answer takes longer than half the lease.
/// 2. The renewal fails again and again.
/// 3. Nothing runs, and the claim is given back.
async fn after_a_slow_claim_that_cannot_be_renewed_nothing_runs(backend: Backend) {
    let (shop, claim) = with_slow_claims(&backend);
    shop.store.always(Verb::Renew, Fault::DOWN);
    let first = shop.post("/charges").key("k").start();
    claim.reached().await;
    sleep(Duration::from_secs(16)).await;
    claim.open();
    let refused = first.answer().await;
    refused
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(shop.work.runs(), 0, "the handler started on an old lease");
    assert_eq!(
        backend.record("k").await,
        None,
        "the claim was not given back"
    );
}

/// 1. The claim takes effect; its answer takes longer than the whole TTL.
/// 2. The renewal is refused, because the record has expired.
/// 3. Nothing ran under it, so nothing may be left of it, least of all for an
///    auditor.
async fn a_claim_that_expired_before_its_handler_started_leaves_nothing(backend: Backend) {
    let ttl = axum_idempotency::Ttl::new(Duration::from_mins(2)).unwrap();
    let shop = backend
        .shop()
        .policy(|policy| policy.ttl(ttl).store_timeout(Duration::from_mins(5)))
        .in_memory();
    shop.store.always(Verb::Renew, Fault::DOWN);
    let claim = shop.store.hold_after(Verb::Claim);
    let first = shop.post("/charges").key("k").start();
    claim.reached().await;
    sleep(Duration::from_secs(121)).await;
    shop.store.heal(Verb::Renew);
    claim.open();
    assert_ne!(
        first.answer().await.status,
        201,
        "it ran on an expired record"
    );
    assert_eq!(shop.work.runs(), 0, "it ran on an expired record");
    assert_eq!(
        backend.record("k").await,
        None,
        "a claim that never ran is left"
    );
}
