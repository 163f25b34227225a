//! Replays on the wire: HTTP/1.1 and HTTP/2, every status, and a compression
//! layer outside.

use std::io::Read as _;

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::stream;
use http::{StatusCode, Version, header::CONTENT_TYPE};
use tower_http::compression::CompressionLayer;

use crate::support::{Answer, Backend, Work, on_every_backend};

on_every_backend!(
    a_replay_crosses_from_http1_to_http2_and_back,
    a_response_in_chunks_is_replayed_with_a_length,
    every_status_is_replayed_with_its_body,
    a_status_without_a_body_is_replayed_without_one,
    a_compression_layer_outside_serves_each_client_its_own_form,
    the_handler_never_learns_of_other_encodings,
    a_request_without_a_key_keeps_its_encodings,
);

async fn a_replay_crosses_from_http1_to_http2_and_back(backend: Backend) {
    let shop = backend.shop().open().await;
    let over_one = shop.post("/charges").key("one").send().await;
    let over_two = shop.post("/charges").key("two").http2().send().await;
    assert_eq!(over_one.version, Version::HTTP_11);
    assert_eq!(over_two.version, Version::HTTP_2);
    over_one.expect_run(1);
    over_two.expect_run(2);
    let again = shop.post("/charges").key("one").http2().send().await;
    again.expect_replay_of(&over_one);
    assert_eq!(again.version, Version::HTTP_2);
    let again = shop.post("/charges").key("two").send().await;
    again.expect_replay_of(&over_two);
    assert_eq!(
        again.header("content-length"),
        over_two.header("content-length")
    );
}

async fn a_response_in_chunks_is_replayed_with_a_length(backend: Backend) {
    let work = Work::answering(|_| async {
        let chunks =
            ["a", "bc", "", "def"].map(|chunk| Ok::<_, std::io::Error>(Bytes::from(chunk)));
        Body::from_stream(stream::iter(chunks)).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "abcdef");
    for speaks_http2 in [false, true] {
        let repeat = shop.post("/charges").key("k");
        let repeat = if speaks_http2 { repeat.http2() } else { repeat };
        let repeat = repeat.send().await;
        repeat.expect_replay_of(&first);
        assert_eq!(repeat.header("content-length"), Some("6"));
        assert_eq!(
            repeat.header("transfer-encoding"),
            None,
            "a replay is not in chunks"
        );
    }
}

async fn every_status_is_replayed_with_its_body(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let status = seen.parts.uri.path().trim_start_matches('/').parse();
        let status = StatusCode::from_u16(status.expect("the path is a status"));
        let body = format!("run {}", seen.run);
        (status.expect("a status"), body).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let is_kept_with_a_body = |status: &u16| ![204, 205, 304, 425, 429].contains(status);
    let mut runs = 0;
    for status in (200..600).filter(is_kept_with_a_body) {
        let path = format!("/{status}");
        let key = format!("k-{status}");
        let first = shop.post(&path).key(&key).send().await;
        runs += 1;
        assert_eq!(first.status, status);
        assert_eq!(
            first.body,
            format!("run {runs}"),
            "the first answer of {status}"
        );
        let repeat = shop.post(&path).key(&key).send().await;
        repeat.expect_replay_of(&first);
    }
    assert_eq!(shop.work.runs(), runs, "some status was run again");
}

async fn a_status_without_a_body_is_replayed_without_one(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let status = seen.parts.uri.path().trim_start_matches('/').parse();
        let status = StatusCode::from_u16(status.expect("the path is a status"));
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status.expect("a status");
        let etag = "\"v1\"".parse().expect("a header value");
        response.headers_mut().insert("etag", etag);
        response
    });
    let shop = backend.shop().work(work).open().await;
    for status in [204, 205, 304] {
        let path = format!("/{status}");
        for speaks_http2 in [false, true] {
            let key = format!("k-{status}-{speaks_http2}");
            let ask = || {
                let ask = shop.post(&path).key(&key);
                if speaks_http2 { ask.http2() } else { ask }
            };
            let first = ask().send().await;
            assert_eq!(first.status, status);
            let repeat = ask().send().await;
            repeat.expect_replay_of(&first);
            for name in ["etag", "content-length", "transfer-encoding"] {
                assert_eq!(
                    repeat.header(name),
                    first.header(name),
                    "{name} of {status} over {:?}",
                    first.version
                );
            }
        }
    }
    assert_eq!(shop.work.runs(), 6, "a status without a body was run again");
}

async fn a_compression_layer_outside_serves_each_client_its_own_form(backend: Backend) {
    for (first_accepts, repeat_accepts) in
        [(true, false), (false, true), (true, true), (false, false)]
    {
        let work = Work::answering(|_| async {
            ([(CONTENT_TYPE, "text/plain")], "money ".repeat(100)).into_response()
        });
        let shop = backend
            .shop()
            .work(work)
            .outside(|router| router.layer(CompressionLayer::new()))
            .open()
            .await;
        let key = format!("k-{first_accepts}-{repeat_accepts}");
        let ask = |accepts: bool| {
            let ask = shop.post("/charges").key(&key);
            if accepts {
                ask.header("accept-encoding", "gzip")
            } else {
                ask
            }
        };
        let first = ask(first_accepts).send().await;
        let repeat = ask(repeat_accepts).send().await;
        assert!(repeat.is_marked_as_replay(), "it is no replay");
        for (answer, accepts) in [(&first, first_accepts), (&repeat, repeat_accepts)] {
            let encoding = accepts.then_some("gzip");
            assert_eq!(
                answer.header("content-encoding"),
                encoding,
                "accepts: {accepts}"
            );
            assert_eq!(identity(answer), "money ".repeat(100), "accepts: {accepts}");
        }
        assert_eq!(shop.work.runs(), 1);
    }
}

async fn the_handler_never_learns_of_other_encodings(backend: Backend) {
    // Compression inside the layer would store one client's form for all.
    let work = Work::answering(|seen| async move {
        let accepts = seen.parts.headers.get("accept-encoding");
        format!("{accepts:?}").into_response()
    });
    let shop = backend
        .shop()
        .work(work)
        .routes(|work, layer| {
            work.router()
                .layer(CompressionLayer::new())
                .layer(layer.clone())
        })
        .open()
        .await;
    let first = shop
        .post("/charges")
        .key("k")
        .header("accept-encoding", "gzip");
    let first = first.send().await;
    assert_eq!(first.body, "None", "the handler saw Accept-Encoding");
    assert_eq!(
        first.header("content-encoding"),
        None,
        "a form for one client is stored"
    );
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

async fn a_request_without_a_key_keeps_its_encodings(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let accepts = seen.parts.headers.get("accept-encoding");
        format!("{accepts:?}").into_response()
    });
    let shop = backend
        .shop()
        .work(work)
        .policy(axum_idempotency::PolicyBuilder::key_optional)
        .open()
        .await;
    let answer = shop
        .post("/charges")
        .header("accept-encoding", "gzip")
        .send()
        .await;
    assert_eq!(
        answer.body, "Some(\"gzip\")",
        "it does not concern the layer"
    );
}

fn identity(answer: &Answer) -> String {
    if answer.header("content-encoding").is_none() {
        return String::from_utf8(answer.body.to_vec()).expect("the text is text");
    }
    let mut text = String::new();
    let mut gzip = GzDecoder::new(&answer.body[..]);
    gzip.read_to_string(&mut text).expect("the body is gzip");
    text
}
