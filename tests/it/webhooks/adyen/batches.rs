//! Batches whose items have been done, are under way, or fail.

use std::sync::{Arc, Mutex};

use axum_idempotency::{
    webhook::{Adyen, AdyenItem},
    worker::Worker,
};
use serde_json::json;
use tracing::Instrument as _;

use super::{DAY, Desk, Failure, LEASE, again, batch, batch_of, item};
use crate::support::{Backend, Logs, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    a_batch_is_done_once_though_its_second_delivery_looks_different,
    an_item_that_fails_runs_again_and_those_that_are_done_do_not,
    an_item_whose_handler_panics_runs_again_and_those_that_are_done_do_not,
    an_item_under_way_in_another_process_is_waited_for_and_the_others_are_done,
    an_item_under_way_in_another_delivery_of_this_process_is_waited_for,
    an_outcome_that_is_corrected_is_another_event,
    an_item_twice_in_one_batch_runs_once,
    a_batch_without_items_is_accepted,
    a_client_that_hangs_up_midway_stops_nothing,
    another_workers_items_are_other_events,
);

on_tokio_time!(shutdown_waits_for_the_whole_batch);

async fn one_of_three_fails(backend: &Backend, failure: Failure) {
    let (one, other) = (Desk::open(backend), Desk::open(backend));
    let three = batch_of(["a", "b", "c"]);
    one.fails_at("b", failure);
    for delivery in 1..=2 {
        let failed = one.deliver(again(three.clone()).to_string()).await;
        assert_eq!(failed.status, 500, "delivery {delivery}");
    }
    // Those behind it were not held up.
    one.expect_attempts(&[("a", &[1]), ("b", &[1, 1]), ("c", &[1])]);
    one.is_mended();
    for desk in [&other, &one] {
        desk.deliver(again(three.clone()).to_string())
            .await
            .expect_accepted();
    }
    other.expect_attempts(&[("b", &[1])]);
    one.expect_attempts(&[("a", &[1]), ("b", &[1, 1]), ("c", &[1])]);
}

async fn a_batch_is_done_once_though_its_second_delivery_looks_different(backend: Backend) {
    let (one, other) = (Desk::open(&backend), Desk::open(&backend));
    let first = batch_of(["a", "b", "c"]);
    one.deliver(first.to_string()).await.expect_accepted();
    one.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
    for desk in [&one, &other] {
        let second = again(first.clone());
        desk.deliver(second.to_string()).await.expect_accepted();
    }
    one.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
    other.expect_attempts(&[]);
    // Beside one that is new, they are known as well.
    let third = again(batch_of(["c", "d"]));
    other.deliver(third.to_string()).await.expect_accepted();
    other.expect_attempts(&[("d", &[1])]);
}

async fn an_item_that_fails_runs_again_and_those_that_are_done_do_not(backend: Backend) {
    one_of_three_fails(&backend, Failure::Error).await;
}

async fn an_item_whose_handler_panics_runs_again_and_those_that_are_done_do_not(backend: Backend) {
    one_of_three_fails(&backend, Failure::Panic).await;
}

async fn an_item_under_way_in_another_process_is_waited_for_and_the_others_are_done(
    backend: Backend,
) {
    let (busy, desk) = (Desk::open(&backend), Desk::open(&backend));
    let gate = busy.hold("b");
    let first = busy.delivering(batch_of(["b"]));
    gate.reached().await;
    let three = batch_of(["a", "b", "c"]).to_string();
    for _ in 0..2 {
        desk.deliver(&three).await.expect_come_back();
    }
    desk.expect_attempts(&[("a", &[1]), ("c", &[1])]);
    gate.open();
    first.await.expect("no panic").expect_accepted();
    desk.deliver(&three).await.expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("c", &[1])]);
    busy.expect_attempts(&[("b", &[1])]);
}

async fn an_item_under_way_in_another_delivery_of_this_process_is_waited_for(backend: Backend) {
    let desk = Desk::open(&backend);
    let gate = desk.hold("b");
    let first = desk.delivering(batch_of(["a", "b", "c"]));
    gate.reached().await;
    let second = desk.deliver(batch_of(["a", "b", "c"]).to_string()).await;
    second.expect_come_back();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
    gate.open();
    // What the second has done is done.
    first.await.expect("no panic").expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
}

