//! The form of a rejection: what an API can change about it, and that nothing
//! stored leaks into it.

use axum::{body::Body, response::IntoResponse as _};
use axum_idempotency::{Rejection, Retry};
use http::{Response, StatusCode};

use crate::support::{Answer, Backend, on_every_backend};

on_every_backend!(
    the_type_is_a_urn_unless_the_api_has_pages_for_its_problems,
    the_documentation_is_linked_from_every_problem,
    a_hook_may_render_a_rejection_and_leave_the_others,
    a_rejection_repeats_neither_key_nor_body_nor_principal,
);

async fn the_type_is_a_urn_unless_the_api_has_pages_for_its_problems(backend: Backend) {
    let plain = backend.shop().open().await;
    let answer = plain.post("/charges").send().await;
    assert_eq!(
        answer.json()["type"],
        "urn:axum-idempotency:problem:idempotency-key-missing"
    );
    assert_eq!(answer.header("link"), None, "a link to no documentation");

    let documented = backend
        .shop()
        .layer(|layer| layer.problem_type_base("https://api.example.com/problems/"))
        .open()
        .await;
    let answer = documented.post("/charges").send().await;
    assert_eq!(
        answer.json()["type"],
        "https://api.example.com/problems/idempotency-key-missing"
    );
}

async fn the_documentation_is_linked_from_every_problem(backend: Backend) {
    let shop = backend
        .shop()
        .layer(|layer| layer.documentation("https://api.example.com/docs/idempotency"))
        .open()
        .await;
    let link = Some("<https://api.example.com/docs/idempotency>; rel=\"describedby\"");
    let missing = shop.post("/charges").send().await;
    assert_eq!(missing.header("link"), link, "beside a missing key");
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(
        first.header("link"),
        None,
        "beside an answer of the handler"
    );
    let reused = shop.post("/refunds").key("k").send().await;
    assert_eq!(reused.status, 422);
    assert_eq!(reused.header("link"), link, "beside a reused key");
}

async fn a_hook_may_render_a_rejection_and_leave_the_others(backend: Backend) {
    fn teapot(rejection: &Rejection) -> Option<Response<Body>> {
        let Rejection::KeyMissing { source } = rejection else {
            return None;
        };
        let code = rejection.code();
        let text = format!("{code}: {source}, {}", rejection.detail());
        Some((StatusCode::IM_A_TEAPOT, text).into_response())
    }
    let shop = backend
        .shop()
        .layer(|layer| layer.render(teapot))
        .open()
        .await;
    let hooked = shop.post("/charges").send().await;
    assert_eq!(hooked.status, 418, "the hook was not asked");
    let text = String::from_utf8_lossy(&hooked.body);
    assert!(
        text.starts_with("idempotency_key_missing: Idempotency-Key"),
        "the hook got no typed rejection: {text}"
    );
    let left = shop.post("/charges").key("\"").send().await;
    left.expect_problem(400, "idempotency_key_invalid", Retry::Fix);
}

async fn a_rejection_repeats_neither_key_nor_body_nor_principal(backend: Backend) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").from("hunter2").key("order-4711");
    assert_eq!(first.body("first-payload").send().await.status, 201);
    let reused = shop.post("/charges").from("hunter2").key("order-4711");
    let reused = reused.body("other-payload").send().await;
    assert_eq!(reused.status, 422);
    backend.clock.advance(std::time::Duration::from_hours(24));
    let late = shop.post("/charges").from("hunter2").key("order-4711");
    let late = late.body("other-payload").send().await;
    assert_eq!(late.status, 409);
    let invalid = shop
        .post("/charges")
        .from("hunter2")
        .key("\"order-4711")
        .send()
        .await;
    assert_eq!(invalid.status, 400);
    for answer in [reused, late, invalid] {
        for secret in ["hunter2", "order-4711", "first-payload", "other-payload"] {
            assert!(!mentions(&answer, secret), "{secret} is in {answer:?}");
        }
    }
}

fn mentions(answer: &Answer, secret: &str) -> bool {
    let body = String::from_utf8_lossy(&answer.body);
    body.contains(secret) || format!("{:?}", answer.headers).contains(secret)
}
