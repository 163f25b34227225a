//! Many requests with one key at once: one runs, and the store hardly notices.

use std::sync::Arc;

use axum_idempotency::{InFlight, Retry};
use futures_util::future::join_all;
use tokio::sync::{
    Barrier,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

use crate::support::{
    Answer, Backend, Fault, PATIENCE, Shop, Verb, in_time, on_every_backend, on_tokio_time,
};

on_every_backend!(
    duplicates_of_a_flight_cost_the_store_nothing,
    duplicates_that_come_before_the_claim_is_answered_cost_the_store_nothing,
    a_repeat_of_a_completed_request_asks_the_store_every_time,
    repeats_of_a_completed_request_that_come_together_share_one_claim,
    two_layers_over_one_store_share_what_is_in_flight,
);

on_tokio_time!(duplicates_share_the_news_that_the_store_does_not_answer,);

/// Runs on threads, so that requests really meet.
fn on_threads(storm: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(in_time(storm));
}

/// So many requests with one key, all let go at the same moment; the answers in
/// the order in which they come.
fn storm_on(shops: &[&Shop], key: &str, count: usize) -> UnboundedReceiver<Answer> {
    let (sender, answers) = unbounded_channel();
    let barrier = Arc::new(Barrier::new(count));
    for number in 0..count {
        let ask = shops[number % shops.len()].post("/charges").key(key);
        let (barrier, sender) = (Arc::clone(&barrier), sender.clone());
        tokio::spawn(async move {
            barrier.wait().await;
            let _nobody_listens = sender.send(ask.send().await);
        });
    }
    answers
}

async fn next(storm: &mut UnboundedReceiver<Answer>, count: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    let received = storm.recv_many(&mut answers, count);
    let mut received = received.await;
    while received < count {
        received += storm.recv_many(&mut answers, count - received).await;
    }
    answers
}

#[track_caller]
fn only_one_ran(answers: &[Answer]) {
    let ran = |answer: &&Answer| answer.status == 201 && !answer.is_marked_as_replay();
    let first: Vec<_> = answers.iter().filter(ran).collect();
    assert_eq!(first.len(), 1, "so many requests were executed");
    for answer in answers.iter().filter(|answer| !ran(answer)) {
        if answer.status == 201 {
            answer.expect_replay_of(first[0]);
        } else {
            answer
                .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
                .with_retry_after_up_to(30);
        }
    }
}

macro_rules! storms {
    ($($storm:ident),+ $(,)?) => {
        mod memory_on_threads {
            $(
                #[test]
                fn $storm() {
                    super::on_threads(async { super::$storm(super::Backend::memory()).await });
                }
            )+
        }

        #[cfg(feature = "sqlite")]
        mod sqlite_on_threads {
            $(
                #[test]
                fn $storm() {
                    super::on_threads(async {
                        super::$storm(super::Backend::sqlite().await).await
                    });
                }
            )+
        }
    };
}

storms!(
    of_two_hundred_parallel_requests_one_runs_and_the_store_sees_one_claim,
    of_two_hundred_parallel_requests_that_wait_all_get_the_one_answer,
    of_two_hundred_parallel_requests_in_two_processes_one_runs,
    two_hundred_parallel_keys_all_run,
);

/// The handler is held until all duplicates have their answer, so that every
/// one of them meets the flight.
async fn of_two_hundred_parallel_requests_one_runs_and_the_store_sees_one_claim(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let mut storm = storm_on(&[&shop], "k", 200);
    let mut answers = next(&mut storm, 199).await;
    handler.open();
    answers.extend(next(&mut storm, 1).await);
    only_one_ran(&answers);
    assert_eq!(shop.work.runs(), 1, "a duplicate ran");
    assert_eq!(
        shop.store.calls(Verb::Claim),
        1,
        "a duplicate asked the store"
    );
}

async fn of_two_hundred_parallel_requests_that_wait_all_get_the_one_answer(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .layer(|layer| layer.waiter_caps(200, 200))
        .open()
        .await;
    let answers = next(&mut storm_on(&[&shop], "k", 200), 200).await;
    only_one_ran(&answers);
    assert!(
        answers.iter().all(|answer| answer.status == 201),
        "somebody waited for nothing"
    );
    assert_eq!(shop.work.runs(), 1, "a duplicate ran");
}

async fn of_two_hundred_parallel_requests_in_two_processes_one_runs(backend: Backend) {
    let (one, other) = (backend.shop().open().await, backend.shop().open().await);
    let answers = next(&mut storm_on(&[&one, &other], "k", 200), 200).await;
    only_one_ran(&answers);
    assert_eq!(one.work.runs() + other.work.runs(), 1, "a duplicate ran");
}

async fn two_hundred_parallel_keys_all_run(backend: Backend) {
    let shop = backend.shop().open().await;
    let asks = (0..200).map(|key| {
        let ask = shop.post("/charges").key(&format!("k-{key}"));
        tokio::spawn(ask.send())
    });
    for answer in join_all(asks.collect::<Vec<_>>()).await {
        assert_eq!(
            answer.unwrap().status,
            201,
            "a key got in the way of another"
        );
    }
    assert_eq!(shop.work.runs(), 200);
}

async fn duplicates_of_a_flight_cost_the_store_nothing(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let calls = [Verb::Claim, Verb::Get, Verb::Publish].map(|verb| shop.store.calls(verb));
    for _ in 0..50 {
        let repeat = shop.post("/charges").key("k").send().await;
        repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
        let reuse = shop.post("/charges").key("k").body("other").send().await;
        reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    }
    let after = [Verb::Claim, Verb::Get, Verb::Publish].map(|verb| shop.store.calls(verb));
    assert_eq!(after, calls, "a duplicate asked the store");
    handler.open();
    first.answer().await.expect_run(1);
}

/// 1. The first request's claim is on its way.
/// 2. Fifty duplicates arrive.
/// 3. The claim is answered, and the handler runs.
async fn duplicates_that_come_before_the_claim_is_answered_cost_the_store_nothing(
    backend: Backend,
) {
    let shop = backend.shop().in_memory();
    let claim = shop.store.hold_before(Verb::Claim);
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    claim.reached().await;
    let duplicates: Vec<_> = (0..50)
        .map(|_| shop.post("/charges").key("k").start())
        .collect();
    tokio::task::yield_now().await;
    claim.open();
    handler.reached().await;
    for duplicate in duplicates {
        let answer = duplicate.answer().await;
        answer.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    }
    assert_eq!(
        shop.store.calls(Verb::Claim),
        1,
        "a duplicate asked the store"
    );
    handler.open();
    first.answer().await.expect_run(1);
}

async fn a_repeat_of_a_completed_request_asks_the_store_every_time(backend: Backend) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("k").send().await;
    for repeats in 1..=3 {
        let repeat = shop.post("/charges").key("k").send().await;
        repeat.expect_replay_of(&first);
        assert_eq!(
            shop.store.calls(Verb::Claim),
            1 + repeats,
            "a replay came from a cache"
        );
    }
    assert_eq!(
        shop.store.calls(Verb::Get),
        0,
        "a replay is one call to the store"
    );
}