async fn an_outcome_that_is_corrected_is_another_event(backend: Backend) {
    let desk = Desk::open(&backend);
    let told = |code: &str, success: &str| {
        let mut item = item("a");
        item["NotificationRequestItem"]["eventCode"] = json!(code);
        item["NotificationRequestItem"]["success"] = json!(success);
        batch([item]).to_string()
    };
    for (runs, code, success) in [
        (1, "CAPTURE", "false"),
        (2, "CAPTURE", "true"),
        (2, "CAPTURE", "false"),
        (3, "CAPTURE_FAILED", "true"),
    ] {
        desk.deliver(told(code, success)).await.expect_accepted();
        desk.expect_attempts(&[("a", &vec![1; runs])]);
    }
}

async fn an_item_twice_in_one_batch_runs_once(backend: Backend) {
    let desk = Desk::open(&backend);
    let mut twice = batch_of(["a", "b", "a"]);
    twice["notificationItems"][2]["NotificationRequestItem"]["eventDate"] = json!("later");
    desk.deliver(twice.to_string()).await.expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1])]);
}

async fn a_batch_without_items_is_accepted(backend: Backend) {
    let desk = Desk::open(&backend);
    desk.deliver(batch([]).to_string()).await.expect_accepted();
    desk.expect_attempts(&[]);
}

async fn a_client_that_hangs_up_midway_stops_nothing(backend: Backend) {
    let (desk, other) = (Desk::open(&backend), Desk::open(&backend));
    let gate = desk.hold("a");
    let delivery = desk.delivering(batch_of(["a", "b", "c"]));
    gate.reached().await;
    delivery.abort();
    let aborted = delivery.await;
    assert!(aborted.is_err_and(|error| error.is_cancelled()));
    let last = desk.hold("c");
    gate.open();
    last.reached().await;
    last.open();
    desk.store.answered(Verb::Complete, 3).await;
    desk.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
    other
        .deliver(batch_of(["a", "b", "c"]).to_string())
        .await
        .expect_accepted();
    other.expect_attempts(&[]);
}

/// As the documentation wants it where several merchant accounts deliver.
async fn another_workers_items_are_other_events(backend: Backend) {
    let desk = Desk::open(&backend);
    let one = batch_of(["a"]).to_string();
    desk.deliver(&one).await.expect_accepted();
    let other = Worker::builder("adyen of another account", backend.process())
        .archive(backend.archive())
        .build()
        .expect("settings that work");
    let runs = Arc::new(Mutex::new(0));
    let handler = {
        let runs = Arc::clone(&runs);
        move |_: AdyenItem| {
            let runs = Arc::clone(&runs);
            async move {
                *runs.lock().expect("no panic in here") += 1;
                Ok::<_, &str>(())
            }
        }
    };
    let answer = Adyen::new(other).deliver(one.as_bytes(), handler).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(*runs.lock().expect("no panic in here"), 1);
}

/// Though each delivery goes on by itself.
#[tokio::test]
async fn what_is_logged_of_an_item_is_in_the_span_of_its_delivery() {
    let logs = Logs::capture();
    let desk = Desk::open(&Backend::memory());
    desk.fails_at("a", Failure::Error);
    let span = tracing::info_span!(target: "axum_idempotency", "delivery");
    let failed = desk.deliver(batch_of(["a"]).to_string()).instrument(span);
    assert_eq!(failed.await.status, 500);
    let text = logs.text();
    let line = text.lines().find(|line| line.contains("handler failed"));
    let line = line.expect("a failure is logged");
    assert!(line.contains("delivery"), "outside the span: {line}");
}

/// Also for the items that are still to come, though Adyen has hung up.
async fn shutdown_waits_for_the_whole_batch(backend: Backend) {
    let desk = Desk::open(&backend);
    let gate = desk.hold("a");
    let delivery = desk.delivering(batch_of(["a", "b", "c"]));
    gate.reached().await;
    delivery.abort();
    let layer = desk.worker.layer().clone();
    let shutdown = tokio::spawn(async move { layer.shutdown(DAY).await });
    tokio::time::sleep(LEASE).await;
    assert!(!shutdown.is_finished(), "it did not wait");
    gate.open();
    let ended = shutdown.await.expect("no panic");
    ended.expect("nothing runs any more");
    desk.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1])]);
}
