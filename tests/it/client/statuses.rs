//! Which answers are asked for again.

use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header::CONTENT_TYPE};

use super::support::{Client, bare, patient};
use crate::support::{Backend, Work};

/// How many attempts a service gets that gives this answer once and a 201
/// afterwards.
async fn attempts_after(first: impl Fn() -> Response + Send + Sync + 'static) -> usize {
    let work = Work::answering(move |seen| {
        let answer = if seen.run == 1 {
            first()
        } else {
            seen.charge()
        };
        async { answer }
    });
    let client = Client::over(&bare(&work), patient(&Backend::memory()));
    client.post("/charges").send().await.unwrap();
    client.attempts()
}

fn problem(status: u16, media_type: &'static str, document: &'static str) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [(CONTENT_TYPE, media_type)], document).into_response()
}

const PROBLEM: &str = "application/problem+json";

#[tokio::test]
async fn only_what_speaks_of_the_moment_is_asked_for_again() {
    let passing = [425, 429, 502, 503, 504];
    for status in (200..600).filter(|status| ![204, 205, 304].contains(status)) {
        let answer = move || problem(status, "text/html", "<p>no</p>");
        let expected = if passing.contains(&status) { 2 } else { 1 };
        assert_eq!(attempts_after(answer).await, expected, "{status}");
    }
}

#[tokio::test]
async fn the_word_in_a_problem_document_outranks_its_status() {
    for status in [400, 409, 422, 425, 429, 500, 503] {
        for (document, expected) in [
            (r#"{"retry":"same-key-later"}"#, 2),
            (r#"{"retry":"fix"}"#, 1),
            (r#"{"retry":"new-key"}"#, 1),
            (r#"{"retry":"reconcile"}"#, 1),
        ] {
            let attempts = attempts_after(move || problem(status, PROBLEM, document)).await;
            assert_eq!(attempts, expected, "{status} {document}");
        }
    }
}

#[tokio::test]
async fn a_document_that_says_nothing_known_leaves_it_to_the_status() {
    for document in [
        "{}",
        "[]",
        "null",
        "no JSON",
        r#"{"retry":true}"#,
        r#"{"retry":"soon"}"#,
    ] {
        let passing = attempts_after(move || problem(503, PROBLEM, document)).await;
        assert_eq!(passing, 2, "503 {document}");
        let lasting = attempts_after(move || problem(409, PROBLEM, document)).await;
        assert_eq!(lasting, 1, "409 {document}");
    }
}

#[tokio::test]
async fn only_a_problem_document_is_read_as_one() {
    const LATER: &str = r#"{"retry":"same-key-later"}"#;
    for (media_type, expected) in [
        (PROBLEM, 2),
        ("Application/Problem+JSON; charset=utf-8", 2),
        ("application/json", 1),
        ("application/problem+xml", 1),
        ("text/plain; application/problem+json", 1),
    ] {
        let attempts = attempts_after(move || problem(409, media_type, LATER)).await;
        assert_eq!(attempts, expected, "{media_type}");
    }
}

#[tokio::test]
async fn a_document_too_large_to_look_into_leaves_it_to_the_status() {
    let large = |status| {
        let document = format!(r#"{{"retry":"fix","detail":"{}"}}"#, "x".repeat(64 * 1024));
        let status = StatusCode::from_u16(status).expect("a status");
        (status, [(CONTENT_TYPE, PROBLEM)], document).into_response()
    };
    assert_eq!(attempts_after(move || large(503)).await, 2);
    assert_eq!(attempts_after(move || large(409)).await, 1);
}
