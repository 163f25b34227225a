//! Bodies on their way out and back: sent once when they are streams, and
//! returned whole.

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::client::{GaveUp, Key, RetriesExhausted};
use futures_util::stream;
use http::{StatusCode, Version, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;

use super::support::{Client, CutLine, answering, bare, patient};
use crate::support::{Backend, Shop, Work, in_time};

fn streamed() -> reqwest::Body {
    let chunks = ["{\"amount\"", ":4500}"].map(|chunk| {
        let chunk = bytes::Bytes::from_static(chunk.as_bytes());
        Ok::<_, std::io::Error>(Frame::data(chunk))
    });
    reqwest::Body::wrap(StreamBody::new(stream::iter(chunks)))
}

#[tokio::test]
async fn a_stream_is_sent_once_and_its_error_has_the_key_to_go_on_with() {
    in_time(async {
        let backend = Backend::memory();
        let shop = backend.shop().open().await;
        let line = CutLine::before(&shop, 1).await;
        let client = Client::over(&line.line(), patient(&backend));
        let charge = client.post("/charges").body(streamed());
        let error = charge.send().await.unwrap_err();
        let exhausted = RetriesExhausted::from_error(&error).expect("it cannot be sent again");
        assert_eq!(exhausted.reason, GaveUp::BodyNotRepeatable);
        assert_eq!((exhausted.attempts, client.attempts()), (1, 1));
        assert_eq!(client.only_key(), exhausted.key.as_str());
        let repeat = client.post("/charges").body(streamed());
        let repeat = repeat.with_extension(exhausted.key.clone());
        let repeat = repeat.send().await.unwrap();
        assert_eq!(repeat.headers()["idempotent-replayed"], "true");
        assert_eq!(shop.work.runs(), 1, "the stream was charged twice");
    })
    .await;
}

#[tokio::test]
async fn a_passing_answer_to_a_stream_is_the_callers() {
    let work = answering([|| (StatusCode::BAD_GATEWAY, "try later").into_response()]);
    let client = Client::over(&bare(&work), patient(&Backend::memory()));
    let charge = client.post("/charges").body(streamed());
    let answer = charge.send().await.unwrap();
    let key = Key::of_response(&answer).map(Key::as_str);
    assert_eq!(key, Some(&*client.only_key()));
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(answer.text().await.unwrap(), "try later");
}

#[tokio::test]
async fn a_replay_is_the_first_answer_byte_for_byte() {
    in_time(async {
        let every_byte: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        let body = every_byte.clone();
        let work = Work::answering(move |_| {
            let body = body.clone();
            async { ([("etag", "\"v1\"")], body).into_response() }
        });
        let backend = Backend::memory();
        let shop = backend.shop().work(work).open().await;
        let line = CutLine::before(&shop, 1).await;
        let client = Client::over(&line.line(), patient(&backend));
        let answer = client.post("/files").send().await.unwrap();
        assert_eq!(answer.headers()["idempotent-replayed"], "true");
        assert_eq!(answer.headers()["etag"], "\"v1\"");
        assert_eq!(answer.bytes().await.unwrap(), every_byte);
        assert_eq!(shop.work.runs(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_document_that_was_looked_into_comes_back_as_it_was() {
    in_time(async {
        for padding in [0, 1_000, 64 * 1024, 1_000_000] {
            let document = json!({"retry": "reconcile", "detail": "x".repeat(padding)});
            let document = document.to_string();
            let backend = Backend::memory();
            let shop = serving(&backend, document.clone()).await;
            let client = Client::of(&shop, &backend);
            let mut answer = client.post("/charges").send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::CONFLICT);
            assert_eq!(answer.version(), Version::HTTP_11);
            assert_eq!(answer.url().as_str(), client.url("/charges"));
            assert_eq!(answer.headers()["x-other"], "kept");
            assert_eq!(answer.remote_addr(), Some(shop.address()));
            let mut body = Vec::new();
            while let Some(chunk) = answer.chunk().await.unwrap() {
                body.extend_from_slice(&chunk);
            }
            assert_eq!(body, document.as_bytes(), "with {padding} characters");
            assert_eq!(client.attempts(), 1);
        }
    })
    .await;
}

/// A service without the layer that always gives this problem document, in
/// chunks.
async fn serving(backend: &Backend, document: String) -> Shop {
    let work = Work::answering(move |_| {
        let chunks: Vec<_> = document
            .as_bytes()
            .chunks(10_000)
            .map(<[u8]>::to_vec)
            .collect();
        async { problem(chunks) }
    });
    let shop = backend.shop().work(work);
    shop.routes(|work, _| work.router()).open().await
}

fn problem(chunks: Vec<Vec<u8>>) -> Response {
    let chunks = chunks.into_iter().map(Ok::<_, std::io::Error>);
    let body = axum::body::Body::from_stream(stream::iter(chunks));
    let headers = [
        (CONTENT_TYPE.as_str(), "application/problem+json"),
        ("x-other", "kept"),
    ];
    (StatusCode::CONFLICT, headers, body).into_response()
}
