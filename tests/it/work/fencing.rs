//! Whose record it is: a stale owner's work is refused, and while a record is
//! locked nobody else's it becomes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::{Completion, InFlight, RecordState, Retry, store::WorkError};
use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use http::StatusCode;
use tokio::time::{sleep, timeout};

use super::{Base, Place, charge, charged, on_both};
use crate::support::{Gate, PATIENCE, Seen, Verb};

on_both!(
    an_attempt_that_was_taken_over_has_no_effect,
    an_attempt_that_lapsed_and_was_not_taken_over_goes_on,
    a_settled_record_takes_no_work,
    while_a_record_is_locked_nobody_takes_over,
    a_second_work_in_one_attempt_is_refused_in_time,
    a_second_work_after_a_commit_is_refused,
    work_that_outlasts_the_handler_is_refused,
    a_commit_after_more_than_a_lease_is_refused,
);

const LEASE: Duration = Duration::from_secs(30);

/// Why a handler's work could not begin, where its answer does not tell.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<Option<WorkError>>>>);

impl Noted {
    /// A handler that begins its work, if it may.
    fn begins(
        &self,
    ) -> impl Fn(Base, Seen) -> BoxFuture<'static, Response> + Clone + Send + Sync + 'static {
        let noted = self.clone();
        move |base, seen| {
            let noted = noted.clone();
            let begins = async move {
                let begun = base.try_begin(&seen.idempotency()).await;
                noted.0.lock().unwrap().push(begun.err());
                "begun".into_response()
            };
            begins.boxed()
        }
    }

    #[track_caller]
    fn expect_fenced(&self) {
        let noted = self.0.lock().unwrap();
        assert!(matches!(noted[..], [Some(WorkError::Fenced)]), "{noted:?}");
    }
}

/// 1. A's lease lapses before it begins its work.
/// 2. B takes over and answers.
/// 3. A is refused, and its client gets B's answer.
async fn an_attempt_that_was_taken_over_has_no_effect(place: Place) {
    let noted = Noted::default();
    let shop = place.shop_of(noted.begins()).open().await;
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    place.backend.clock.advance(LEASE);
    let winner = place.other().await;
    let won = winner.post("/charges").key("k").send().await;
    won.expect_run(1);
    handler.open();
    first.answer().await.expect_replay_of(&won);
    noted.expect_fenced();
    assert_eq!(place.base.effects().await, 0);
}

async fn an_attempt_that_lapsed_and_was_not_taken_over_goes_on(place: Place) {
    let shop = place.charging().open().await;
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    place.backend.clock.advance(LEASE * 2);
    handler.open();
    let first = first.answer().await;
    first.expect_run(1);
    let repeat = place.other().await.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 1);
}

async fn a_settled_record_takes_no_work(place: Place) {
    let noted = Noted::default();
    let shop = place.shop_of(noted.begins()).open().await;
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    place.backend.clock.advance(LEASE);
    let key = crate::support::scoped("alice", "k");
    let settled = shop.layer.settle(key, StatusCode::ACCEPTED, None).await;
    assert!(settled.expect("the store answers"));
    handler.open();
    let told = first.answer().await;
    told.expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile);
    noted.expect_fenced();
    assert_eq!(place.base.effects().await, 0);
}

