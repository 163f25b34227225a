//! What a job may go through: sweeps, expiry, other threads, and no end at all.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::Duration,
};

use axum_idempotency::{
    FoundState, ResourceId, Ttl,
    worker::{Delivery, Worker, WorkerBuilder, WorkerError},
};

use crate::support::{Backend, Fault, Verb, on_every_backend, on_tokio_time, ulid_of};
use crate::workers::{claimed, done, is_in_flight, worker, worker_with};

on_every_backend!(
    a_sweep_before_the_claim_of_a_late_message_hides_nothing,
    a_sweep_after_the_claim_of_a_late_message_without_an_outcome_hides_nothing,
    a_job_that_ends_after_its_record_has_expired_is_not_lost_track_of,
    a_job_may_end_outside_its_runtime,
    a_job_that_is_dropped_outside_its_runtime_runs_again,
    workers_with_different_lifetimes_know_each_others_messages,
    a_lease_that_is_renewed_while_it_is_looked_up_has_not_lapsed,
);

on_tokio_time!(
    a_job_that_hangs_is_taken_over_in_its_own_process,
    a_job_that_hangs_does_not_end_that_of_its_successor,
    a_shutdown_that_does_not_wait_long_enough_says_so,
);

/// 1. The record has expired; a redelivery is on its way to the store.
/// 2. The sweep moves the record into the archive.
/// 3. The claim is fresh, and the archive knows better.
async fn a_sweep_before_the_claim_of_a_late_message_hides_nothing(backend: Backend) {
    let (late, store) = worker_with(&backend, |worker| worker);
    let job = claimed(&worker(&backend), "m").await;
    job.complete(None).await.expect("it is recorded");
    backend.clock.advance(DAY);
    let claiming = store.hold_before(Verb::Claim);
    let delivery = tokio::spawn(async move { done(&late, "m").await });
    claiming.reached().await;
    assert_eq!(backend.sweep().await, 1);
    claiming.open();
    delivery.await.expect("it is known to be done");
}

/// The same where the claim has met the record, which has no outcome.
async fn a_sweep_after_the_claim_of_a_late_message_without_an_outcome_hides_nothing(
    backend: Backend,
) {
    let (late, store) = worker_with(&backend, |worker| worker);
    drop(claimed(&worker(&backend), "m").await);
    backend.clock.advance(DAY);
    let claiming = store.hold_after(Verb::Claim);
    let delivery = tokio::spawn(async move { claimed(&late, "m").await });
    claiming.reached().await;
    assert_eq!(backend.sweep().await, 1);
    claiming.open();
    let job = delivery.await.expect("it is to be done");
    assert!(job.idempotency().attempt() > 1, "it may have been done");
    job.complete(None).await.expect("it is recorded");
    done(&worker(&backend), "m").await;
}

