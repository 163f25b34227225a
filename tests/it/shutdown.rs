//! The end of a process: handlers first, then what the store has to hear, then
//! the store; by a deadline.

use std::time::Duration;

use axum_idempotency::{Retry, ShutdownTimedOut};

use crate::support::{Backend, Fault, PATIENCE, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    shutdown_waits_for_handlers_whose_clients_have_gone,
    shutdown_waits_for_completions_that_failed,
    shutdown_waits_for_releases_that_failed,
    after_shutdown_nothing_runs,
    shutdown_of_one_layer_is_that_of_all_layers_over_its_store,
);

on_tokio_time!(
    shutdown_does_not_wait_longer_than_its_deadline,
    shutdown_does_not_wait_for_an_outcome_longer_than_its_deadline,
    shutdown_does_not_wait_for_the_store_longer_than_its_deadline,
);

/// 1. The client hangs up while the handler runs. 2. Shutdown begins.
/// 3. The handler ends, its outcome is recorded, and only then is the store
///    closed.
async fn shutdown_waits_for_handlers_whose_clients_have_gone(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    first.hang_up().await;
    let layer = shop.layer.clone();
    let ending = tokio::spawn(async move { layer.shutdown(PATIENCE).await });
    tokio::task::yield_now().await;
    assert_eq!(
        shop.store.calls(Verb::Close),
        0,
        "the store was closed over a handler"
    );
    handler.open();
    assert_eq!(ending.await.expect("shutdown ends"), Ok(()));
    assert_eq!(
        shop.store.calls(Verb::Complete),
        1,
        "the outcome was not recorded"
    );
    assert_eq!(shop.store.calls(Verb::Close), 1, "the store was not closed");
}

async fn shutdown_waits_for_completions_that_failed(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Complete, Fault::DOWN);
    let second_try = shop.store.hold_before(Verb::Complete);
    shop.post("/charges").key("k").send().await.expect_run(1);
    second_try.reached().await;
    let layer = shop.layer.clone();
    let ending = tokio::spawn(async move { layer.shutdown(PATIENCE).await });
    tokio::task::yield_now().await;
    assert_eq!(
        shop.store.calls(Verb::Close),
        0,
        "the store was closed over an outcome"
    );
    second_try.open();
    assert_eq!(ending.await.expect("shutdown ends"), Ok(()));
    assert_eq!(
        shop.store.calls(Verb::Complete),
        2,
        "the outcome was not recorded"
    );
}

async fn shutdown_waits_for_releases_that_failed(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    shop.store.next(Verb::Release, Fault::DOWN);
    shop.post("/charges").key("k").send().await;
    assert_eq!(shop.layer.shutdown(PATIENCE).await, Ok(()));
    assert_eq!(
        shop.store.calls(Verb::Release),
        2,
        "a ghost outlives its process"
    );
}

async fn after_shutdown_nothing_runs(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    assert_eq!(shop.layer.shutdown(PATIENCE).await, Ok(()));
    let late = shop.post("/charges").key("another").send().await;
    late.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    assert_eq!(shop.work.runs(), 1, "a request ran after the end");
}

async fn shutdown_of_one_layer_is_that_of_all_layers_over_its_store(backend: Backend) {
    let store = backend.process();
    let one = backend.shop().over(store.clone()).open().await;
    let other = backend.shop().over(store.clone()).open().await;
    let handler = other.work.hold();
    let first = other.post("/charges").key("k").start();
    handler.reached().await;
    let layer = one.layer.clone();
    let ending = tokio::spawn(async move { layer.shutdown(PATIENCE).await });
    tokio::task::yield_now().await;
    assert_eq!(
        store.calls(Verb::Close),
        0,
        "the store was closed over a handler"
    );
    handler.open();
    assert_eq!(ending.await.expect("shutdown ends"), Ok(()));
    first.answer().await.expect_run(1);
}

/// 1. A handler hangs. 2. The deadline comes.
async fn shutdown_does_not_wait_longer_than_its_deadline(backend: Backend) {
    let shop = backend.shop().in_memory();
    let _never_opened = shop.work.hold();
    let _first = shop.post("/charges").key("k").start();
    shop.work.begun(1).await;
    let ended = shop.layer.shutdown(Duration::from_secs(30)).await;
    assert_eq!(
        ended,
        Err(ShutdownTimedOut),
        "a handler that runs is no clean end"
    );
    assert_eq!(shop.store.calls(Verb::Close), 1, "the store was not closed");
}

async fn shutdown_does_not_wait_for_an_outcome_longer_than_its_deadline(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.always(Verb::Complete, Fault::DOWN);
    shop.post("/charges").key("k").send().await.expect_run(1);
    let ended = shop.layer.shutdown(Duration::from_secs(30)).await;
    assert_eq!(
        ended,
        Err(ShutdownTimedOut),
        "an outcome that is lost is no clean end"
    );
}

/// The store accepted everything, and hangs as it is closed.
async fn shutdown_does_not_wait_for_the_store_longer_than_its_deadline(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.always(Verb::Close, Fault::Hangs);
    shop.post("/charges").key("k").send().await.expect_run(1);
    let ending = shop.layer.shutdown(Duration::from_secs(30));
    let ended = tokio::time::timeout(Duration::from_hours(1), ending).await;
    let ended = ended.expect("shutdown hangs with its store");
    assert_eq!(
        ended,
        Err(ShutdownTimedOut),
        "a store that is not closed is no clean end"
    );
}
