//! Keys whose window has passed at the server.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, PolicyBuilder,
    client::{IdempotencyMiddlewareBuilder, Key, KeyExpired, KnownOutcome},
};
use http::StatusCode;
use reqwest_middleware::Error;

use super::support::{Client, patient};
use crate::support::{Backend, Work};

const DAY: Duration = Duration::from_hours(24);

/// A client that believes in a longer window than the server has.
fn mistaken(backend: &Backend) -> IdempotencyMiddlewareBuilder {
    patient(backend).window(30 * DAY)
}

/// The first answer to a charge, and the error of its late repeat.
async fn late(backend: &Backend, is_swept: bool, body: &'static str) -> (Key, Error) {
    let shop = backend.shop().in_memory();
    let client = Client::with(&shop, mistaken(backend));
    let key = Key::new(&backend.ulid_made_before(Duration::ZERO)).expect("a key");
    let charge = client.post("/charges").with_extension(key.clone());
    let charge = charge.send().await.unwrap();
    assert_eq!(charge.status(), StatusCode::CREATED);
    backend.clock.advance(DAY + Duration::from_hours(6));
    if is_swept {
        backend.sweep().await;
    }
    let repeat = client.post("/charges").with_extension(key.clone());
    let error = repeat.body(body).send().await.unwrap_err();
    assert_eq!(client.attempts(), 2, "a late retry was retried");
    assert_eq!(shop.work.runs(), 1, "a late retry charged again");
    (key, error)
}

#[tokio::test]
async fn a_late_retry_fails_with_what_the_server_still_knows() {
    for is_swept in [false, true] {
        let backend = Backend::memory();
        let made_at = backend.clock.now();
        let (key, error) = late(&backend, is_swept, r#"{"amount":4500}"#).await;
        let expired = KeyExpired::from_error(&error).expect("the key has expired");
        assert_eq!(expired.key, key);
        assert_eq!(expired.key_made_at, Some(made_at));
        assert_eq!(expired.status, StatusCode::CONFLICT);
        assert_eq!(expired.original_status, Some(201));
        assert_eq!(expired.resource_id.as_deref(), Some("ch_1"));
        assert_eq!(expired.created_at, Some(made_at));
        assert_eq!(expired.expired_at, Some(made_at + DAY));
        assert_eq!(expired.outcome, KnownOutcome::Completed);
        assert_eq!(expired.same_request, Some(true));
        assert_eq!(Key::of_error(&error), Some(&key));
        assert!(!format!("{error:?} {error}").contains(key.as_str()));
    }
}

#[tokio::test]
async fn a_late_request_of_another_body_is_told_apart() {
    let (_, error) = late(&Backend::memory(), true, r#"{"amount":1}"#).await;
    let expired = KeyExpired::from_error(&error).expect("the key has expired");
    assert_eq!(expired.same_request, Some(false));
}

#[tokio::test]
async fn it_is_found_beneath_what_other_middleware_added() {
    let (key, error) = late(&Backend::memory(), false, r#"{"amount":4500}"#).await;
    let Error::Middleware(error) = error else {
        panic!("{error} is no error of a middleware");
    };
    let error = Error::Middleware(error.context("while charging"));
    let expired = KeyExpired::from_error(&error).expect("it is still there");
    assert_eq!(expired.key, key);
    assert_eq!(Key::of_error(&error), Some(&key));
}

#[tokio::test]
async fn a_request_that_never_ended_expires_as_unknown_under_any_status() {
    let backend = Backend::memory();
    let gone = |policy: PolicyBuilder| policy.late_status(StatusCode::GONE);
    let shop = backend.shop().policy(gone).in_memory();
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let key = Key::new(&backend.ulid_made_before(Duration::ZERO)).expect("a key");
    let _stuck = shop.post("/charges").key(key.as_str()).start();
    handler.reached().await;
    backend.clock.advance(2 * DAY);
    let other = backend
        .shop()
        .work(Work::charging())
        .policy(gone)
        .in_memory();
    let client = Client::with(&other, mistaken(&backend));
    let repeat = client.post("/charges").with_extension(key).send().await;
    let error = repeat.unwrap_err();
    let expired = KeyExpired::from_error(&error).expect("the key has expired");
    assert_eq!(expired.status, StatusCode::GONE);
    assert_eq!(expired.outcome, KnownOutcome::Unknown);
    assert_eq!(expired.original_status, None);
    assert_eq!(expired.resource_id, None);
    assert_eq!(other.work.runs(), 0);
}
