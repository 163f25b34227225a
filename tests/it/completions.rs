//! Completions and releases that fail: the client has its answer, and the
//! store hears of it as soon as it can.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{InFlight, Retry, Ttl};
use http::StatusCode;
use tokio::time::sleep;

use crate::support::{
    Backend, Fault, PATIENCE, Shop, Verb, Work, on_every_backend, on_tokio_time, scoped,
};

on_every_backend!(
    when_a_completion_fails_its_client_gets_the_answer_and_duplicates_wait_for_the_record,
    those_who_wait_get_the_answer_once_it_is_recorded,
    a_completion_whose_answer_was_lost_is_confirmed_by_the_next,
    one_completion_that_fails_for_ever_holds_up_no_other,
    a_failed_completion_of_a_panic_is_repeated_too,
    when_a_release_fails_it_is_repeated,
    when_the_release_of_a_lookup_fails_it_is_repeated,
);

on_tokio_time!(
    the_lease_is_renewed_until_the_completion_is_confirmed,
    an_outcome_that_waits_keeps_its_lease_past_the_longest,
    no_outcome_that_waits_keeps_its_lease_past_its_ttl,
    no_lease_of_a_handler_is_renewed_past_the_longest,
    a_completion_without_an_answer_is_repeated,
    a_store_that_panics_once_does_not_end_all_repetitions,
);

async fn when_a_completion_fails_its_client_gets_the_answer_and_duplicates_wait_for_the_record(
    backend: Backend,
) {
    let (shop, other) = (backend.shop().open().await, backend.shop().open().await);
    shop.store.next(Verb::Complete, Fault::DOWN);
    let second_try = shop.store.hold_before(Verb::Complete);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    second_try.reached().await;
    for shop in [&shop, &other] {
        let repeat = shop.post("/charges").key("k").send().await;
        repeat
            .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
            .with_retry_after_up_to(30);
        let reuse = shop.post("/charges").key("k").body("other").send().await;
        reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    }
    second_try.open();
    shop.store.answered(Verb::Complete, 2).await;
    for shop in [&other, &shop] {
        replayed_soon(shop, "k").await.expect_replay_of(&first);
    }
    assert_eq!(shop.work.runs() + other.work.runs(), 1, "it ran twice");
    assert_eq!(
        shop.store.calls(Verb::Release),
        0,
        "a claim was released after its handler ran"
    );
}

/// The store has answered; the process hears of it a moment later.
async fn replayed_soon(shop: &Shop, key: &str) -> crate::support::Answer {
    loop {
        let repeat = shop.post("/charges").key(key).send().await;
        if repeat.status != 409 {
            return repeat;
        }
    }
}

async fn those_who_wait_get_the_answer_once_it_is_recorded(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .in_memory();
    shop.store.next(Verb::Complete, Fault::DOWN);
    let second_try = shop.store.hold_before(Verb::Complete);
    let first = shop.post("/charges").key("k").send().await;
    let waiting = shop.post("/charges").key("k").start();
    second_try.reached().await;
    second_try.open();
    waiting.answer().await.expect_replay_of(&first);
    assert_eq!(
        shop.store.calls(Verb::Claim),
        1,
        "the one who waited asked the store"
    );
}

async fn a_completion_whose_answer_was_lost_is_confirmed_by_the_next(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Complete, Fault::AnswerLost);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 2).await;
    replayed_soon(&shop, "k").await.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "it ran twice");
}

/// 1. The store refuses every completion of one key.
/// 2. Another key's completion fails once, and stands behind it.
async fn one_completion_that_fails_for_ever_holds_up_no_other(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.poison(scoped("alice", "bad"));
    shop.post("/charges").key("bad").send().await.expect_run(1);
    shop.store.begun(Verb::Complete, 2).await;
    let mut first = Vec::new();
    for key in ["good-1", "good-2", "good-3"] {
        shop.store.next(Verb::Complete, Fault::DOWN);
        first.push((key, shop.post("/charges").key(key).send().await));
    }
    for (key, first) in first {
        replayed_soon(&shop, key).await.expect_replay_of(&first);
    }
    let repeat = shop.post("/charges").key("bad").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 4, "something ran twice");
}

async fn a_failed_completion_of_a_panic_is_repeated_too(backend: Backend) {
    let work = Work::answering(|_| async { panic!("as the test asked") });
    let shop = backend.shop().work(work).open().await;
    shop.store.next(Verb::Complete, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 500);
    shop.store.answered(Verb::Complete, 2).await;
    replayed_soon(&shop, "k").await.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "a panic ran twice");
}

