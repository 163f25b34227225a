//! Handlers that panic, fail or hang: nobody knows whether they had their
//! effect, so no retry runs again.

use std::{convert::Infallible, future::ready, time::Duration};

use axum::{body::Body, response::IntoResponse as _};
use axum_idempotency::Retry;
use http::{Request, Response};
use serde_json::json;
use tower::{Layer as _, Service as _, ServiceExt, service_fn};

use crate::support::{Backend, Work, on_every_backend, on_tokio_time};

on_every_backend!(
    a_panic_after_the_effect_is_a_500_that_is_replayed,
    a_panic_before_the_handlers_future_exists_is_a_500_too,
    a_body_that_panics_is_a_500_that_is_replayed,
    an_error_of_the_inner_service_is_passed_on_and_its_retry_gets_a_500,
    the_service_that_was_ready_is_the_one_that_is_called,
);

on_tokio_time!(max_lease_aborts_a_handler_and_its_key_can_be_taken_over,);

async fn a_panic_after_the_effect_is_a_500_that_is_replayed(backend: Backend) {
    let work = Work::answering(|seen| async move {
        // The run is counted: that is the effect.
        assert!(seen.run == 0, "the receipt mail failed, as the test asked");
        seen.charge()
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 500);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "the effect was repeated");
}

/// The head of the response is there; its body panics while it is held.
async fn a_body_that_panics_is_a_500_that_is_replayed(backend: Backend) {
    let work = Work::answering(|_| {
        let frames = futures_util::stream::poll_fn(
            |_| -> std::task::Poll<Option<Result<bytes::Bytes, Infallible>>> {
                panic!("as the test asked")
            },
        );
        ready(Response::new(Body::from_stream(frames)))
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 500);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "the effect was repeated");
}

async fn a_panic_before_the_handlers_future_exists_is_a_500_too(backend: Backend) {
    let shop = backend.shop().open().await;
    let broken = service_fn(
        |_: Request<Body>| -> std::future::Ready<Result<Response<Body>, Infallible>> {
            panic!("as the test asked")
        },
    );
    let service = shop.layer.layer(broken);
    let first = service.clone().oneshot(request("k")).await.unwrap();
    assert_eq!(first.status(), 500);
    let repeat = service.oneshot(request("k")).await.unwrap();
    assert_eq!(repeat.status(), 500);
    assert_eq!(
        repeat.headers()["idempotent-replayed"],
        "true",
        "it ran again"
    );
}

async fn an_error_of_the_inner_service_is_passed_on_and_its_retry_gets_a_500(backend: Backend) {
    let shop = backend.shop().open().await;
    let runs = tokio::sync::watch::Sender::new(0);
    let counted = runs.clone();
    let failing = service_fn(move |_: Request<Body>| {
        counted.send_modify(|runs| *runs += 1);
        ready(Err::<Response<Body>, _>("the upstream is gone"))
    });
    let service = shop.layer.layer(failing);
    let first = service.clone().oneshot(request("k")).await;
    assert_eq!(
        first.err(),
        Some("the upstream is gone"),
        "the error is passed on"
    );
    let repeat = service.oneshot(request("k")).await.unwrap();
    assert_eq!(repeat.status(), 500);
    assert_eq!(
        repeat.headers()["idempotent-replayed"],
        "true",
        "it ran again"
    );
    assert_eq!(*runs.borrow(), 1, "the inner service ran again");
}

/// Of a service and its clone only the one that said so is ready.
async fn the_service_that_was_ready_is_the_one_that_is_called(backend: Backend) {
    let shop = backend.shop().open().await;
    let strict = Strict { is_ready: false };
    let mut service = shop.layer.layer(strict);
    for key in ["a", "b"] {
        let ready = ServiceExt::<Request<Body>>::ready(&mut service)
            .await
            .unwrap();
        let answer = ready.call(request(key)).await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

#[derive(Debug)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl tower::Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        self.is_ready = true;
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(self.is_ready, "a service was called that was not ready");
        self.is_ready = false;
        ready(Ok("done".into_response()))
    }
}

fn request(key: &str) -> Request<Body> {
    let request = Request::post("/charges")
        .header("authorization", "Bearer alice")
        .header("idempotency-key", key);
    request.body(Body::empty()).expect("a request")
}

/// 1. The handler hangs; its lease is renewed again and again.
/// 2. `max_lease` aborts it. Its client, and a duplicate that waited, learn
///    that the outcome is unknown.
/// 3. The lease lapses, and the next request takes over.
async fn max_lease_aborts_a_handler_and_its_key_can_be_taken_over(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.in_flight(axum_idempotency::InFlight::Wait(HOUR)))
        .in_memory();
    let _never_opened = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    shop.work.begun(1).await;
    let waiting = shop.post("/charges").key("k").start();
    for answer in [first.answer().await, waiting.answer().await] {
        answer
            .expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile)
            .with(&json!({"created_at": "2026-12-01T00:00:00Z"}));
    }
    assert_eq!(shop.work.aborted(), 1, "the handler was left running");
    // The last renewal lapses at the latest a lease after it.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let next = shop.post("/charges").key("k").send().await;
    next.expect_run(2);
    assert_eq!(
        next.json()["attempt"],
        2,
        "it does not know of the first attempt"
    );
}

const HOUR: Duration = Duration::from_hours(1);
