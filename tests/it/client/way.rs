//! What happens on the way to the server and back.

use std::{error::Error as _, future::pending, time::Duration};

use axum::response::IntoResponse as _;
use axum_idempotency::client::{GaveUp, Key, RetriesExhausted};
use http::StatusCode;

use super::support::{Client, patient};
use crate::support::{Backend, Line, Work, in_time, servers::port};

#[tokio::test]
async fn a_server_that_says_nothing_is_asked_again_after_the_timeout() {
    in_time(async {
        let backend = Backend::memory();
        let work = Work::answering(|seen| async move {
            if seen.run == 1 {
                pending::<()>().await;
            }
            seen.charge()
        });
        let shop = backend.shop().work(work);
        let shop = shop.routes(|work, _| work.router()).open().await;
        let client = Client::of(&shop, &backend);
        let charge = client.post("/charges").timeout(Duration::from_millis(400));
        let answer = charge.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert!(client.attempts() >= 2);
        client.only_key();
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_asked_to_the_end() {
    in_time(async {
        let nobody = Line::Tcp(([127, 0, 0, 1], port::free()).into());
        let client = Client::over(&nobody, patient(&Backend::memory()));
        let error = client.post("/charges").send().await.unwrap_err();
        let exhausted = RetriesExhausted::from_error(&error).expect("the retries are spent");
        assert_eq!((exhausted.attempts, client.attempts()), (10, 10));
        assert_eq!(exhausted.reason, GaveUp::Attempts);
    })
    .await;
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_at_all_is_not_sent_again() {
    let nowhere = Line::Tcp(([127, 0, 0, 1], 1).into());
    let client = Client::over(&nowhere, patient(&Backend::memory()));
    let mut charge = client.post("/charges").build().unwrap();
    *charge.url_mut() = "ftp://shop.test/charges".parse().unwrap();
    let error = client.execute(charge).await.unwrap_err();
    let exhausted = RetriesExhausted::from_error(&error).expect("it carries the key");
    assert_eq!(exhausted.reason, GaveUp::NotRetryable);
    assert_eq!(exhausted.attempts, 1);
    assert!(exhausted.source().is_some());
    assert_eq!(
        Key::of_error(&error).map(Key::as_str),
        Some(&*client.only_key())
    );
}

#[tokio::test]
async fn a_problem_document_that_breaks_off_is_asked_for_again() {
    in_time(async {
        let backend = Backend::memory();
        let work = Work::answering(|seen| async move {
            if seen.run == 1 {
                let broken = [Ok("{\"retry\":"), Err(std::io::Error::other("cut"))];
                let broken = futures_util::stream::iter(broken);
                let broken = axum::body::Body::from_stream(broken);
                let media_type = [("content-type", "application/problem+json")];
                return (StatusCode::CONFLICT, media_type, broken).into_response();
            }
            seen.charge()
        });
        let shop = backend.shop().work(work);
        let shop = shop.routes(|work, _| work.router()).open().await;
        let client = Client::of(&shop, &backend);
        let answer = client.post("/charges").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(client.attempts(), 2);
    })
    .await;
}
