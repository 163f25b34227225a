//! Deliveries inside the retention.

use std::convert::Infallible;

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use axum_idempotency::{
    Abandoned, InFlight, PolicyBuilder, RecordState, Recording, ResourceId, Retry, Tombstone,
    archive::Archive as _, store::Store as _,
};
use http::{Request, StatusCode};
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::{
    DAY, LEASE, RETENTION, abandon_the_first_attempt, deliver, key_of, stripe, stripe_with,
};
use crate::support::{Backend, PATIENCE, Verb, Work, on_every_backend};

on_every_backend!(
    a_duplicate_of_a_delivery_that_succeeded_gets_its_answer_and_runs_nothing,
    a_duplicate_whose_answer_was_not_kept_is_acknowledged,
    a_duplicate_of_a_failure_that_the_handler_called_final_is_acknowledged,
    a_duplicate_while_the_first_delivery_runs_is_told_to_come_back,
    a_duplicate_waits_for_the_first_delivery_where_the_policy_says_so,
    a_duplicate_meets_a_first_delivery_of_another_process_that_is_still_running,
    whatever_fails_is_forgotten_and_its_retry_runs,
    a_handler_that_panics_is_forgotten_and_its_retry_runs,
    a_service_that_fails_is_forgotten_and_its_retry_runs,
    a_body_that_panics_is_forgotten_and_its_retry_runs,
    a_first_attempt_that_lapsed_is_followed_by_a_second_one,
    a_second_attempt_that_fails_does_not_forget_that_there_was_a_first,
    a_first_attempt_that_lapsed_stays_unknown_where_nothing_may_run_twice,
    an_outcome_that_is_only_in_the_archive_is_acknowledged_by_a_takeover,
);

async fn a_duplicate_of_a_delivery_that_succeeded_gets_its_answer_and_runs_nothing(
    backend: Backend,
) {
    let shop = stripe(&backend).open().await;
    let first = deliver(&shop, "evt_1").send().await;
    first.expect_run(1);
    let resent = r#"{"id":"evt_1","type":"charge.succeeded","resent":true}"#;
    for duplicate in [
        deliver(&shop, "evt_1"),
        shop.post("/hooks").body(resent),
        deliver(&shop, "evt_1").header("stripe-signature", "another"),
    ] {
        duplicate.send().await.expect_replay_of(&first);
    }
    backend.clock.advance(RETENTION.saturating_sub(DAY));
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "an event was processed twice");
    deliver(&shop, "evt_2").send().await.expect_run(2);
}

async fn a_duplicate_whose_answer_was_not_kept_is_acknowledged(backend: Backend) {
    let shop = stripe_with(&backend, PolicyBuilder::keep_no_bodies)
        .open()
        .await;
    deliver(&shop, "evt_1").send().await.expect_run(1);
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(shop.work.runs(), 1, "an event was processed twice");
}

async fn a_duplicate_of_a_failure_that_the_handler_called_final_is_acknowledged(backend: Backend) {
    let work = Work::answering(|_| async {
        (StatusCode::BAD_REQUEST, Recording::Keep, "unknown type").into_response()
    });
    let shop = stripe(&backend).work(work).open().await;
    assert_eq!(deliver(&shop, "evt_1").send().await.status, 400);
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(shop.work.runs(), 1, "what is final ran again");
}

async fn a_duplicate_while_the_first_delivery_runs_is_told_to_come_back(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let handler = shop.work.hold();
    let first = deliver(&shop, "evt_1").start();
    handler.reached().await;
    let duplicate = deliver(&shop, "evt_1").send().await;
    duplicate
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(LEASE.as_secs());
    handler.open();
    let first = first.answer().await;
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "an event was processed twice");
}

async fn a_duplicate_waits_for_the_first_delivery_where_the_policy_says_so(backend: Backend) {
    let waiting =
        |policy: PolicyBuilder| policy.keep_no_bodies().in_flight(InFlight::Wait(PATIENCE));
    let shop = stripe_with(&backend, waiting).open().await;
    let handler = shop.work.hold();
    let first = deliver(&shop, "evt_1").start();
    handler.reached().await;
    let duplicate = deliver(&shop, "evt_1").start();
    handler.open();
    first.answer().await.expect_run(1);
    duplicate.answer().await.expect_acknowledgement();
    assert_eq!(shop.work.runs(), 1, "an event was processed twice");
}

async fn a_duplicate_meets_a_first_delivery_of_another_process_that_is_still_running(
    backend: Backend,
) {
    let (one, other) = (stripe(&backend).open().await, stripe(&backend).open().await);
    let handler = one.work.hold();
    let first = deliver(&one, "evt_1").start();
    handler.reached().await;
    let duplicate = deliver(&other, "evt_1").send().await;
    duplicate
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(LEASE.as_secs());
    handler.open();
    let first = first.answer().await;
    deliver(&other, "evt_1")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(other.work.runs(), 0, "an event was processed twice");
}

