//! Request bodies: held up to a limit, and handed on as they came.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{Extension, response::IntoResponse as _};
use axum_idempotency::Retry;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::StreamBody;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tower_http::limit::RequestBodyLimitLayer;

use crate::support::{Backend, Shop, Verb, Work, on_every_backend};

on_every_backend!(
    a_body_at_the_limit_runs_and_one_byte_more_does_not,
    a_body_of_unknown_length_is_read_to_one_frame_past_the_limit,
    a_body_that_declares_too_much_is_not_read_at_all,
    a_body_over_the_limit_of_another_layer_is_too_large,
    a_body_that_fails_midway_leaves_nothing_behind,
    a_client_that_stops_halfway_through_its_body_leaves_nothing_behind,
    a_client_that_expects_to_be_told_to_continue_is_told,
    a_client_without_a_principal_is_not_told_to_continue,
    the_handler_gets_the_identical_body,
    the_handler_gets_the_trailers,
    the_handler_gets_the_extensions,
);

async fn a_body_at_the_limit_runs_and_one_byte_more_does_not(backend: Backend) {
    let shop = with_limit(&backend, 1024).await;
    let mut runs = 0;
    for (length, fits) in [(0, true), (1023, true), (1024, true), (1025, false)] {
        for in_chunks in [false, true] {
            let body = vec![b'x'; length];
            let ask = shop
                .post("/charges")
                .key(&format!("k-{length}-{in_chunks}"));
            let ask = if in_chunks {
                ask.stream(chunks_of(&body, 100))
            } else {
                ask.body(body)
            };
            let answer = ask.send().await;
            if fits {
                runs += 1;
                answer.expect_run(runs);
            } else {
                answer
                    .expect_problem(413, "idempotency_body_too_large", Retry::Fix)
                    .with(&json!({"limit_bytes": 1024}));
            }
        }
    }
    assert_eq!(shop.work.runs(), runs, "a body over the limit ran");
}

async fn a_body_of_unknown_length_is_read_to_one_frame_past_the_limit(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.request_limit(1000))
        .in_memory();
    let (body, frames) = Endless::of_unknown_length(64);
    let answer = shop.post("/charges").key("k").stream(body).send().await;
    answer.expect_problem(413, "idempotency_body_too_large", Retry::Fix);
    let read = frames.load(Ordering::SeqCst) * 64;
    assert!(
        (1001..1001 + 64).contains(&read),
        "{read} bytes of an endless body were read for a limit of 1000"
    );
    assert_eq!(shop.work.runs(), 0, "an endless body ran");
}

async fn a_body_that_declares_too_much_is_not_read_at_all(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.request_limit(1000))
        .in_memory();
    let (body, frames) = Endless::of_length(1001);
    let answer = shop.post("/charges").key("k").stream(body).send().await;
    answer.expect_problem(413, "idempotency_body_too_large", Retry::Fix);
    assert_eq!(
        frames.load(Ordering::SeqCst),
        0,
        "a body that cannot fit was read"
    );
}

async fn a_body_over_the_limit_of_another_layer_is_too_large(backend: Backend) {
    let shop = backend
        .shop()
        .outside(|router| router.layer(RequestBodyLimitLayer::new(8)))
        .open()
        .await;
    let body = chunks_of(b"123456789", 4);
    let answer = shop.post("/charges").key("k").stream(body).send().await;
    answer.expect_problem(413, "idempotency_body_too_large", Retry::Fix);
    assert_eq!(shop.work.runs(), 0, "a body over another layer's limit ran");
    assert_eq!(shop.store.calls(Verb::Claim), 0, "its key was claimed");
}

