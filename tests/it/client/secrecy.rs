//! What is printed.

use std::{error::Error, iter, time::Duration};

use axum::response::IntoResponse as _;
use axum_idempotency::client::{Key, RetriesExhausted, WindowPassed};
use http::StatusCode;

use super::support::{Client, answering, bare, patient};
use crate::support::{Backend, Line, Logs, servers::port, ulid_of};

/// How an error prints itself and all that it came from.
fn printed(error: &reqwest_middleware::Error) -> String {
    let sources = iter::successors(error.source(), |&error| error.source());
    let sources: Vec<_> = sources.map(|error| format!("{error:?} {error}")).collect();
    format!("{error:?} {error:#?} {error} {}", sources.join(" "))
}

#[tokio::test]
async fn an_error_carries_the_key_and_does_not_print_it() {
    let nobody = Line::Tcp(([127, 0, 0, 1], port::free()).into());
    let client = Client::over(&nobody, patient(&Backend::memory()));
    let error = client.post("/charges").send().await.unwrap_err();
    let key = client.only_key();
    assert_eq!(Key::of_error(&error).map(Key::as_str), Some(&*key));
    assert!(!printed(&error).contains(&key), "{}", printed(&error));
    let exhausted = RetriesExhausted::from_error(&error).expect("the retries are spent");
    let source = exhausted.source().and_then(|source| source.downcast_ref());
    let source: &reqwest::Error = source.expect("the last attempt's own error");
    assert!(source.is_connect());
}

#[tokio::test]
async fn a_refused_key_is_not_printed() {
    let backend = Backend::memory();
    let key = backend.ulid_made_before(Duration::from_hours(30));
    let client = Client::over(
        &bare(&answering([|| StatusCode::OK.into_response()])),
        patient(&backend),
    );
    let charge = client.post("/charges").header("idempotency-key", &key);
    let error = charge.send().await.unwrap_err();
    assert!(WindowPassed::from_error(&error).is_some());
    assert_eq!(Key::of_error(&error).map(Key::as_str), Some(&*key));
    assert!(!printed(&error).contains(&key), "{}", printed(&error));
}

#[tokio::test]
async fn neither_a_request_nor_a_log_shows_a_key() {
    let logs = Logs::capture();
    let work = answering([|| StatusCode::BAD_GATEWAY.into_response()]);
    let client = Client::over(&bare(&work), patient(&Backend::memory()));
    let answer = client.post("/charges").send().await.unwrap();
    let key = client.only_key();
    for request in client.printed() {
        assert!(!request.contains(&key), "{request}");
    }
    assert!(!format!("{answer:?} {:?}", Key::of_response(&answer)).contains(&key));
    let logs = logs.text();
    assert!(
        logs.contains("repeated under its key"),
        "the retries are logged"
    );
    assert!(!logs.contains(&key), "{logs}");
}

#[test]
fn a_key_does_not_print_itself() {
    let text = ulid_of(axum_idempotency::Clock::now(&Backend::memory().clock));
    let key = Key::new(&text).expect("a key");
    assert_eq!(format!("{key:?}"), "Key(..)");
}
