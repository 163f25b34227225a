//! Duplicates that come later than the retention.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use axum_idempotency::{
    Abandoned, ArchiveLookup, Clock as _, FoundState, PolicyBuilder, Retry, Tombstone,
    archive::{Archive as _, MemoryArchive},
    store::Store as _,
    webhook::Webhook,
};
use http::StatusCode;

use super::{DAY, RETENTION, abandon_the_first_attempt, deliver, found, stripe, stripe_with};
use crate::support::{Backend, Fault, FaultyArchive, Shop, Verb, Work, on_every_backend, ulid_of};

on_every_backend!(
    a_late_duplicate_is_acknowledged_before_the_sweep_and_after_it,
    a_late_duplicate_of_an_answer_that_was_no_success_is_acknowledged_too,
    a_late_duplicate_without_an_outcome_runs_again_before_the_sweep,
    a_late_duplicate_without_an_outcome_runs_again_after_the_sweep,
    a_late_duplicate_without_an_outcome_runs_again_where_the_archive_is_not_asked,
    what_ran_again_is_the_outcome_from_then_on,
    what_ran_again_and_failed_is_never_told_that_it_is_the_first,
    a_late_duplicate_without_an_outcome_is_never_told_that_its_key_has_expired,
    nothing_runs_again_while_the_record_cannot_be_archived,
    of_two_processes_that_meet_one_expired_record_one_runs_it,
    an_outcome_that_was_archived_first_keeps_a_duplicate_from_running,
    an_outcome_that_is_learned_late_keeps_a_duplicate_from_running,
    a_duplicate_older_than_the_archive_runs_and_is_told_of_it,
);

async fn a_late_duplicate_is_acknowledged_before_the_sweep_and_after_it(backend: Backend) {
    let shop = stripe(&backend).open().await;
    deliver(&shop, "evt_1").send().await.expect_run(1);
    backend.clock.advance(RETENTION);
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(backend.sweep().await, 1);
    for _ in 0..2 {
        deliver(&shop, "evt_1")
            .send()
            .await
            .expect_acknowledgement();
    }
    assert_eq!(shop.work.runs(), 1, "what is known to be done ran again");
    backend.clock.advance(RETENTION);
    assert_eq!(backend.sweep().await, 0, "a late duplicate left a record");
}

async fn a_late_duplicate_of_an_answer_that_was_no_success_is_acknowledged_too(backend: Backend) {
    let work = Work::answering(|_| async {
        (
            StatusCode::BAD_REQUEST,
            axum_idempotency::Recording::Keep,
            "no",
        )
            .into_response()
    });
    let gone = |policy: PolicyBuilder| policy.late_status(StatusCode::GONE);
    let shop = stripe_with(&backend, gone).work(work).open().await;
    assert_eq!(deliver(&shop, "evt_1").send().await.status, 400);
    backend.clock.advance(RETENTION);
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    backend.sweep().await;
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
}

#[track_caller]
fn expect_second_attempt(answer: &crate::support::Answer) {
    answer.expect_run(1);
    assert_eq!(
        answer.json()["attempt"],
        2,
        "an event that may have had its effect was told to be the first"
    );
}

async fn a_late_duplicate_without_an_outcome_runs_again_before_the_sweep(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let shop = stripe(&backend).open().await;
    expect_second_attempt(&deliver(&shop, "evt_1").send().await);
    let duplicate = deliver(&shop, "evt_1").send().await;
    assert!(duplicate.is_marked_as_replay(), "it ran a third time");
}

async fn a_late_duplicate_without_an_outcome_runs_again_after_the_sweep(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    assert_eq!(backend.sweep().await, 1);
    let shop = stripe(&backend).open().await;
    expect_second_attempt(&deliver(&shop, "evt_1").send().await);
    let duplicate = deliver(&shop, "evt_1").send().await;
    assert!(duplicate.is_marked_as_replay(), "it ran a third time");
}

async fn a_late_duplicate_without_an_outcome_runs_again_where_the_archive_is_not_asked(
    backend: Backend,
) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let lax = |policy: PolicyBuilder| policy.archive_lookup(ArchiveLookup::TimestampedKeys);
    let shop = stripe_with(&backend, lax).open().await;
    expect_second_attempt(&deliver(&shop, "evt_1").send().await);
}

async fn what_ran_again_is_the_outcome_from_then_on(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let shop = stripe(&backend).open().await;
    expect_second_attempt(&deliver(&shop, "evt_1").send().await);
    for _ in 0..2 {
        backend.clock.advance(RETENTION);
        deliver(&shop, "evt_1")
            .send()
            .await
            .expect_acknowledgement();
        backend.sweep().await;
        deliver(&shop, "evt_1")
            .send()
            .await
            .expect_acknowledgement();
    }
    assert_eq!(shop.work.runs(), 1, "what is known to be done ran again");
}

