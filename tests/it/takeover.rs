//! What happens when a lease lapses: another attempt takes over, and the first
//! one's outcome no longer counts.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{InFlight, RecordState, Retry};
use http::StatusCode;

use crate::support::{
    Backend, Fault, Gate, PATIENCE, Shop, Started, Verb, Work, on_every_backend, on_tokio_time,
};

on_every_backend!(
    a_lease_is_taken_over_when_it_has_lapsed_and_not_before,
    every_takeover_is_told_its_number,
    a_takeover_by_another_request_is_a_reuse,
    a_takeover_lives_a_whole_ttl_from_then_on,
    a_stale_owner_sends_the_winners_answer,
    those_who_waited_for_a_stale_owner_get_the_winners_answer,
    those_who_waited_for_a_stale_owner_do_not_know_the_outcome_while_the_winner_runs,
    a_stale_owner_that_panics_sends_the_winners_answer,
    a_stale_owner_never_sends_the_answer_to_another_request,
    a_stale_owner_whose_status_is_forgotten_leaves_the_winners_record_alone,
    a_stale_owner_whose_status_is_forgotten_sends_the_winners_answer,
    a_stale_owner_that_cannot_read_the_winner_does_not_know_the_outcome,
    a_stale_owner_of_a_record_that_expired_does_not_know_the_outcome,
    a_stale_owner_of_a_record_that_was_settled_sends_what_was_settled,
);

on_tokio_time!(a_stale_owner_whose_completion_goes_unanswered_sends_the_winners_answer,);

/// A process whose handler for `k` is held, with a lease that has lapsed.
async fn stuck(backend: &Backend, work: Work) -> (Shop, Gate, Started) {
    let shop = backend
        .shop()
        .work(work)
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .open()
        .await;
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(LEASE);
    (shop, handler, first)
}

async fn a_lease_is_taken_over_when_it_has_lapsed_and_not_before(backend: Backend) {
    let slow = backend.shop().open().await;
    slow.loses_its_leases();
    let handler = slow.work.hold();
    let _first = slow.post("/charges").key("k").start();
    handler.reached().await;
    let shop = backend.shop().open().await;
    backend.clock.advance(LEASE.saturating_sub(TICK));
    let early = shop.post("/charges").key("k").send().await;
    early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 0, "a live lease was taken over");
    backend.clock.advance(TICK);
    let in_time = shop.post("/charges").key("k").send().await;
    in_time.expect_run(1);
    assert_eq!(
        in_time.json()["attempt"],
        2,
        "it does not know of the first attempt"
    );
}

async fn every_takeover_is_told_its_number(backend: Backend) {
    let mut held = Vec::new();
    for attempt in 1..=3 {
        let shop = backend.shop().open().await;
        shop.loses_its_leases();
        let handler = shop.work.hold();
        let ask = shop.post("/charges").key("k").start();
        handler.reached().await;
        backend.clock.advance(LEASE);
        let record = backend.record("k").await.expect("an attempt is running");
        assert_eq!(record.attempt, attempt);
        held.push((shop, ask));
    }
    let last = backend.shop().open().await;
    let answer = last.post("/charges").key("k").send().await;
    assert_eq!(answer.json()["attempt"], 4);
}

async fn a_takeover_by_another_request_is_a_reuse(backend: Backend) {
    let (_shop, _handler, _first) = stuck(&backend, Work::charging()).await;
    let shop = backend.shop().open().await;
    let other = shop.post("/charges").key("k").body("other").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    assert_eq!(shop.work.runs(), 0, "another request took over");
}

async fn a_takeover_lives_a_whole_ttl_from_then_on(backend: Backend) {
    let (_shop, _handler, _first) = stuck(&backend, Work::charging()).await;
    let shop = backend.shop().open().await;
    let first = backend
        .record("k")
        .await
        .expect("the first attempt's record");
    shop.post("/charges").key("k").send().await.expect_run(1);
    let second = backend
        .record("k")
        .await
        .expect("the second attempt's record");
    assert_eq!(
        second.created_at, first.created_at,
        "the key was first claimed then"
    );
    assert_eq!(
        second.expires_at,
        first.expires_at + LEASE,
        "its window began anew"
    );
}