/// 1. A has locked its record when its lease is over by every clock but its own.
/// 2. B asks for it, while others go on with keys of their own.
/// 3. A commits.
async fn while_a_record_is_locked_nobody_takes_over(place: Place) {
    let locked = Gate::closed();
    let held = locked.clone();
    let shop = place.shop_of(move |base, seen| {
        let held = held.clone();
        async move {
            let mut work = base.begin(&seen.idempotency()).await;
            work.have_effect("once").await;
            held.pass().await;
            work.commit(charged(&seen)).await
        }
    });
    let shop = shop.open().await;
    let other = place.other().await;
    other
        .post("/charges")
        .key("before")
        .send()
        .await
        .expect_run(1);
    let first = shop.post("/charges").key("k").start();
    locked.reached().await;
    place.backend.clock.advance(LEASE * 2);
    let first = if place.base.has_one_writer() {
        // Claims wait until the work is done.
        let early = other.post("/charges").key("k").start();
        other.store.begun(Verb::Claim, 2).await;
        locked.open();
        let first = first.answer().await;
        early.answer().await.expect_replay_of(&first);
        first
    } else {
        let early = other.post("/charges").key("k").send().await;
        early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
        let keys: Vec<_> = (0..20).map(|n| format!("other-{n}")).collect();
        let asks = keys
            .iter()
            .map(|key| other.post("/charges").key(key).send());
        let answers = timeout(Duration::from_secs(2), join_all(asks)).await;
        for answer in answers.expect("nobody waits for another's record") {
            assert_eq!(answer.status, 201);
        }
        locked.open();
        first.answer().await
    };
    first.expect_run(1);
    let repeat = other.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 1);
}

async fn a_second_work_in_one_attempt_is_refused_in_time(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let idempotency = seen.idempotency();
        let mut work = base.begin(&idempotency).await;
        let second = base.try_begin(&idempotency).await;
        let refused = second.expect_err("the record is locked");
        assert!(matches!(refused, WorkError::Store(_)), "{refused:?}");
        work.have_effect("once").await;
        work.commit(charged(&seen)).await
    });
    // The second waits for a quarter of the lease, or for SQLite's patience.
    let shop = shop
        .policy(|policy| policy.lease(Duration::from_secs(8)))
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    assert_eq!(place.base.effects().await, 1);
}

async fn a_second_work_after_a_commit_is_refused(place: Place) {
    let noted = Noted::default();
    let begins = noted.begins();
    let shop = place.shop_of(move |base, seen| {
        let begins = begins.clone();
        async move {
            let answer = charge(&base, &seen).await;
            begins(base, seen).await;
            answer
        }
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    noted.expect_fenced();
    assert_eq!(place.base.effects().await, 1);
}

/// 1. The handler answers while a task of its still holds its work.
/// 2. The answer is being recorded when the task would commit.
async fn work_that_outlasts_the_handler_is_refused(place: Place) {
    let (held, ended) = (Gate::closed(), Gate::closed());
    let gates = (held.clone(), ended.clone());
    let shop = place.shop_of(move |base, seen| {
        let (held, ended) = gates.clone();
        async move {
            let mut work = base.begin(&seen.idempotency()).await;
            work.have_effect("once").await;
            tokio::spawn(async move {
                held.pass().await;
                let refused = work.try_commit("too late").await;
                let refused = refused.expect_err("the handler has ended");
                assert!(matches!(refused, WorkError::TooLate), "{refused:?}");
                ended.pass().await;
            });
            (StatusCode::ACCEPTED, "it will be done").into_response()
        }
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").start();
    held.reached().await;
    shop.store.begun(Verb::Complete, 1).await;
    held.open();
    ended.reached().await;
    let first = first.answer().await;
    assert_eq!(first.body, "it will be done");
    let repeat = place.other().await.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 0);
}

async fn a_commit_after_more_than_a_lease_is_refused(place: Place) {
    const LEASE: Duration = Duration::from_millis(400);
    let shop = place.shop_of(async |base, seen| {
        let mut work = base.begin(&seen.idempotency()).await;
        work.have_effect("once").await;
        sleep(LEASE).await;
        let refused = work.try_commit(charged(&seen)).await;
        let refused = refused.expect_err("longer than a lease");
        assert!(matches!(refused, WorkError::TooLate), "{refused:?}");
        (StatusCode::GATEWAY_TIMEOUT, "too slow").into_response()
    });
    let shop = shop
        .policy(|policy| policy.lease(LEASE).in_flight(InFlight::Wait(PATIENCE)))
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "too slow");
    let record = place.backend.record("k").await.expect("a record");
    let is_told = matches!(
        record.state,
        RecordState::Completed(Completion { status: 504, .. })
    );
    assert!(is_told, "{record:?}");
    assert_eq!(place.base.effects().await, 0);
}