async fn what_ran_again_and_failed_is_never_told_that_it_is_the_first(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let work = Work::answering(|seen| async move {
        match seen.run {
            1 | 2 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            _ => seen.charge(),
        }
    });
    let shop = stripe(&backend).work(work).open().await;
    for _ in 0..2 {
        assert_eq!(deliver(&shop, "evt_1").send().await.status, 500);
    }
    let third = deliver(&shop, "evt_1").send().await;
    third.expect_run(3);
    let attempt = third.json()["attempt"].as_u64();
    assert!(attempt >= Some(2), "it was told that it is the first");
}

/// At most once means what it says, also after the retention; and a 410 would
/// end the provider's deliveries.
async fn a_late_duplicate_without_an_outcome_is_never_told_that_its_key_has_expired(
    backend: Backend,
) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let refusing = |policy: PolicyBuilder| {
        let policy = policy.abandoned(Abandoned::Refuse);
        policy.late_status(StatusCode::GONE)
    };
    let shop = stripe_with(&backend, refusing).open().await;
    let refused = async || {
        let late = deliver(&shop, "evt_1").send().await;
        late.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    };
    refused().await;
    assert_eq!(backend.sweep().await, 1);
    refused().await;
    assert_eq!(shop.work.runs(), 0, "it ran twice");
}

async fn nothing_runs_again_while_the_record_cannot_be_archived(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let shop = stripe(&backend).open().await;
    shop.archive.next(Verb::Insert, Fault::DOWN);
    let refused = deliver(&shop, "evt_1").send().await;
    refused.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 0, "it ran without a trace of the first");
    expect_second_attempt(&deliver(&shop, "evt_1").send().await);
}

/// 1. One process has met the expired record, and is about to read it.
/// 2. Another meets it too, makes way for itself and runs.
/// 3. The first goes on: the record is not the one it met.
async fn of_two_processes_that_meet_one_expired_record_one_runs_it(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let (slow, fast) = (stripe(&backend).open().await, stripe(&backend).open().await);
    let reading = slow.store.hold_before(Verb::Get);
    let late = deliver(&slow, "evt_1").start();
    reading.reached().await;
    let ran = deliver(&fast, "evt_1").send().await;
    expect_second_attempt(&ran);
    reading.open();
    late.answer().await.expect_replay_of(&ran);
    assert_eq!(slow.work.runs(), 0, "both ran it");
    let archived = slow
        .archive
        .lookup(super::key_of(&slow, "evt_1"), None)
        .await;
    let archived = archived.expect("the archive answers").map(|row| row.status);
    let known = if backend.archives_first() { 201 } else { 0 };
    assert_eq!(archived, Some(known), "a live record was archived");
}

/// Where outcomes are archived before they are recorded, a process may have
/// ended in between.
async fn an_outcome_that_was_archived_first_keeps_a_duplicate_from_running(backend: Backend) {
    let stuck = abandon_the_first_attempt(&backend).await;
    let key = super::key_of(&stuck, "evt_1");
    let record = stuck.store.get(key).await.expect("an answer");
    let archived = Tombstone {
        status: 201,
        ..record.expect("it left a record").tombstone()
    };
    let added = stuck.archive.insert(&[archived]).await;
    added.expect("the archive takes a row");
    backend.clock.advance(RETENTION);
    // Whatever the policy says of the archive.
    let lax = |policy: PolicyBuilder| policy.archive_lookup(ArchiveLookup::TimestampedKeys);
    let shop = stripe_with(&backend, lax);
    let shop = shop
        .over(backend.process().keeping_until_expired())
        .open()
        .await;
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(shop.work.runs(), 0, "what is known to be done ran again");
}

async fn an_outcome_that_is_learned_late_keeps_a_duplicate_from_running(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let shop = stripe(&backend).open().await;
    let key = super::key_of(&shop, "evt_1");
    let settled = shop.layer.settle(key, StatusCode::OK, None).await;
    assert_eq!(
        settled.ok(),
        Some(true),
        "the outcome could not be told later"
    );
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    backend.sweep().await;
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(shop.work.runs(), 0, "what is known to be done ran again");
}

/// Of an id that tells its age; nothing is known of it any more.
async fn a_duplicate_older_than_the_archive_runs_and_is_told_of_it(backend: Backend) {
    let open = async |abandoned: Abandoned| -> Shop {
        let archive = MemoryArchive::new().with_retention(30 * DAY);
        backend
            .shop()
            .archive(FaultyArchive::over(Arc::new(archive)))
            .policy(|_| Webhook::stripe().policy().abandoned(abandoned))
            .open()
            .await
    };
    let old = ulid_of(backend.clock.now() - 60 * DAY);
    let careful = open(Abandoned::Refuse).await;
    let refused = deliver(&careful, &old).send().await;
    refused.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    assert_eq!(found(&careful, &old).await, None, "it left a record");
    let shop = open(Abandoned::TakeOver).await;
    expect_second_attempt(&deliver(&shop, &old).send().await);
    let state = found(&shop, &old).await.map(|found| found.state);
    assert!(matches!(state, Some(FoundState::Completed { .. })));
}
