//! What surrounds a handler: its span, its extractor, and that who it runs for
//! is decided once.

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::post,
};
use axum_idempotency::{Idempotency, PolicyBuilder};
use http::{HeaderValue, Method};
use tracing::Instrument as _;

use crate::support::{Backend, Logs, Work, on_every_backend, scoped};

on_every_backend!(
    the_handler_runs_inside_the_span_of_its_request,
    a_handler_that_relies_on_the_layer_fails_without_it,
    a_handler_may_do_without_a_key,
    who_a_request_belongs_to_is_decided_once,
    a_clock_that_steps_back_does_not_make_a_client_wait_longer,
);

async fn the_handler_runs_inside_the_span_of_its_request(backend: Backend) {
    async fn in_a_span(request: Request, next: Next) -> Response {
        let span = tracing::info_span!(target: "axum_idempotency", "of_the_request");
        next.run(request).instrument(span).await
    }
    let _logs = Logs::capture();
    let shop = backend
        .shop()
        .work(Work::telling_its_spans())
        .outside(|router| router.layer(from_fn(in_a_span)))
        .open()
        .await;
    let answer = shop.post("/charges").key("k").send().await;
    assert_eq!(
        answer.body, "of_the_request:idempotency",
        "the handler's logs belong to its request"
    );
}

async fn attempt(idempotency: Idempotency) -> String {
    idempotency.attempt().to_string()
}

async fn perhaps(idempotency: Option<Idempotency>) -> String {
    idempotency.map_or("no key".to_owned(), |idempotency| {
        idempotency.key().as_str().to_owned()
    })
}

async fn a_handler_that_relies_on_the_layer_fails_without_it(backend: Backend) {
    let shop = backend
        .shop()
        .routes(|_, layer| {
            let behind = Router::new().route("/behind", post(attempt));
            behind.layer(layer.clone()).route("/beside", post(attempt))
        })
        .open()
        .await;
    let behind = shop.post("/behind").key("k").send().await;
    assert_eq!((behind.status.as_u16(), &behind.body[..]), (200, &b"1"[..]));
    let beside = shop.post("/beside").key("k").send().await;
    assert_eq!(
        beside.status, 500,
        "a handler ran without the protection it asks for"
    );
}

async fn a_handler_may_do_without_a_key(backend: Backend) {
    let shop = backend
        .shop()
        .policy(PolicyBuilder::key_optional)
        .routes(|_, layer| Router::new().route("/", post(perhaps)).layer(layer.clone()))
        .open()
        .await;
    assert_eq!(shop.post("/").send().await.body, "no key");
    assert_eq!(shop.post("/").key("k-1").send().await.body, "k-1");
}

/// What inner layers do to the request changes neither the record that its
/// outcome goes to nor the request that a repeat is compared with.
async fn who_a_request_belongs_to_is_decided_once(backend: Backend) {
    async fn rewrite(mut request: Request, next: Next) -> Response {
        let bob = HeaderValue::from_static("Bearer bob");
        request.headers_mut().insert("authorization", bob);
        let other = HeaderValue::from_static("other");
        request.headers_mut().insert("idempotency-key", other);
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = "/elsewhere".parse().expect("a path");
        *request.body_mut() = "rewritten".into();
        request.extensions_mut().clear();
        next.run(request).await
    }
    let work = Work::answering(|seen| async move { seen.body.into_response() });
    let shop = backend
        .shop()
        .work(work)
        .routes(|work, layer| {
            let rewritten = work.router().layer(from_fn(rewrite));
            rewritten.layer(layer.clone())
        })
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "rewritten", "the inner layer was at work");
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1);
    assert!(
        backend.record_of("bob", "other").await.is_none(),
        "another record was made"
    );
    assert_eq!(shop.layer.policy().ttl(), axum_idempotency::Ttl::DEFAULT);
}

/// 1. A request runs under a lease that the store's clock granted.
/// 2. The store's clock steps back ten minutes.
/// 3. A duplicate is told to wait no longer than a lease.
async fn a_clock_that_steps_back_does_not_make_a_client_wait_longer(backend: Backend) {
    let (one, other) = (backend.shop().open().await, backend.shop().open().await);
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    let name = scoped("alice", "k");
    let record = axum_idempotency::store::Store::get(&one.store, name).await;
    let made = record
        .expect("the store answers")
        .expect("the key is claimed")
        .created_at;
    backend.clock.set(made - std::time::Duration::from_mins(10));
    let repeat = other.post("/charges").key("k").send().await;
    repeat
        .expect_problem(
            409,
            "idempotency_request_in_progress",
            axum_idempotency::Retry::SameKeyLater,
        )
        .with_retry_after_up_to(30);
    handler.open();
    first.answer().await.expect_run(1);
    assert!(
        other
            .post("/charges")
            .key("k")
            .send()
            .await
            .is_marked_as_replay()
    );
}