/// Whoever is told that an outcome stands can rely on it, and who is not will
/// see the message again.
async fn a_job_that_ends_after_its_record_has_expired_is_not_lost_track_of(backend: Backend) {
    let other = worker(&backend);
    for is_swept in [false, true] {
        let (slow, store) = worker_with(&backend, |worker| worker);
        let id = format!("m-{is_swept}");
        let job = claimed(&slow, &id).await;
        store.always(Verb::Renew, Fault::Hangs);
        backend.clock.advance(DAY);
        if is_swept {
            assert!(backend.sweep().await > 0, "nothing was swept");
        }
        let told = job.complete(ResourceId::new("po_1")).await;
        store.heal(Verb::Renew);
        match told {
            Ok(()) => drop(done(&other, &id).await),
            Err(WorkerError::Superseded) => {
                let again = other.claim(&id).await.expect("the store answers");
                let is_told = match &again {
                    Delivery::Claimed(job) => job.idempotency().attempt() > 1,
                    // Where outcomes are archived first it is known after all.
                    Delivery::Done(_) => backend.archives_first(),
                    _ => false,
                };
                assert!(is_told, "swept {is_swept}: {again:?}");
                if let Delivery::Claimed(again) = again {
                    again.complete(None).await.expect("it is recorded");
                }
                done(&other, &id).await;
            }
            Err(other) => panic!("swept {is_swept}: {other:?}"),
        }
        backend.sweep().await;
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread, which no runtime knows of.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// What a thread of the worker's own comes to, while the runtime goes on.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = tokio::sync::oneshot::channel();
    let thread = thread::spawn(move || drop(done.send(work())));
    let output = is_done.await.expect("the thread does not panic");
    thread.join().expect("the thread does not panic");
    output
}

async fn a_job_may_end_outside_its_runtime(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    let (job, given_back) = (claimed(&one, "m").await, claimed(&one, "n").await);
    let completed = elsewhere(move || wait_for(job.complete(None))).await;
    completed.expect("it is recorded");
    done(&other, "m").await;
    assert!(elsewhere(move || wait_for(given_back.release())).await);
    let again = claimed(&other, "n").await;
    assert_eq!(again.idempotency().attempt(), 1, "nothing had been done");
}

async fn a_job_that_is_dropped_outside_its_runtime_runs_again(backend: Backend) {
    let (one, other) = (worker(&backend), worker(&backend));
    let job = claimed(&one, "m").await;
    elsewhere(move || drop(job)).await;
    is_in_flight(&one, "m").await;
    backend.clock.advance(LEASE);
    let again = claimed(&other, "m").await;
    assert_eq!(again.idempotency().attempt(), 2, "it may have been done");
}

/// In one process and in two, whether or not an id tells its age.
async fn workers_with_different_lifetimes_know_each_others_messages(backend: Backend) {
    let lasting = |ttl: Duration| {
        let ttl = Ttl::new(ttl).expect("a lifetime");
        move |worker: WorkerBuilder| worker.ttl(ttl)
    };
    let (brief, store) = worker_with(&backend, lasting(DAY));
    let beside = Worker::builder("payouts", store).archive(backend.archive());
    let beside = lasting(14 * DAY)(beside)
        .build()
        .expect("settings that work");
    let (apart, _) = worker_with(&backend, lasting(14 * DAY));
    let ids = [
        ulid_of(axum_idempotency::Clock::now(&backend.clock)),
        "m".to_owned(),
    ];
    for id in &ids {
        let job = claimed(&brief, id).await;
        job.complete(None).await.expect("it is recorded");
    }
    let longer = ulid_of(axum_idempotency::Clock::now(&backend.clock));
    let job = claimed(&apart, &longer).await;
    job.complete(None).await.expect("it is recorded");
    backend.clock.advance(2 * DAY);
    for is_swept in [false, true] {
        if is_swept {
            assert_eq!(backend.sweep().await, 2);
        }
        for worker in [&brief, &beside, &apart] {
            for id in ids.iter().chain([&longer]) {
                done(worker, id).await;
            }
        }
    }
}

/// 1. Somebody looks the message up, and has read its record.
/// 2. The lease is renewed, and time passes.
/// 3. They look at the clock: the lease that they read is over, and not lapsed.
async fn a_lease_that_is_renewed_while_it_is_looked_up_has_not_lapsed(backend: Backend) {
    let (one, (other, store)) = (worker(&backend), worker_with(&backend, |worker| worker));
    let job = claimed(&one, "m").await;
    let key = job.idempotency().scoped_key();
    let reading = store.hold_after(Verb::Get);
    let finding = tokio::spawn(async move { other.layer().find(key).await });
    reading.reached().await;
    for _ in 0..2 {
        backend.clock.advance(LEASE * 2 / 3);
        assert!(job.renew().await.expect("the store answers"), "it was lost");
    }
    reading.open();
    let found = finding.await.expect("it does not panic");
    let found = found.expect("store and archive answer");
    let state = found.map(|found| found.state);
    assert_eq!(state, Some(FoundState::InProgress));
}

/// Its worker waits for something that does not happen, and never drops it.
async fn a_job_that_hangs_is_taken_over_in_its_own_process(backend: Backend) {
    let (worker, _) = worker_with(&backend, |worker| worker.max_lease(4 * LEASE));
    let hanging = claimed(&worker, "m").await;
    is_in_flight(&worker, "m").await;
    hanging.idempotency().lease_lost().await;
    let winner = claimed(&worker, "m").await;
    assert_eq!(winner.idempotency().attempt(), 2, "it may have been done");
    is_in_flight(&worker, "m").await;
    winner.complete(None).await.expect("it is recorded");
    done(&worker, "m").await;
    let told = hanging.complete(None).await;
    assert_eq!(told, Err(WorkerError::Superseded));
}

async fn a_job_that_hangs_does_not_end_that_of_its_successor(backend: Backend) {
    let (worker, _) = worker_with(&backend, |worker| worker.max_lease(4 * LEASE));
    let hanging = claimed(&worker, "m").await;
    hanging.idempotency().lease_lost().await;
    let winner = claimed(&worker, "m").await;
    drop(hanging);
    is_in_flight(&worker, "m").await;
    assert!(
        winner.renew().await.expect("the store answers"),
        "it is lost"
    );
    winner.complete(None).await.expect("it is recorded");
}

async fn a_shutdown_that_does_not_wait_long_enough_says_so(backend: Backend) {
    let worker = worker(&backend);
    let job = claimed(&worker, "m").await;
    let ended = worker.layer().shutdown(LEASE).await;
    ended.expect_err("a job has not ended");
    drop(job);
    let ended = worker.layer().shutdown(LEASE).await;
    ended.expect("nothing runs any more");
}

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);