/// 1. The request is done. A repeat's claim is on its way.
/// 2. Fifty more repeats arrive, one of them with another body.
/// 3. The store answers once, for all of them.
async fn repeats_of_a_completed_request_that_come_together_share_one_claim(backend: Backend) {
    let shop = backend.shop().in_memory();
    let first = shop.post("/charges").key("k").send().await;
    let claim = shop.store.hold_before(Verb::Claim);
    let repeat = shop.post("/charges").key("k").start();
    claim.reached().await;
    let repeats: Vec<_> = (0..50)
        .map(|_| shop.post("/charges").key("k").start())
        .collect();
    let other = shop.post("/charges").key("k").body("other").start();
    tokio::task::yield_now().await;
    claim.open();
    repeat.answer().await.expect_replay_of(&first);
    for repeat in repeats {
        repeat.answer().await.expect_replay_of(&first);
    }
    let reuse = other.answer().await;
    reuse.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    assert_eq!(
        shop.store.calls(Verb::Claim),
        2,
        "every repeat asked for itself"
    );
}

async fn two_layers_over_one_store_share_what_is_in_flight(backend: Backend) {
    let store = backend.process();
    let one = backend.shop().over(store.clone()).open().await;
    let other = backend.shop().over(store.clone()).open().await;
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    let repeat = other.post("/charges").key("k").send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    assert_eq!(
        store.calls(Verb::Claim),
        1,
        "the other layer asked the store"
    );
    handler.open();
    first.answer().await.expect_run(1);
    assert_eq!(
        other.work.runs(),
        0,
        "the duplicate ran behind the other layer"
    );
}

/// 1. The first claim gets no answer; nine duplicates wait for it.
/// 2. The layer's patience ends: all ten are told, and none of the nine asks
///    the dead store again, one after another.
async fn duplicates_share_the_news_that_the_store_does_not_answer(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.always(Verb::Claim, Fault::Hangs);
    let asks: Vec<_> = (0..10)
        .map(|_| shop.post("/charges").key("k").start())
        .collect();
    for ask in asks {
        let answer = ask.answer().await;
        answer
            .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
            .with_retry_after_up_to(60);
    }
    assert_eq!(
        shop.store.calls(Verb::Claim),
        1,
        "every duplicate waited for itself"
    );
    assert_eq!(shop.work.runs(), 0, "a request ran without its claim");
}
