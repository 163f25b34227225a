//! A worker whose effect commits with the record of its message.

use std::time::Duration;

use axum_idempotency::{
    ResourceId,
    store::WorkError,
    worker::{Delivery, Job, Worker, WorkerError},
};

use super::{Base, Place, on_both};
use crate::support::{
    Fault, FaultyStore, Verb, in_time,
    postgres::{CommitGate, Proxy, Schema},
};

on_both!(
    a_job_whose_work_is_committed_is_done,
    a_job_whose_work_is_committed_cannot_be_given_back,
    a_job_whose_work_is_rolled_back_is_still_its_own,
    the_work_of_a_job_that_was_taken_over_is_refused,
);

fn worker(place: &Place) -> (Worker, FaultyStore) {
    let store = place.backend.process().with_its_identity();
    let worker = Worker::builder("payouts", store.clone()).archive(place.backend.archive());
    (worker.build().expect("settings that work"), store)
}

/// A worker in another process.
fn other(place: &Place) -> Worker {
    let worker = Worker::builder("payouts", place.backend.process());
    let worker = worker.archive(place.backend.archive());
    worker.build().expect("settings that work")
}

async fn claimed(worker: &Worker) -> Job {
    match worker.claim("m").await.expect("the store answers") {
        Delivery::Claimed(job) => job,
        other => panic!("it is to be done, and is {other:?}"),
    }
}

async fn expect_done(worker: &Worker) {
    match worker.claim("m").await.expect("the store answers") {
        Delivery::Done(done) => assert_eq!(done.resource_id, payout(), "what it made"),
        other => panic!("it has been done, and is {other:?}"),
    }
}

fn payout() -> Option<ResourceId> {
    ResourceId::new("po_1")
}

/// Pays out, and commits that with the record.
async fn pay(base: &Base, job: &Job) -> Result<(), WorkError> {
    let mut work = base.begin(job.idempotency()).await;
    work.have_effect("m").await;
    work.try_commit((payout().expect("a short id"), ()))
        .await
        .map(drop)
}

async fn a_job_whose_work_is_committed_is_done(place: Place) {
    let (worker, store) = worker(&place);
    let job = claimed(&worker).await;
    pay(&place.base, &job).await.expect("it is committed");
    expect_done(&other(&place)).await;
    job.complete(None).await.expect("nothing is left to record");
    assert_eq!(store.calls(Verb::Complete), 0, "it was recorded twice");
    expect_done(&worker).await;
    assert_eq!(place.base.effects().await, 1);
}

async fn a_job_whose_work_is_committed_cannot_be_given_back(place: Place) {
    let (worker, _) = worker(&place);
    let job = claimed(&worker).await;
    pay(&place.base, &job).await.expect("it is committed");
    assert!(!job.release().await, "what is done was given back");
    expect_done(&worker).await;
}

async fn a_job_whose_work_is_rolled_back_is_still_its_own(place: Place) {
    let (worker, _) = worker(&place);
    let job = claimed(&worker).await;
    let mut work = place.base.begin(job.idempotency()).await;
    work.have_effect("m").await;
    work.roll_back().await;
    assert_eq!(place.base.effects().await, 0);
    pay(&place.base, &job).await.expect("it is committed");
    expect_done(&other(&place)).await;
}

async fn the_work_of_a_job_that_was_taken_over_is_refused(place: Place) {
    let (worker, store) = worker(&place);
    let stale = claimed(&worker).await;
    store.always(Verb::Renew, Fault::Hangs);
    place.backend.clock.advance(LEASE);
    let winner = claimed(&other(&place)).await;
    let refused = place.base.try_begin(stale.idempotency()).await;
    assert!(matches!(refused, Err(WorkError::Fenced)), "{refused:?}");
    assert_eq!(stale.complete(None).await, Err(WorkerError::Superseded));
    winner.complete(payout()).await.expect("it is recorded");
    expect_done(&worker).await;
    assert_eq!(place.base.effects().await, 0);
}

#[tokio::test]
async fn a_job_whose_commit_was_cut_off_after_it_took_effect_is_done() {
    in_time(async {
        let schema = Schema::new();
        let proxy = Proxy::before(&schema.url());
        let (base, backend) = Base::postgres_by_way_of(schema, &proxy.url()).await;
        let place = Place { base, backend };
        let (worker, _) = worker(&place);
        let job = claimed(&worker).await;
        proxy.cut_answer_to("COMMIT");
        let paid = pay(&place.base, &job).await;
        assert!(matches!(paid, Err(WorkError::Unknown(_))), "{paid:?}");
        job.complete(None).await.expect("it has been done");
        expect_done(&worker).await;
        assert_eq!(place.base.effects().await, 1);
    })
    .await;
}

/// The job is over, one way or the other, while nobody knows of its commit.
#[tokio::test]
async fn a_job_whose_commit_was_cut_off_before_it_took_effect_can_be_given_back() {
    in_time(async {
        let place = Place::postgres().await;
        let mut gate = CommitGate::before(place.base.url(), "effects").await;
        let (worker, _) = worker(&place);
        let job = claimed(&worker).await;
        let base = place.base.clone();
        let paying = tokio::spawn(async move {
            let paid = pay(&base, &job).await;
            (job, paid)
        });
        let standing = gate.reached().await;
        gate.turn_away(standing).await;
        gate.open().await;
        let (job, paid) = paying.await.expect("no panic");
        assert!(matches!(paid, Err(WorkError::Unknown(_))), "{paid:?}");
        assert!(job.release().await, "nothing was committed");
        assert_eq!(place.base.effects().await, 0);
        let again = claimed(&worker).await;
        pay(&place.base, &again).await.expect("it is committed");
        expect_done(&other(&place)).await;
    })
    .await;
}

const LEASE: Duration = Duration::from_secs(30);
