//! Response bodies: what is kept of them, and that the first client always
//! gets every byte.

use std::{io, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use axum_idempotency::{Recording, Retry};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::StreamBody;

use crate::support::{Answer, Backend, Gate, Verb, Work, on_every_backend, on_tokio_time};

on_every_backend!(
    a_response_at_the_limit_is_kept_and_one_byte_more_is_not,
    a_binary_response_is_replayed_byte_for_byte,
    an_empty_response_is_replayed,
    a_short_stream_is_replayed,
    a_stream_that_fails_midway_is_not_kept,
    a_response_with_trailers_is_not_kept_and_its_client_gets_them,
    an_event_stream_goes_to_its_client_as_it_comes_and_is_not_kept,
    an_event_stream_is_one_however_its_type_is_spelt,
    a_response_that_its_handler_marks_as_a_stream_goes_out_as_it_comes,
    a_switch_of_protocols_is_not_kept,
);

on_tokio_time!(
    a_stream_slower_than_the_deadline_is_not_kept_and_its_client_gets_it_whole,
    a_stream_that_ends_just_within_the_deadline_is_kept,
);

async fn a_response_at_the_limit_is_kept_and_one_byte_more_is_not(backend: Backend) {
    let work = Work::answering(|seen| async move {
        if seen.parts.headers.contains_key("in-chunks") {
            in_chunks_of(&seen.body, 100)
        } else {
            seen.body.into_response()
        }
    });
    let shop = backend
        .shop()
        .work(work)
        .policy(|policy| policy.response_limit(1024))
        .open()
        .await;
    let mut runs = 0;
    for (length, is_kept) in [(1023, true), (1024, true), (1025, false), (5000, false)] {
        for in_chunks in [false, true] {
            let key = format!("k-{length}-{in_chunks}");
            let ask = || {
                let ask = shop.post("/echo").key(&key).body(vec![b'x'; length]);
                if in_chunks {
                    ask.header("in-chunks", "yes")
                } else {
                    ask
                }
            };
            let first = ask().send().await;
            runs += 1;
            assert_eq!(first.body.len(), length, "the first client gets every byte");
            let repeat = ask().send().await;
            if is_kept {
                repeat.expect_replay_of(&first);
            } else {
                not_kept(&repeat);
            }
        }
    }
    assert_eq!(
        shop.work.runs(),
        runs,
        "a response over the limit ran again"
    );
}

async fn a_binary_response_is_replayed_byte_for_byte(backend: Backend) {
    let work = Work::answering(|_| async {
        let every_byte: Vec<u8> = (0..=255).collect();
        every_byte.into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(repeat.body, (0..=255).collect::<Vec<u8>>());
}

async fn an_empty_response_is_replayed(backend: Backend) {
    let work = Work::answering(|_| async { StatusCode::ACCEPTED.into_response() });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!((repeat.status.as_u16(), repeat.body.len()), (202, 0));
}

async fn a_short_stream_is_replayed(backend: Backend) {
    let work = Work::answering(|_| async { in_chunks_of(b"a short stream", 3) });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "a short stream");
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

async fn a_stream_that_fails_midway_is_not_kept(backend: Backend) {
    let work = Work::answering(|_| async {
        let frames = [Ok(Bytes::from("half")), Err(io::Error::other("disk full"))];
        Body::from_stream(stream::iter(frames)).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(
        (first.status.as_u16(), &first.body[..]),
        (200, &b"half"[..])
    );
    assert!(
        first.is_cut_short,
        "the client takes half a body for the whole"
    );
    let repeat = shop.post("/charges").key("k").send().await;
    not_kept(&repeat);
    assert_eq!(
        shop.work.runs(),
        1,
        "a request ran again because its body failed"
    );
}

async fn a_response_with_trailers_is_not_kept_and_its_client_gets_them(backend: Backend) {
    let work = Work::answering(|_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("c0ffee"));
        let frames = [Frame::data(Bytes::from("data")), Frame::trailers(trailers)];
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, io::Error>)));
        Body::new(body).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").http2().send().await;
    assert_eq!(first.body, "data");
    let trailers = first.trailers.expect("the first client gets the trailers");
    assert_eq!(trailers.get("x-checksum").unwrap(), "c0ffee");
    let repeat = shop.post("/charges").key("k").send().await;
    not_kept(&repeat);
}

/// 1. The first event is out, the stream is open.
/// 2. A repeat asks, and is not made to wait for the end.
/// 3. The stream ends.
async fn an_event_stream_goes_to_its_client_as_it_comes_and_is_not_kept(backend: Backend) {
    as_it_comes(&backend, |body| {
        ([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
    })
    .await;
}

async fn an_event_stream_is_one_however_its_type_is_spelt(backend: Backend) {
    as_it_comes(&backend, |body| {
        ([(CONTENT_TYPE, "Text/Event-Stream")], body).into_response()
    })
    .await;
}

async fn a_response_that_its_handler_marks_as_a_stream_goes_out_as_it_comes(backend: Backend) {
    as_it_comes(&backend, |body| (Recording::Stream, body).into_response()).await;
}

async fn as_it_comes(backend: &Backend, respond: fn(Body) -> Response) {
    let middle = Gate::closed();
    let held = middle.clone();
    let work = Work::answering(move |_| {
        let held = held.clone();
        async move { respond(halves_around(held)) }
    });
    let shop = backend
        .shop()
        .work(work)
        .policy(|policy| policy.response_deadline(Duration::from_hours(1)))
        .open()
        .await;
    let first = shop.post("/charges").key("k").start();
    middle.reached().await;
    shop.store.answered(Verb::Complete, 1).await;
    let repeat = shop.post("/charges").key("k").send().await;
    not_kept(&repeat);
    middle.open();
    let first = first.answer().await;
    assert_eq!(first.body, "first half, second half");
    assert_eq!(shop.work.runs(), 1, "a stream ran again");
}

async fn a_switch_of_protocols_is_not_kept(backend: Backend) {
    let work = Work::answering(|_| async { StatusCode::SWITCHING_PROTOCOLS.into_response() });
    let shop = backend.shop().work(work).in_memory();
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 101);
    not_kept(&shop.post("/charges").key("k").send().await);
    assert_eq!(shop.work.runs(), 1, "an upgrade ran again");
}

/// 1. Half of the body is there, and the rest does not come.
/// 2. The deadline of 10 s passes: what is there goes out, recorded as not
///    kept.
/// 3. The rest comes after all.
async fn a_stream_slower_than_the_deadline_is_not_kept_and_its_client_gets_it_whole(
    backend: Backend,
) {
    let middle = Gate::closed();
    let held = middle.clone();
    let work = Work::answering(move |_| {
        let held = held.clone();
        async move { halves_around(held).into_response() }
    });
    let shop = backend.shop().work(work).in_memory();
    let first = shop.post("/charges").key("k").start();
    middle.reached().await;
    shop.store.answered(Verb::Complete, 1).await;
    not_kept(&shop.post("/charges").key("k").send().await);
    middle.open();
    assert_eq!(first.answer().await.body, "first half, second half");
    assert_eq!(shop.work.runs(), 1, "a slow stream ran again");
}

async fn a_stream_that_ends_just_within_the_deadline_is_kept(backend: Backend) {
    let work = Work::answering(|_| async {
        let chunks = stream::iter(["one ", "two ", "three"]).then(|chunk| async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok::<_, io::Error>(chunk)
        });
        Body::from_stream(chunks).into_response()
    });
    let shop = backend.shop().work(work).in_memory();
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "one two three");
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

#[track_caller]
fn not_kept(answer: &Answer) {
    answer.expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile);
}

fn in_chunks_of(body: &[u8], size: usize) -> Response {
    let chunks: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
    let chunks = chunks.into_iter().map(Ok::<_, io::Error>);
    Body::from_stream(stream::iter(chunks)).into_response()
}

/// A body in two halves, of which the second waits at the gate.
fn halves_around(gate: Gate) -> Body {
    let second = stream::once(async move {
        gate.pass().await;
        Ok::<_, io::Error>("second half")
    });
    let first = stream::iter([Ok("first half, ")]);
    Body::from_stream(first.chain(second))
}