async fn whatever_fails_is_forgotten_and_its_retry_runs(backend: Backend) {
    let failing = Work::answering(|seen| async move {
        match seen.parts.headers.get("fails-with") {
            Some(status) => {
                let status = StatusCode::from_bytes(status.as_bytes());
                status.expect("a test's status is one").into_response()
            }
            None => seen.charge(),
        }
    });
    let shop = stripe(&backend).work(failing).open().await;
    for status in ["302", "400", "404", "409", "422", "429", "500", "503"] {
        let runs = shop.work.runs();
        let event = format!("evt_{status}");
        let failed = deliver(&shop, &event).header("fails-with", status);
        assert_eq!(failed.send().await.status.as_str(), status);
        let record = shop.store.get(key_of(&shop, &event)).await;
        assert_eq!(record.expect("an answer"), None, "{status} was recorded");
        deliver(&shop, &event).send().await.expect_run(runs + 2);
        let duplicate = deliver(&shop, &event).send().await;
        assert!(duplicate.is_marked_as_replay(), "{status} was not mended");
    }
}

async fn a_handler_that_panics_is_forgotten_and_its_retry_runs(backend: Backend) {
    let work = Work::answering(|seen| async move {
        assert!(seen.run > 1, "as the test asked");
        seen.charge()
    });
    let shop = stripe(&backend).work(work).open().await;
    assert_eq!(deliver(&shop, "evt_1").send().await.status, 500);
    deliver(&shop, "evt_1").send().await.expect_run(2);
}

/// Whatever becomes of the error outside.
async fn a_service_that_fails_is_forgotten_and_its_retry_runs(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let failing = service_fn(|_: Request<Body>| async {
        Err::<Response, _>(std::io::Error::other("as the test asked"))
    });
    let event = Request::post("/hooks").body(Body::from(r#"{"id":"evt_1"}"#));
    let failed = shop.layer.layer(failing).oneshot(event.expect("a request"));
    assert!(
        failed.await.is_err(),
        "the error of the service is passed on"
    );
    let retry = deliver(&shop, "evt_1").send().await;
    retry.expect_run(1);
    assert_eq!(retry.json()["attempt"], 1, "a failure is forgotten");
}

async fn a_body_that_panics_is_forgotten_and_its_retry_runs(backend: Backend) {
    let work = Work::answering(|seen| async move {
        if seen.run > 1 {
            return seen.charge();
        }
        let frames = futures_util::stream::poll_fn(
            |_| -> std::task::Poll<Option<Result<bytes::Bytes, Infallible>>> {
                panic!("as the test asked")
            },
        );
        Response::new(Body::from_stream(frames))
    });
    let shop = stripe(&backend).work(work).open().await;
    assert_eq!(deliver(&shop, "evt_1").send().await.status, 500);
    deliver(&shop, "evt_1").send().await.expect_run(2);
}

async fn a_first_attempt_that_lapsed_is_followed_by_a_second_one(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(LEASE);
    let shop = stripe(&backend).open().await;
    let retry = deliver(&shop, "evt_1").send().await;
    retry.expect_run(1);
    assert_eq!(
        retry.json()["attempt"],
        2,
        "it was told that it is the first"
    );
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_replay_of(&retry);
}

async fn a_second_attempt_that_fails_does_not_forget_that_there_was_a_first(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(LEASE);
    let work = Work::answering(|seen| async move {
        match seen.run {
            1 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            _ => seen.charge(),
        }
    });
    let shop = stripe(&backend).work(work).open().await;
    assert_eq!(deliver(&shop, "evt_1").send().await.status, 500);
    let third = deliver(&shop, "evt_1").send().await;
    third.expect_run(2);
    assert_eq!(third.json()["attempt"], 3);
}

async fn a_first_attempt_that_lapsed_stays_unknown_where_nothing_may_run_twice(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(LEASE);
    let shop = stripe_with(&backend, |policy| policy.abandoned(Abandoned::Refuse))
        .open()
        .await;
    let retry = deliver(&shop, "evt_1").send().await;
    retry.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    let key = key_of(&shop, "evt_1");
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
    assert_eq!(shop.work.runs(), 0, "it ran twice");
}

/// As where outcomes are archived first, and the process ends before the record
/// is completed.
async fn an_outcome_that_is_only_in_the_archive_is_acknowledged_by_a_takeover(backend: Backend) {
    let stuck = abandon_the_first_attempt(&backend).await;
    let key = key_of(&stuck, "evt_1");
    let record = stuck.store.get(key).await.expect("an answer");
    let record = record.expect("the first attempt left a record");
    let archived = Tombstone {
        status: 201,
        resource_id: ResourceId::new("ch_1"),
        ..record.tombstone()
    };
    let added = stuck.archive.insert(&[archived]).await;
    added.expect("the archive takes a row");
    backend.clock.advance(LEASE);
    let shop = stripe(&backend).open().await;
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(shop.archive.calls(Verb::Lookup), 1);
    let record = shop.store.get(key).await.expect("an answer");
    let state = record.map(|record| record.state);
    assert!(
        matches!(state, Some(RecordState::Completed(done)) if done.status == 201),
        "the archive's outcome did not complete the record"
    );
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_acknowledgement();
    assert_eq!(shop.work.runs(), 0, "what is known to be done ran again");
}