/// 1. A's lease lapses while its handler runs.
/// 2. B takes over and answers.
/// 3. A's handler answers: its completion is refused, and its client gets B's
///    record. Nothing of A's own answer leaves.
async fn a_stale_owner_sends_the_winners_answer(backend: Backend) {
    let revealing = Work::answering(|_| async {
        ([("set-cookie", "a=1"), ("x-from", "a")], "the answer of A").into_response()
    });
    let (_a, handler, first) = stuck(&backend, revealing).await;
    let b = backend.shop().open().await;
    let winner = b.post("/charges").key("k").send().await;
    winner.expect_run(1);
    let before = backend.record("k").await;
    handler.open();
    let stale = first.answer().await;
    stale.expect_replay_of(&winner);
    for own in ["set-cookie", "x-from"] {
        assert_eq!(
            stale.header(own),
            None,
            "{own} of an answer that does not count"
        );
    }
    assert_eq!(
        backend.record("k").await,
        before,
        "a stale owner changed the record"
    );
}

async fn those_who_waited_for_a_stale_owner_get_the_winners_answer(backend: Backend) {
    let (a, handler, first) = stuck(&backend, Work::charging()).await;
    let waiting = a.post("/charges").key("k").start();
    let b = backend.shop().open().await;
    let winner = b.post("/charges").key("k").send().await;
    handler.open();
    first.answer().await.expect_replay_of(&winner);
    waiting.answer().await.expect_replay_of(&winner);
    assert_eq!(a.work.runs(), 1, "a duplicate ran");
    assert_eq!(
        a.store.calls(Verb::Claim),
        1,
        "the one who waited asked for itself"
    );
}

/// 1. A's lease lapses; a duplicate waits for A. B takes over and is running.
/// 2. A's handler answers: there is one truth, and it is not known yet.
async fn those_who_waited_for_a_stale_owner_do_not_know_the_outcome_while_the_winner_runs(
    backend: Backend,
) {
    let (a, handler, first) = stuck(&backend, Work::charging()).await;
    let b = backend.shop().open().await;
    let winning = b.work.hold();
    let second = b.post("/charges").key("k").start();
    winning.reached().await;
    // It follows A without asking the store, and so does this one, which is
    // told at once.
    let waiting = a.post("/charges").key("k").start();
    let reuse = a.post("/charges").key("k").body("other").send().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    handler.open();
    for answer in [first.answer().await, waiting.answer().await] {
        answer.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    }
    winning.open();
    second.answer().await.expect_run(1);
}

async fn a_stale_owner_that_panics_sends_the_winners_answer(backend: Backend) {
    let panicking = Work::answering(|_| async { panic!("as the test asked") });
    let (_a, handler, first) = stuck(&backend, panicking).await;
    let b = backend.shop().open().await;
    let winner = b.post("/charges").key("k").send().await;
    handler.open();
    first.answer().await.expect_replay_of(&winner);
}

/// 1. A's record expires while its handler runs, and is swept.
/// 2. B sends another request under the same key, which is unknown by now, and
///    is answered.
/// 3. A's handler answers: B's record is no answer to A's request.
async fn a_stale_owner_never_sends_the_answer_to_another_request(backend: Backend) {
    let (_a, handler, first) = stuck(&backend, Work::charging()).await;
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 1);
    let b = backend.shop().open().await;
    let other = b.post("/charges").key("k").body("other").send().await;
    other.expect_run(1);
    handler.open();
    let stale = first.answer().await;
    stale.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    b.post("/charges")
        .key("k")
        .body("other")
        .send()
        .await
        .expect_replay_of(&other);
}

/// 1. A's lease lapses; B takes over and answers.
/// 2. A answers 429, after which a retry would run again; but B has answered.
async fn a_stale_owner_whose_status_is_forgotten_sends_the_winners_answer(backend: Backend) {
    let refusing = Work::answering(|_| async { StatusCode::TOO_MANY_REQUESTS.into_response() });
    let (_a, handler, first) = stuck(&backend, refusing).await;
    let b = backend.shop().open().await;
    let winner = b.post("/charges").key("k").send().await;
    winner.expect_run(1);
    handler.open();
    first.answer().await.expect_replay_of(&winner);
}

