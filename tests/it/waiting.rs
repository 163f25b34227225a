//! Duplicates that are held until the first request is done.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{InFlight, Retry};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::StatusCode;

use crate::support::{
    Answer, Backend, Opening, PATIENCE, Shop, Started, Verb, Work, on_every_backend, on_tokio_time,
};

on_every_backend!(
    a_duplicate_waits_for_the_first_answer,
    a_duplicate_waits_for_an_answer_from_another_process,
    another_request_does_not_wait_to_be_told_that_it_is_a_reuse,
    one_of_those_who_wait_runs_when_the_first_is_forgotten,
    those_who_wait_for_a_response_that_is_not_kept_are_told_so,
    past_the_cap_of_a_key_a_duplicate_is_rejected,
    past_the_cap_of_all_keys_a_duplicate_is_rejected,
    the_cap_of_a_key_holds_while_the_first_runs_in_another_process,
    a_place_is_free_again_when_its_wait_is_over,
);

on_tokio_time!(
    a_duplicate_does_not_wait_longer_than_the_policy_says,
    a_duplicate_that_waits_for_another_process_asks_the_store_now_and_then,
);

fn waiting(opening: Opening, per_key: usize, total: usize) -> Opening {
    opening
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .layer(move |layer| layer.waiter_caps(per_key, total))
}

/// So many duplicates on their way.
fn duplicates(
    shop: &Shop,
    key: &str,
    count: usize,
) -> FuturesUnordered<impl Future<Output = Answer>> {
    let started = (0..count).map(|_| shop.post("/charges").key(key).start());
    started.map(Started::answer).collect()
}

#[track_caller]
fn is_rejected(answer: &Answer) {
    answer
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(30);
}

async fn a_duplicate_waits_for_the_first_answer(backend: Backend) {
    let shop = waiting(backend.shop(), 64, 64).open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting = shop.post("/charges").key("k").start();
    handler.open();
    let first = first.answer().await;
    first.expect_run(1);
    waiting.answer().await.expect_replay_of(&first);
}

async fn a_duplicate_waits_for_an_answer_from_another_process(backend: Backend) {
    let one = backend.shop().open().await;
    let other = waiting(backend.shop(), 64, 64).open().await;
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    let mut waiting = duplicates(&other, "k", 5);
    other.store.answered(Verb::Claim, 5).await;
    handler.open();
    let first = first.answer().await;
    while let Some(waited) = waiting.next().await {
        waited.expect_replay_of(&first);
    }
    assert_eq!(other.work.runs(), 0, "a duplicate ran");
}

async fn another_request_does_not_wait_to_be_told_that_it_is_a_reuse(backend: Backend) {
    let shop = waiting(backend.shop(), 64, 64).open().await;
    let other = waiting(backend.shop(), 64, 64).open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    for shop in [&shop, &other] {
        let reuse = shop.post("/charges").key("k").body("other").send().await;
        reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    }
    handler.open();
    first.answer().await.expect_run(1);
}

/// 1. The first runs; three duplicates wait.
/// 2. It answers 429, which is not kept.
/// 3. One of the three runs, and the others get its answer.
async fn one_of_those_who_wait_runs_when_the_first_is_forgotten(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let first = StatusCode::TOO_MANY_REQUESTS.into_response();
        if seen.run == 1 { first } else { seen.charge() }
    });
    let shop = waiting(backend.shop().work(work), 64, 64).open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let mut waiting = duplicates(&shop, "k", 3);
    handler.open();
    assert_eq!(first.answer().await.status, 429);
    let mut own = 0;
    while let Some(answer) = waiting.next().await {
        assert_eq!(answer.json()["run"], 2, "they do not have one answer");
        own += usize::from(!answer.is_marked_as_replay());
    }
    assert_eq!(own, 1, "so many of those who waited ran");
    assert_eq!(shop.work.runs(), 2);
}

async fn those_who_wait_for_a_response_that_is_not_kept_are_told_so(backend: Backend) {
    let shop = waiting(backend.shop(), 64, 64)
        .policy(axum_idempotency::PolicyBuilder::keep_no_bodies)
        .open()
        .await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting = shop.post("/charges").key("k").start();
    handler.open();
    first.answer().await.expect_run(1);
    let waited = waiting.answer().await;
    waited.expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile);
}

