//! After which answers a retry runs again, and what is recorded of the others.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use axum_idempotency::{RecordState, Recording, ResourceId};
use http::{
    StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use tower_http::timeout::TimeoutLayer;

use crate::support::{Answer, Backend, Shop, Work, on_every_backend, on_tokio_time};

on_every_backend!(
    too_early_and_too_many_requests_run_again,
    every_other_failure_is_final,
    a_policy_can_forget_further_statuses,
    a_policy_can_keep_what_is_forgotten_by_default,
    a_handler_can_declare_that_nothing_happened,
    a_handler_can_declare_that_its_answer_is_final,
    a_forgotten_first_attempt_leaves_nothing,
    a_forgotten_second_attempt_never_forgets_that_there_was_a_first,
    the_resource_id_comes_from_the_handler_then_the_body_then_the_location,
    what_could_hide_a_payload_is_no_resource_id,
);

on_tokio_time!(
    a_timeout_layer_inside_is_final,
    a_timeout_layer_outside_changes_nothing,
);

/// Answers with the status that the path names, and says which run it was.
fn answering_the_status() -> Work {
    Work::answering(|seen| async move {
        let path = seen.parts.uri.path().trim_start_matches('/');
        let status = StatusCode::from_u16(path.parse().expect("the path is a status"));
        (status.expect("a status"), format!("run {}", seen.run)).into_response()
    })
}

async fn twice(shop: &Shop, path: &str) -> (Answer, Answer) {
    let first = shop.post(path).key(path).send().await;
    (first, shop.post(path).key(path).send().await)
}

async fn too_early_and_too_many_requests_run_again(backend: Backend) {
    let shop = backend.shop().work(answering_the_status()).open().await;
    for path in ["/425", "/429"] {
        let runs = shop.work.runs();
        let (first, second) = twice(&shop, path).await;
        assert_eq!(
            first.body,
            format!("run {}", runs + 1),
            "the first of {path}"
        );
        assert_eq!(
            second.body,
            format!("run {}", runs + 2),
            "{path} did not run again"
        );
    }
}

async fn every_other_failure_is_final(backend: Backend) {
    let shop = backend.shop().work(answering_the_status()).open().await;
    for path in [
        "/400", "/401", "/402", "/404", "/408", "/409", "/422", "/500", "/502", "/503", "/504",
    ] {
        let (first, second) = twice(&shop, path).await;
        second.expect_replay_of(&first);
    }
}

async fn a_policy_can_forget_further_statuses(backend: Backend) {
    let shop = backend
        .shop()
        .work(answering_the_status())
        .policy(|policy| policy.forget_statuses([StatusCode::BAD_GATEWAY]))
        .open()
        .await;
    twice(&shop, "/502").await;
    twice(&shop, "/429").await;
    assert_eq!(shop.work.runs(), 4, "502 and 429 run again");
    let (first, second) = twice(&shop, "/500").await;
    second.expect_replay_of(&first);
}

async fn a_policy_can_keep_what_is_forgotten_by_default(backend: Backend) {
    let shop = backend
        .shop()
        .work(answering_the_status())
        .policy(|policy| policy.keep_statuses([StatusCode::TOO_MANY_REQUESTS]))
        .open()
        .await;
    let (first, second) = twice(&shop, "/429").await;
    second.expect_replay_of(&first);
    twice(&shop, "/425").await;
    assert_eq!(shop.work.runs(), 3, "425 runs again");
}

async fn a_handler_can_declare_that_nothing_happened(backend: Backend) {
    let work =
        Work::answering(|seen| async move { (Recording::Forget, seen.charge()).into_response() });
    let shop = backend.shop().work(work).open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    shop.post("/charges").key("k").send().await.expect_run(2);
}

async fn a_handler_can_declare_that_its_answer_is_final(backend: Backend) {
    let work = Work::answering(|_| async {
        (StatusCode::TOO_MANY_REQUESTS, Recording::Keep, "for ever").into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let (first, second) = twice(&shop, "/charges").await;
    assert_eq!(first.status, 429);
    second.expect_replay_of(&first);
}

async fn a_forgotten_first_attempt_leaves_nothing(backend: Backend) {
    let shop = backend.shop().work(answering_the_status()).open().await;
    shop.post("/429").key("k").send().await;
    assert_eq!(
        backend.record("k").await,
        None,
        "a forgotten answer left a record"
    );
    // Even for another request the key is free again.
    let other = shop.post("/200").key("k").body("other").send().await;
    assert_eq!(other.body, "run 2");
}

/// 1. The first attempt lapses: it may have had its effect.
/// 2. The second answers 429, which is not kept.
/// 3. The third must still learn that it is not the first.
async fn a_forgotten_second_attempt_never_forgets_that_there_was_a_first(backend: Backend) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let handler = stuck.work.hold();
    let _first = stuck.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(Duration::from_secs(30));
    let work = Work::answering(|seen| async move {
        let attempt = seen.idempotency().attempt();
        let status = if attempt == 2 {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::OK
        };
        (status, format!("attempt {attempt}")).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let second = shop.post("/charges").key("k").send().await;
    assert_eq!(
        (second.status.as_u16(), &second.body[..]),
        (429, &b"attempt 2"[..])
    );
    let left = backend
        .record("k")
        .await
        .expect("the first attempt is not forgotten");
    assert_eq!(left.attempt, 2, "the number of attempts is kept");
    assert!(
        matches!(left.state, RecordState::InProgress { .. }),
        "it is in progress, and lapsed"
    );
    let third = shop.post("/charges").key("k").send().await;
    assert_eq!(third.body, "attempt 3", "it did not run again at once");
    let other = shop.post("/charges").key("k").body("other").send().await;
    assert_eq!(
        other.status, 422,
        "the key still belongs to the first request"
    );
}

async fn the_resource_id_comes_from_the_handler_then_the_body_then_the_location(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let location = (LOCATION, "/charges/from-location");
        let json = |kind: &'static str| [(CONTENT_TYPE, kind), location];
        let body = r#"{"id":"from-body","deep":{"n":7}}"#;
        match seen.parts.uri.path() {
            "/handler" => {
                let id = ResourceId::new("from-handler").expect("a short id");
                (id, json("application/json"), body).into_response()
            }
            "/json" => (json("application/json"), body).into_response(),
            "/problem" => (json("application/problem+json"), body).into_response(),
            "/shouted" => (json("Application/JSON; charset=UTF-8"), body).into_response(),
            "/text" => (json("text/plain"), body).into_response(),
            "/bare-json" => (json("application/json"), "[]").into_response(),
            _ => body.into_response(),
        }
    });
    let shop = backend.shop().work(work.clone()).open().await;
    for (path, expected) in [
        ("/handler", Some("from-handler")),
        ("/json", Some("from-body")),
        ("/problem", Some("from-body")),
        ("/shouted", Some("from-body")),
        ("/text", Some("from-location")),
        ("/bare-json", Some("from-location")),
        ("/nothing", None),
    ] {
        shop.post(path).key(path).send().await;
        assert_eq!(
            resource_id(&backend, path).await.as_deref(),
            expected,
            "of {path}"
        );
    }
    let deep = backend
        .shop()
        .work(work)
        .policy(|policy| policy.resource_id_pointer("/deep/n"))
        .open()
        .await;
    deep.post("/json").key("deep").send().await;
    assert_eq!(resource_id(&backend, "deep").await.as_deref(), Some("7"));
}

async fn what_could_hide_a_payload_is_no_resource_id(backend: Backend) {
    let long = "x".repeat(256);
    let bodies = [
        r#"{"id":"a b"}"#.to_owned(),
        r#"{"id":"caf\u00e9"}"#.to_owned(),
        r#"{"id":{"card":"4242"}}"#.to_owned(),
        r#"{"id":null}"#.to_owned(),
        format!(r#"{{"id":"{long}"}}"#),
    ];
    let work = Work::answering(|seen| async move {
        ([(CONTENT_TYPE, "application/json")], seen.body).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    for (key, body) in bodies.into_iter().enumerate() {
        let key = format!("k-{key}");
        shop.post("/charges")
            .key(&key)
            .body(body.clone())
            .send()
            .await;
        assert_eq!(resource_id(&backend, &key).await, None, "for {body}");
    }
}

async fn resource_id(backend: &Backend, key: &str) -> Option<String> {
    let record = backend
        .record(key)
        .await
        .expect("the request left a record");
    let RecordState::Completed(completion) = record.state else {
        panic!("the record of {key} is not completed");
    };
    completion.resource_id.map(|id| id.as_str().to_owned())
}

/// 1. The handler has its effect and hangs.
/// 2. A timeout layer inside drops it and answers 408: nobody knows whether
///    the effect happened.
async fn a_timeout_layer_inside_is_final(backend: Backend) {
    let shop = backend
        .shop()
        .routes(|work, layer| {
            let status = StatusCode::REQUEST_TIMEOUT;
            let timeout = TimeoutLayer::with_status_code(status, Duration::from_secs(1));
            work.router().layer(timeout).layer(layer.clone())
        })
        .in_memory();
    let _never_opened = shop.work.hold();
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 408);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(
        shop.work.runs(),
        1,
        "an effect that may have happened is repeated"
    );
}

/// A timeout layer outside drops the request, and not the handler.
async fn a_timeout_layer_outside_changes_nothing(backend: Backend) {
    let shop = backend
        .shop()
        .outside(|router| {
            let status = StatusCode::REQUEST_TIMEOUT;
            router.layer(TimeoutLayer::with_status_code(
                status,
                Duration::from_secs(1),
            ))
        })
        .in_memory();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 408);
    handler.open();
    shop.work.ended(1).await;
    let repeat = shop.post("/charges").key("k").send().await;
    assert!(
        repeat.is_marked_as_replay(),
        "the handler was dropped with its client"
    );
    assert_eq!(repeat.json()["run"], 1);
}

/// What inner layers make of the handler's answer is what its client gets, and
/// so what a retry gets.
#[tokio::test]
async fn a_layer_that_rewrites_the_answer_inside_cannot_make_a_request_run_again() {
    async fn rewrite(response: Response) -> Response {
        let (mut parts, body) = response.into_parts();
        parts.status = StatusCode::PAYMENT_REQUIRED;
        Response::from_parts(parts, Body::new(body))
    }
    let backend = Backend::memory();
    let shop = backend
        .shop()
        .routes(|work, layer| {
            let rewritten = work.router().layer(axum::middleware::map_response(rewrite));
            rewritten.layer(layer.clone())
        })
        .open()
        .await;
    let (first, second) = twice(&shop, "/charges").await;
    assert_eq!(first.status, 402);
    second.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1);
}