/// 1. A is cut off from the store until its lease is over; B takes over and
///    answers.
/// 2. A's handler answers, and its first completion fails: A asks once more
///    before it tells its client anything.
async fn a_stale_owner_whose_completion_goes_unanswered_sends_the_winners_answer(backend: Backend) {
    let a = backend.shop().in_memory();
    a.store.always(Verb::Renew, Fault::DOWN);
    let handler = a.work.hold();
    let first = a.post("/charges").key("k").start();
    handler.reached().await;
    tokio::time::sleep(LEASE + TICK).await;
    let b = backend.shop().in_memory();
    let winner = b.post("/charges").key("k").send().await;
    winner.expect_run(1);
    a.store.next(Verb::Complete, Fault::DOWN);
    handler.open();
    first.answer().await.expect_replay_of(&winner);
}

/// 1. A's lease lapses; B takes over and is still running.
/// 2. A answers 429, which gives its claim back: it has none any more.
/// 3. B's record is B's.
async fn a_stale_owner_whose_status_is_forgotten_leaves_the_winners_record_alone(backend: Backend) {
    let refusing = Work::answering(|_| async { StatusCode::TOO_MANY_REQUESTS.into_response() });
    let (a, handler, first) = stuck(&backend, refusing).await;
    let b = backend.shop().open().await;
    let winning = b.work.hold();
    let second = b.post("/charges").key("k").start();
    winning.reached().await;
    handler.open();
    let stale = first.answer().await;
    stale.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    a.store.answered(Verb::Release, 1).await;
    let repeat = b.post("/charges").key("k").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    winning.open();
    let second = second.answer().await;
    second.expect_run(1);
    b.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&second);
}

async fn a_stale_owner_that_cannot_read_the_winner_does_not_know_the_outcome(backend: Backend) {
    let (a, handler, first) = stuck(&backend, Work::charging()).await;
    let b = backend.shop().open().await;
    let winner = b.post("/charges").key("k").send().await;
    a.store.next(Verb::Get, Fault::DOWN);
    handler.open();
    let stale = first.answer().await;
    stale.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    let retry = a.post("/charges").key("k").send().await;
    retry.expect_replay_of(&winner);
}

/// 1. A's lease lapses, and then its record expires.
/// 2. A's handler answers: its completion is refused, and the record has no
///    outcome.
async fn a_stale_owner_of_a_record_that_expired_does_not_know_the_outcome(backend: Backend) {
    let (a, handler, first) = stuck(&backend, Work::charging()).await;
    backend.clock.advance(DAY);
    handler.open();
    let stale = first.answer().await;
    stale.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    let late = a.post("/charges").key("k").send().await.json();
    assert_eq!(late["code"], "idempotency_key_expired");
    // Where outcomes are archived first, the archive knows it.
    let outcome = if backend.archives_first() {
        "completed"
    } else {
        "unknown"
    };
    assert_eq!(late["outcome"], outcome, "what the late retry is told");
}

/// 1. A's lease lapses. 2. An operator records what happened.
/// 3. A's handler answers: what was recorded stands.
async fn a_stale_owner_of_a_record_that_was_settled_sends_what_was_settled(backend: Backend) {
    let (a, handler, first) = stuck(&backend, Work::charging()).await;
    let name = crate::support::scoped("alice", "k");
    let settled = a.layer.settle(name, StatusCode::ACCEPTED, None).await;
    assert!(
        settled.expect("the store answers"),
        "a lapsed record can be settled"
    );
    handler.open();
    let stale = first.answer().await;
    let problem = stale.json();
    assert_eq!(
        problem["code"], "idempotency_response_not_kept",
        "{problem}"
    );
    assert_eq!(problem["original_status"], 202);
    let record = backend.record("k").await.expect("the settled record");
    let RecordState::Completed(completion) = record.state else {
        panic!("the settled record has no outcome");
    };
    assert_eq!(completion.status, 202, "a stale owner changed the outcome");
}

const LEASE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_micros(1);
const DAY: Duration = Duration::from_hours(24);
