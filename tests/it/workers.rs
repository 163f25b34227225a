//! Queue workers: a message is claimed, done, given back or left, in this
//! process and in others.

use std::{sync::Arc, time::Duration};

use axum_idempotency::{
    Abandoned, KeyError, Principal, PrincipalSource, ResourceId, Scope, ScopedKey,
    store::StoreErrorKind,
    worker::{Delivery, Done, Job, Worker, WorkerBuilder, WorkerError},
};
use http::Method;

use crate::support::{Backend, Fault, FaultyStore, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    a_message_is_done_once,
    a_message_under_way_is_in_flight_for_every_other_delivery,
    a_released_message_runs_again_as_its_first_attempt,
    a_message_that_was_left_runs_again_as_its_second_attempt,
    an_attempt_that_was_taken_over_neither_completes_nor_releases,
    where_nothing_may_run_twice_a_message_that_was_left_is_unknown,
    a_late_delivery_is_told_that_it_is_done_before_and_after_a_sweep,
    a_late_delivery_of_a_message_without_an_outcome_runs_as_another_attempt,
    what_was_learned_later_of_a_message_is_told,
    queues_do_not_share_their_messages,
    a_clients_key_never_meets_a_message,
    while_the_store_is_down_nothing_is_claimed_and_nothing_is_left_behind,
    while_the_archive_is_down_nothing_is_claimed_and_nothing_is_left_behind,
    a_claim_whose_caller_has_gone_is_given_back,
    a_completion_that_fails_is_repeated_in_the_background,
    many_deliveries_at_once_are_one_job,
    a_job_is_still_the_workers_as_long_as_its_renewal_says_so,
);

on_tokio_time!(
    the_lease_of_a_job_is_renewed_until_the_longest_is_over,
    shutdown_waits_for_jobs,
);