/// Of three duplicates two find a place, and one is rejected at once, while
/// the first still runs.
async fn past_the_cap_of_a_key_a_duplicate_is_rejected(backend: Backend) {
    let shop = waiting(backend.shop(), 2, 64).open().await;
    let handlers = [shop.work.hold(), shop.work.hold()];
    let first = shop.post("/charges").key("k").start();
    handlers[0].reached().await;
    let mut waiting = duplicates(&shop, "k", 3);
    is_rejected(&waiting.next().await.expect("three were sent"));
    // Another key has places of its own.
    let other = shop.post("/charges").key("other").start();
    handlers[1].reached().await;
    let other_waiting = shop.post("/charges").key("other").start();
    handlers.iter().for_each(crate::support::Gate::open);
    let (first, other) = (first.answer().await, other.answer().await);
    while let Some(waited) = waiting.next().await {
        waited.expect_replay_of(&first);
    }
    other_waiting.answer().await.expect_replay_of(&other);
}

async fn past_the_cap_of_all_keys_a_duplicate_is_rejected(backend: Backend) {
    let shop = waiting(backend.shop(), 64, 2).open().await;
    let handlers = [shop.work.hold(), shop.work.hold()];
    let one = shop.post("/charges").key("one").start();
    handlers[0].reached().await;
    let two = shop.post("/charges").key("two").start();
    handlers[1].reached().await;
    let mut of_one = duplicates(&shop, "one", 3);
    is_rejected(&of_one.next().await.expect("three were sent"));
    is_rejected(&shop.post("/charges").key("two").send().await);
    handlers.iter().for_each(crate::support::Gate::open);
    let (one, two) = (one.answer().await, two.answer().await);
    while let Some(waited) = of_one.next().await {
        waited.expect_replay_of(&one);
    }
    assert_eq!(two.status, 201);
}

async fn the_cap_of_a_key_holds_while_the_first_runs_in_another_process(backend: Backend) {
    let one = backend.shop().open().await;
    let other = waiting(backend.shop(), 2, 64).open().await;
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    let mut waiting = duplicates(&other, "k", 5);
    for _ in 0..3 {
        is_rejected(&waiting.next().await.expect("five were sent"));
    }
    handler.open();
    let first = first.answer().await;
    while let Some(waited) = waiting.next().await {
        waited.expect_replay_of(&first);
    }
}

async fn a_place_is_free_again_when_its_wait_is_over(backend: Backend) {
    let shop = waiting(backend.shop(), 1, 1).open().await;
    for key in ["one", "two", "three"] {
        let handler = shop.work.hold();
        let first = shop.post("/charges").key(key).start();
        handler.reached().await;
        let mut waiting = duplicates(&shop, key, 2);
        is_rejected(&waiting.next().await.expect("two were sent"));
        handler.open();
        let first = first.answer().await;
        let waited = waiting.next().await.expect("two were sent");
        waited.expect_replay_of(&first);
    }
}

/// 1. The first runs, here or in another process, and does not end.
/// 2. The longest wait is over: the duplicate is told to come back.
async fn a_duplicate_does_not_wait_longer_than_the_policy_says(backend: Backend) {
    let patient = |opening: Opening| {
        opening.policy(|policy| policy.in_flight(InFlight::Wait(Duration::from_secs(5))))
    };
    let (one, other) = (
        patient(backend.shop()).in_memory(),
        patient(backend.shop()).in_memory(),
    );
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    for shop in [&one, &other] {
        is_rejected(&shop.post("/charges").key("k").send().await);
    }
    assert!(!first.is_answered(), "the first request was disturbed");
    handler.open();
    first.answer().await.expect_run(1);
    assert_eq!(other.work.runs(), 0, "a duplicate ran");
}

/// It asks the store at a growing distance, not as fast as it can.
async fn a_duplicate_that_waits_for_another_process_asks_the_store_now_and_then(backend: Backend) {
    let one = backend.shop().in_memory();
    let other = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(Duration::from_mins(1))))
        .in_memory();
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    is_rejected(&other.post("/charges").key("k").send().await);
    let claims = other.store.calls(Verb::Claim);
    assert!(
        (2..=70).contains(&claims),
        "the store was asked {claims} times in a minute"
    );
    handler.open();
    first.answer().await.expect_run(1);
}