async fn when_a_release_fails_it_is_repeated(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let first = StatusCode::TOO_MANY_REQUESTS.into_response();
        if seen.run == 1 { first } else { seen.charge() }
    });
    let shop = backend.shop().work(work).open().await;
    shop.store.next(Verb::Release, Fault::DOWN);
    let second_try = shop.store.hold_before(Verb::Release);
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 429, "the client gets its answer");
    second_try.reached().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    second_try.open();
    shop.store.answered(Verb::Release, 2).await;
    shop.post("/charges").key("k").send().await.expect_run(2);
}

async fn when_the_release_of_a_lookup_fails_it_is_repeated(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(2 * DAY);
    shop.archive.next(Verb::Lookup, Fault::DOWN);
    shop.store.next(Verb::Release, Fault::AnswerLost);
    let first = shop.post("/charges").key(&key).send().await;
    first.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.store.answered(Verb::Release, 2).await;
    shop.post("/charges").key(&key).send().await.expect_run(1);
}

/// 1. The store cannot be told of the outcome for ten minutes; leases can be
///    renewed.
/// 2. Nobody takes over in that time.
/// 3. The store hears of it, and a repeat gets the first answer.
async fn the_lease_is_renewed_until_the_completion_is_confirmed(backend: Backend) {
    let (shop, other) = (backend.shop().in_memory(), backend.shop().in_memory());
    shop.store.always(Verb::Complete, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    for _ in 0..20 {
        sleep(Duration::from_secs(30)).await;
        let repeat = other.post("/charges").key("k").send().await;
        repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    }
    shop.store.heal(Verb::Complete);
    sleep(Duration::from_secs(2)).await;
    other
        .post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(other.work.runs(), 0, "it ran twice");
}

/// 1. The completion takes effect and gets no answer.
/// 2. The client is not made to wait for the store longer than its patience.
async fn a_completion_without_an_answer_is_repeated(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.next(Verb::Complete, Fault::Hangs);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    shop.store.answered(Verb::Complete, 1).await;
    replayed_soon(&shop, "k").await.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "it ran twice");
}

/// 1. A worker that repeats calls dies with a store that panics.
/// 2. The next call that fails is repeated all the same.
async fn a_store_that_panics_once_does_not_end_all_repetitions(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.next(Verb::Complete, Fault::DOWN);
    shop.store.next(Verb::Complete, Fault::Panics);
    shop.post("/charges")
        .key("first")
        .send()
        .await
        .expect_run(1);
    shop.store.begun(Verb::Complete, 2).await;
    sleep(Duration::from_secs(5)).await;
    shop.store.next(Verb::Complete, Fault::DOWN);
    let second = shop.post("/charges").key("second").send().await;
    second.expect_run(2);
    sleep(Duration::from_secs(5)).await;
    let repeat = shop.post("/charges").key("second").send().await;
    repeat.expect_replay_of(&second);
}

const DAY: Duration = Duration::from_hours(24);

/// Nobody may run again what has run, however long the store cannot be told.
async fn an_outcome_that_waits_keeps_its_lease_past_the_longest(backend: Backend) {
    let (shop, other) = (backend.shop().in_memory(), backend.shop().in_memory());
    shop.store.always(Verb::Complete, Fault::DOWN);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    for _ in 0..5 {
        sleep(Duration::from_mins(11)).await;
        let early = other.post("/charges").key("k").send().await;
        early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    }
    shop.store.heal(Verb::Complete);
    sleep(Duration::from_secs(5)).await;
    let retry = other.post("/charges").key("k").send().await;
    retry.expect_replay_of(&first);
    assert_eq!(other.work.runs(), 0, "it ran twice");
}

/// One that the store refuses for ever must not hold a lease for ever.
async fn no_outcome_that_waits_keeps_its_lease_past_its_ttl(backend: Backend) {
    let two_hours = Ttl::new(Duration::from_hours(2)).expect("a TTL");
    let shop = backend.shop().policy(|policy| policy.ttl(two_hours));
    let shop = shop.in_memory();
    shop.store.always(Verb::Complete, Fault::DOWN);
    shop.post("/charges").key("k").send().await.expect_run(1);
    sleep(two_hours.get()).await;
    let renewals = shop.store.calls(Verb::Renew);
    sleep(Duration::from_mins(11)).await;
    assert_eq!(shop.store.calls(Verb::Renew), renewals, "after its TTL");
}

/// A handler that is aborted has no outcome to wait for.
async fn no_lease_of_a_handler_is_renewed_past_the_longest(backend: Backend) {
    let shop = backend.shop().in_memory();
    let _stuck = shop.work.hold();
    let aborted = shop.post("/charges").key("k").send().await;
    aborted.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    let renewals = shop.store.calls(Verb::Renew);
    assert!(renewals > 10, "it was renewed while it could be");
    sleep(Duration::from_mins(11)).await;
    assert_eq!(shop.store.calls(Verb::Renew), renewals, "after max_lease");
}