pub(crate) fn worker_with(
    backend: &Backend,
    settings: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> (Worker, FaultyStore) {
    let store = backend.process();
    let worker = Worker::builder("payouts", store.clone()).archive(backend.archive());
    let worker = settings(worker).build().expect("settings that work");
    (worker, store)
}

/// A worker as another process has it.
pub(crate) fn worker(backend: &Backend) -> Worker {
    worker_with(backend, |worker| worker).0
}

pub(crate) async fn claimed(worker: &Worker, id: &str) -> Job {
    match worker.claim(id).await.expect("the store answers") {
        Delivery::Claimed(job) => job,
        other => panic!("{id} is to be done, and is {other:?}"),
    }
}

pub(crate) async fn done(worker: &Worker, id: &str) -> Done {
    match worker.claim(id).await.expect("the store answers") {
        Delivery::Done(done) => done,
        other => panic!("{id} has been done, and is {other:?}"),
    }
}

pub(crate) async fn is_in_flight(worker: &Worker, id: &str) {
    match worker.claim(id).await.expect("the store answers") {
        Delivery::InFlight { retry_after } => {
            let allowed = Duration::from_secs(1)..=LEASE;
            assert!(
                allowed.contains(&retry_after),
                "retry after {retry_after:?}"
            );
        }
        other => panic!("{id} is under way, and is {other:?}"),
    }
}

fn payout() -> Option<ResourceId> {
    ResourceId::new("po_1")
}

/// The name under which a message of a queue is stored.
fn name_of(queue: &str, id: &str) -> ScopedKey {
    let id = axum_idempotency::IdempotencyKey::new(id).expect("a test's id is an id");
    let queue = Principal::queue(queue);
    ScopedKey::derive(None, Scope::Principal, &queue, (&Method::POST, "/"), &id)
}

async fn a_message_is_done_once(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    let job = claimed(&one, "m").await;
    assert_eq!(job.idempotency().attempt(), 1);
    assert_eq!(job.idempotency().scoped_key(), name_of("payouts", "m"));
    job.complete(payout()).await.expect("it is recorded");
    for worker in [&one, &other] {
        let done = done(worker, "m").await;
        assert_eq!(done.resource_id, payout(), "what it made is not told");
        assert!(done.created_at.is_some(), "when it was claimed is not told");
    }
}

async fn a_message_under_way_is_in_flight_for_every_other_delivery(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    let job = claimed(&one, "m").await;
    is_in_flight(&one, "m").await;
    is_in_flight(&other, "m").await;
    let another = claimed(&other, "another").await;
    another.complete(None).await.expect("it is recorded");
    job.complete(None).await.expect("it is recorded");
    done(&other, "m").await;
}

async fn a_released_message_runs_again_as_its_first_attempt(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    assert!(
        claimed(&one, "m").await.release().await,
        "it was not given back"
    );
    let again = claimed(&other, "m").await;
    assert_eq!(again.idempotency().attempt(), 1, "nothing had been done");
}

async fn a_message_that_was_left_runs_again_as_its_second_attempt(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    let key = {
        let job = claimed(&one, "m").await;
        job.idempotency().derive("bank")
    };
    is_in_flight(&other, "m").await;
    backend.clock.advance(LEASE);
    let again = claimed(&other, "m").await;
    assert_eq!(again.idempotency().attempt(), 2, "it may have been done");
    assert_eq!(
        again.idempotency().derive("bank"),
        key,
        "the bank's key is another"
    );
    // Given back, it stays the second: that something may have been done is not
    // forgotten.
    assert!(again.release().await);
    assert_eq!(claimed(&one, "m").await.idempotency().attempt(), 3);
}

async fn an_attempt_that_was_taken_over_neither_completes_nor_releases(backend: Backend) {
    let (one, store) = worker_with(&backend, |worker| worker);
    let other = worker(&backend);
    let (stale, late) = (claimed(&one, "a").await, claimed(&one, "b").await);
    store.always(Verb::Renew, Fault::Hangs);
    backend.clock.advance(LEASE);
    let winner = claimed(&other, "a").await;
    let _running = claimed(&other, "b").await;
    winner.complete(payout()).await.expect("it is recorded");
    assert_eq!(
        stale.complete(ResourceId::new("po_2")).await,
        Err(WorkerError::Superseded),
        "a stale attempt's outcome stands"
    );
    assert_eq!(done(&other, "a").await.resource_id, payout());
    assert!(
        !late.release().await,
        "a stale attempt gave another's claim back"
    );
    is_in_flight(&other, "b").await;
}

async fn where_nothing_may_run_twice_a_message_that_was_left_is_unknown(backend: Backend) {
    let refuse = |worker: WorkerBuilder| worker.abandoned(Abandoned::Refuse);
    let (worker, _) = worker_with(&backend, refuse);
    drop(claimed(&worker, "m").await);
    backend.clock.advance(LEASE);
    for day in 0..2 {
        let delivery = worker.claim("m").await.expect("the store answers");
        assert!(
            matches!(
                delivery,
                Delivery::Unknown {
                    created_at: Some(_)
                }
            ),
            "day {day}: {delivery:?}"
        );
        backend.clock.advance(DAY);
    }
    assert_eq!(backend.sweep().await, 1);
    let delivery = worker.claim("m").await.expect("the archive answers");
    assert!(
        matches!(delivery, Delivery::Unknown { .. }),
        "after the sweep: {delivery:?}"
    );
}

async fn a_late_delivery_is_told_that_it_is_done_before_and_after_a_sweep(backend: Backend) {
    let worker = worker(&backend);
    claimed(&worker, "m")
        .await
        .complete(payout())
        .await
        .expect("it is recorded");
    backend.clock.advance(DAY);
    assert_eq!(
        done(&worker, "m").await.resource_id,
        payout(),
        "before the sweep"
    );
    backend.sweep().await;
    assert_eq!(
        done(&worker, "m").await.resource_id,
        payout(),
        "after the sweep"
    );
}

async fn a_late_delivery_of_a_message_without_an_outcome_runs_as_another_attempt(backend: Backend) {
    let worker = worker(&backend);
    drop((
        claimed(&worker, "swept").await,
        claimed(&worker, "unswept").await,
    ));
    backend.clock.advance(DAY);
    let unswept = claimed(&worker, "unswept").await;
    assert!(unswept.idempotency().attempt() > 1, "it may have been done");
    assert_eq!(backend.sweep().await, 1);
    let swept = claimed(&worker, "swept").await;
    assert!(swept.idempotency().attempt() > 1, "it may have been done");
}

async fn what_was_learned_later_of_a_message_is_told(backend: Backend) {
    let worker = worker(&backend);
    drop(claimed(&worker, "m").await);
    backend.clock.advance(LEASE);
    let settled = worker
        .layer()
        .settle(name_of("payouts", "m"), http::StatusCode::OK, payout());
    assert!(
        settled.await.expect("the store answers"),
        "it was not settled"
    );
    assert_eq!(done(&worker, "m").await.resource_id, payout());
}

async fn queues_do_not_share_their_messages(backend: Backend) {
    let payouts = worker(&backend);
    let refunds = Worker::builder("refunds", backend.process())
        .archive(backend.archive())
        .build()
        .expect("settings that work");
    claimed(&payouts, "m")
        .await
        .complete(None)
        .await
        .expect("it is recorded");
    claimed(&refunds, "m")
        .await
        .complete(None)
        .await
        .expect("it is recorded");
}

async fn a_clients_key_never_meets_a_message(backend: Backend) {
    let worker = Worker::builder("alice", backend.process())
        .archive(backend.archive())
        .build()
        .expect("settings that work");
    let _job = claimed(&worker, "m").await;
    let principal = || PrincipalSource::from_fn(|_| Some(Principal::new("alice")));
    let shop = backend.shop().principal(principal()).open().await;
    shop.post("/charges").key("m").send().await.expect_run(1);
}

async fn while_the_store_is_down_nothing_is_claimed_and_nothing_is_left_behind(backend: Backend) {
    let (worker, store) = worker_with(&backend, |worker| worker);
    // It lands, and nobody hears of it.
    store.next(Verb::Claim, Fault::AnswerLost);
    let refused = worker.claim("m").await.map(drop);
    assert_eq!(refused, Err(WorkerError::Unavailable));
    store.answered(Verb::Release, 1).await;
    let job = claimed(&worker, "m").await;
    assert_eq!(job.idempotency().attempt(), 1, "a claim was left behind");
    store.next(Verb::Claim, Fault::Fails(StoreErrorKind::Full));
    let refused = worker.claim("other").await.map(drop);
    assert_eq!(refused, Err(WorkerError::Full));
}

async fn while_the_archive_is_down_nothing_is_claimed_and_nothing_is_left_behind(backend: Backend) {
    let (store, archive) = (backend.process(), backend.archive());
    let worker = Worker::builder("payouts", store).archive(archive.clone());
    let worker = worker.build().expect("settings that work");
    archive.next(Verb::Lookup, Fault::DOWN);
    let refused = worker.claim("m").await.map(drop);
    assert_eq!(refused, Err(WorkerError::Unavailable));
    let job = claimed(&worker, "m").await;
    assert_eq!(job.idempotency().attempt(), 1, "a claim was left behind");
}

async fn a_claim_whose_caller_has_gone_is_given_back(backend: Backend) {
    let (one, store) = worker_with(&backend, |worker| worker);
    let answer = store.hold_after(Verb::Claim);
    let caller = tokio::spawn({
        let one = one.clone();
        async move { one.claim("m").await.map(drop) }
    });
    answer.reached().await;
    caller.abort();
    answer.open();
    store.answered(Verb::Release, 1).await;
    let job = claimed(&worker(&backend), "m").await;
    assert_eq!(job.idempotency().attempt(), 1, "nothing had been done");
}

async fn a_completion_that_fails_is_repeated_in_the_background(backend: Backend) {
    let (one, store) = worker_with(&backend, |worker| worker);
    store.next(Verb::Complete, Fault::DOWN);
    claimed(&one, "m")
        .await
        .complete(payout())
        .await
        .expect("it is recorded");
    store.answered(Verb::Complete, 2).await;
    assert_eq!(done(&worker(&backend), "m").await.resource_id, payout());
}

async fn many_deliveries_at_once_are_one_job(backend: Backend) {
    let workers = [worker(&backend), worker(&backend)].map(Arc::new);
    let mut deliveries = tokio::task::JoinSet::new();
    for number in 0..32 {
        let worker = Arc::clone(&workers[number % workers.len()]);
        deliveries.spawn(async move { worker.claim("m").await.expect("the store answers") });
    }
    let deliveries = deliveries.join_all().await;
    let jobs = deliveries
        .iter()
        .filter(|one| matches!(one, Delivery::Claimed(_)));
    assert_eq!(jobs.count(), 1, "{deliveries:?}");
}

async fn a_job_is_still_the_workers_as_long_as_its_renewal_says_so(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    let job = claimed(&one, "m").await;
    backend.clock.advance(LEASE / 2);
    assert!(job.renew().await.expect("the store answers"), "it was lost");
    backend.clock.advance(LEASE / 2);
    is_in_flight(&other, "m").await;
    backend.clock.advance(LEASE);
    let _winner = claimed(&other, "m").await;
    assert!(
        !job.renew().await.expect("the store answers"),
        "it is another's"
    );
    assert!(job.idempotency().is_lease_lost());
}

async fn the_lease_of_a_job_is_renewed_until_the_longest_is_over(backend: Backend) {
    let longest = |worker: WorkerBuilder| worker.max_lease(4 * LEASE);
    let ((one, _), other) = (worker_with(&backend, longest), worker(&backend));
    let job = claimed(&one, "m").await;
    tokio::time::sleep(3 * LEASE).await;
    is_in_flight(&other, "m").await;
    assert!(
        job.idempotency().lease_left() > LEASE / 2,
        "it is not renewed"
    );
    job.idempotency().lease_lost().await;
    assert_eq!(job.idempotency().lease_left(), Duration::ZERO);
    let _winner = claimed(&other, "m").await;
}

async fn shutdown_waits_for_jobs(backend: Backend) {
    let worker = worker(&backend);
    let job = claimed(&worker, "m").await;
    let layer = worker.layer().clone();
    let shutdown = tokio::spawn(async move { layer.shutdown(DAY).await });
    tokio::time::sleep(LEASE).await;
    assert!(!shutdown.is_finished(), "it did not wait");
    job.complete(None).await.expect("it is recorded");
    let ended = shutdown.await.expect("no panic");
    ended.expect("nothing runs any more");
}

#[tokio::test]
async fn an_id_that_cannot_be_used_is_refused() {
    let worker = worker(&Backend::memory());
    for (id, reason) in [
        (String::new(), KeyError::Empty),
        ("x".repeat(256), KeyError::TooLong),
    ] {
        let refused = worker.claim(&id).await.map(drop);
        assert_eq!(refused, Err(WorkerError::Id(reason)));
    }
}

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);