async fn a_body_that_fails_midway_leaves_nothing_behind(backend: Backend) {
    let shop = backend.shop().in_memory();
    let frames = [
        Ok(Frame::data(Bytes::from("half"))),
        Err(io::Error::other("the line went dead")),
    ];
    let body = StreamBody::new(stream::iter(frames));
    let answer = shop.post("/charges").key("k").stream(body).send().await;
    answer
        .expect_problem(400, "idempotency_body_unreadable", Retry::Fix)
        .with(&json!({}));
    assert_eq!(shop.work.runs(), 0, "half a body ran");
    assert_eq!(shop.store.calls(Verb::Claim), 0, "its key was claimed");
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn a_client_that_stops_halfway_through_its_body_leaves_nothing_behind(backend: Backend) {
    let shop = backend.shop().open().await;
    let mut client = TcpStream::connect(shop.address()).await.unwrap();
    let half = "POST /charges HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\n\
                Idempotency-Key: k\r\nContent-Length: 100\r\n\r\nhalf of it";
    client.write_all(half.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    // The server closes too, once it has given the request up.
    let mut said = Vec::new();
    client.read_to_end(&mut said).await.unwrap();
    assert_eq!(shop.work.runs(), 0, "half a request ran");
    assert_eq!(shop.store.calls(Verb::Claim), 0, "its key was claimed");
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn a_client_that_expects_to_be_told_to_continue_is_told(backend: Backend) {
    let shop = backend.shop().open().await;
    let mut client = TcpStream::connect(shop.address()).await.unwrap();
    let head = "POST /charges HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\n\
                Idempotency-Key: k\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\
                Connection: close\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut interim = vec![0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    client.read_exact(&mut interim).await.unwrap();
    assert_eq!(
        interim, b"HTTP/1.1 100 Continue\r\n\r\n",
        "it is told to go on"
    );
    client.write_all(b"12345").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 201"),
        "then it is answered: {answer}"
    );
    let repeat = shop.post("/charges").key("k").body("12345").send().await;
    assert!(repeat.is_marked_as_replay(), "the body was taken in whole");
}

async fn a_client_without_a_principal_is_not_told_to_continue(backend: Backend) {
    let shop = backend.shop().open().await;
    let mut client = TcpStream::connect(shop.address()).await.unwrap();
    let head = "POST /charges HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: k\r\n\
                Content-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut status = vec![0; "HTTP/1.1 401".len()];
    client.read_exact(&mut status).await.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&status),
        "HTTP/1.1 401",
        "a body that nobody reads is asked for"
    );
}

async fn the_handler_gets_the_identical_body(backend: Backend) {
    let work = Work::answering(|seen| async move { seen.body.into_response() });
    let shop = backend.shop().work(work).open().await;
    let every_byte: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    for (name, body) in [("empty", Vec::new()), ("every-byte", every_byte)] {
        for piece in [1, 7, 4096] {
            let key = format!("{name}-{piece}");
            let ask = shop
                .post("/charges")
                .key(&key)
                .stream(chunks_of(&body, piece));
            let answer = ask.send().await;
            assert_eq!(answer.body, body, "{name} in pieces of {piece}");
            let repeat = shop
                .post("/charges")
                .key(&key)
                .body(body.clone())
                .send()
                .await;
            repeat.expect_replay_of(&answer);
        }
    }
}

async fn the_handler_gets_the_trailers(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let trailers = seen.trailers.expect("the request had trailers");
        let checksum = trailers.get("x-checksum").expect("it had this one");
        let text = [&seen.body[..], b" ", checksum.as_bytes()].concat();
        text.into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("c0ffee"));
    let frames = [
        Frame::data(Bytes::from("the ")),
        Frame::data(Bytes::from("body")),
        Frame::trailers(trailers),
    ];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, io::Error>)));
    let answer = shop
        .post("/charges")
        .key("k")
        .http2()
        .stream(body)
        .send()
        .await;
    assert_eq!(answer.body, "the body c0ffee");
}

async fn the_handler_gets_the_extensions(backend: Backend) {
    #[derive(Clone)]
    struct Account(&'static str);
    let work = Work::answering(|seen| async move {
        let account = seen.parts.extensions.get::<Account>();
        account.expect("the extension is there").0.into_response()
    });
    let shop = backend
        .shop()
        .work(work)
        .outside(|router| router.layer(Extension(Account("acct_1"))))
        .open()
        .await;
    let answer = shop.post("/charges").key("k").send().await;
    assert_eq!(answer.body, "acct_1");
}

async fn with_limit(backend: &Backend, limit: usize) -> Shop {
    let opening = backend.shop().policy(|policy| policy.request_limit(limit));
    opening.open().await
}

fn chunks_of(body: &[u8], size: usize) -> impl HttpBody<Data = Bytes, Error = io::Error> + use<> {
    let chunks: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
    let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(chunk)));
    StreamBody::new(stream::iter(frames))
}

/// A body without an end, that counts the frames which were read of it.
struct Endless {
    frame: Bytes,
    declared: Option<u64>,
    read: Arc<AtomicUsize>,
}

impl Endless {
    fn of_unknown_length(frame: usize) -> (Self, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let body = Self {
            frame: vec![b'x'; frame].into(),
            declared: None,
            read: Arc::clone(&read),
        };
        (body, read)
    }

    fn of_length(declared: u64) -> (Self, Arc<AtomicUsize>) {
        let (mut body, read) = Self::of_unknown_length(1);
        body.declared = Some(declared);
        (body, read)
    }
}

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.read.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(self.frame.clone()))))
    }

    fn size_hint(&self) -> SizeHint {
        self.declared
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
