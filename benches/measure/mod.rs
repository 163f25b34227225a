//! Measures two or more ways of serving side by side, in turns, so that a
//! noisy machine disturbs them alike. What counts is the ratio.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Body,
    http::{Request, StatusCode},
    response::Response,
    routing::post,
};
use serde_json::Value;
use tower::ServiceExt as _;

/// A request body of one KiB of JSON.
pub(crate) fn kibibyte() -> String {
    let bare = r#"{"amount":4500,"currency":"gbp","note":""}"#;
    bare.replace("\"\"}", &format!("\"{}\"}}", "n".repeat(1024 - bare.len())))
}

/// A handler that does what a small API does: reads JSON, answers JSON.
pub(crate) fn bare() -> Router {
    Router::new().route("/charges", post(charge))
}

async fn charge(Json(mut body): Json<Value>) -> (StatusCode, Json<Value>) {
    body["id"] = Value::from("ch_1");
    (StatusCode::CREATED, Json(body))
}

/// A request with a key.
pub(crate) fn request(key: u64, body: &str) -> Request<Body> {
    Request::post("/charges")
        .header("content-type", "application/json")
        .header("authorization", "Bearer token")
        .header("idempotency-key", format!("key-{key}"))
        .body(Body::from(body.to_owned()))
        .expect("a valid request")
}

/// Nanoseconds per request through `router`, in process, one after the other.
pub(crate) async fn in_process(router: &Router, requests: Vec<Request<Body>>) -> f64 {
    let count = requests.len();
    let begun = Instant::now();
    for request in requests {
        let answered: Result<Response, Infallible> = router.clone().oneshot(request).await;
        let Ok(response) = answered;
        assert_eq!(response.status(), StatusCode::CREATED);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        std::hint::black_box(body.expect("a whole body"));
    }
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// The middle of some measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A duration in words that fit a line.
pub(crate) fn microseconds(nanoseconds: f64) -> String {
    format!(
        "{:.2} µs",
        Duration::from_nanos(nanoseconds as u64).as_secs_f64() * 1e6
    )
}
