//! Which response headers a replay carries.

use axum::{
    body::Body,
    response::{AppendHeaders, IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, Method, header::RETRY_AFTER};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::support::{Answer, Backend, Work, on_every_backend};

on_every_backend!(
    what_belongs_to_one_connection_moment_or_client_is_never_replayed,
    what_the_connection_header_names_is_never_replayed,
    what_describes_the_resource_is_replayed,
    repeated_headers_are_replayed_in_order,
    cookies_go_to_the_first_client_only,
    a_value_that_is_no_text_is_replayed_byte_for_byte,
    a_policy_can_add_headers_that_are_never_replayed,
    a_policy_can_bring_headers_back_except_those_that_frame_the_message,
    a_policy_can_name_the_mark_of_a_replay,
    a_cors_layer_outside_answers_for_the_origin_of_each_request,
);

/// A service that answers with these headers, one line each.
fn answering_with(headers: &'static [(&'static str, &'static str)]) -> Work {
    Work::answering(move |_| async move {
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().expect("a test's header name is one");
            (name, HeaderValue::from_static(value))
        });
        let headers = AppendHeaders(headers.collect::<Vec<_>>());
        (headers, "done").into_response()
    })
}

async fn first_and_repeat(backend: &Backend, work: Work) -> (Answer, Answer) {
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").send().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    (first, repeat)
}

async fn what_belongs_to_one_connection_moment_or_client_is_never_replayed(backend: Backend) {
    // `connection`, `transfer-encoding` and the like would change the exchange
    // itself; they have tests of their own.
    let headers = &[
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "Basic"),
        ("proxy-authentication-info", "x"),
        ("proxy-connection", "keep-alive"),
        ("proxy-status", "edge; received-status=200"),
        ("te", "trailers"),
        ("trailer", "x-checksum"),
        ("date", "Tue, 01 Dec 2026 00:00:00 GMT"),
        ("set-cookie", "session=1"),
        ("www-authenticate", "Bearer"),
        ("server-timing", "db;dur=53"),
        ("alt-svc", "h3=\":443\""),
        ("access-control-allow-origin", "https://shop.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "x-total"),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("tracestate", "a=b"),
        ("x-request-id", "req_1"),
        ("request-id", "req_1"),
        ("x-correlation-id", "req_1"),
        ("x-trace-id", "tr_1"),
        ("x-b3-traceid", "1"),
        ("x-amzn-trace-id", "Root=1"),
        ("x-cloud-trace-context", "1/2"),
        ("ratelimit", "limit=100"),
        ("ratelimit-policy", "100;w=60"),
        ("ratelimit-remaining", "99"),
        ("x-ratelimit-remaining", "99"),
        ("x-rate-limit-limit", "100"),
    ];
    let (first, repeat) = first_and_repeat(&backend, answering_with(headers)).await;
    for (name, value) in headers {
        assert!(
            first.values(name).contains(&value.as_bytes()),
            "{name} is missing from the first answer"
        );
        assert!(
            !repeat.values(name).contains(&value.as_bytes()),
            "{name} is replayed"
        );
    }
}

async fn what_the_connection_header_names_is_never_replayed(backend: Backend) {
    let work = answering_with(&[
        ("connection", "X-Hop, x-other-hop"),
        ("connection", "x-third-hop"),
        ("x-hop", "1"),
        ("x-other-hop", "2"),
        ("x-third-hop", "3"),
        ("x-end-to-end", "4"),
    ]);
    let (first, repeat) = first_and_repeat(&backend, work).await;
    assert_eq!(first.header("x-hop"), Some("1"), "of the first answer");
    for hop in ["connection", "x-hop", "x-other-hop", "x-third-hop"] {
        assert_eq!(repeat.header(hop), None, "{hop} is replayed");
    }
    assert_eq!(repeat.header("x-end-to-end"), Some("4"), "it is no hop");
}

async fn what_describes_the_resource_is_replayed(backend: Backend) {
    let headers = &[
        ("location", "/charges/ch_1"),
        ("content-location", "/charges/ch_1/view"),
        ("etag", "W/\"v1\""),
        ("last-modified", "Tue, 01 Dec 2026 00:00:00 GMT"),
        ("link", "</charges?page=2>; rel=\"next\""),
        ("content-type", "text/csv; charset=utf-8"),
        ("content-language", "de"),
        ("content-disposition", "attachment; filename=\"a.csv\""),
        ("cache-control", "max-age=60"),
        ("expires", "Tue, 01 Dec 2026 00:01:00 GMT"),
        ("vary", "accept-language"),
        ("x-own-header", "kept"),
    ];
    let work = Work::answering(move |_| async move {
        let mut response = Response::new(Body::from("a;b"));
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(*name, value);
        }
        response
    });
    let (first, repeat) = first_and_repeat(&backend, work).await;
    for (name, value) in headers {
        assert_eq!(
            first.header(name),
            Some(*value),
            "{name} of the first answer"
        );
        assert_eq!(repeat.header(name), Some(*value), "{name} of the replay");
    }
    assert_eq!(
        repeat.header("content-length"),
        Some("3"),
        "it is recomputed"
    );
}

async fn repeated_headers_are_replayed_in_order(backend: Backend) {
    let work = answering_with(&[
        ("link", "</a>; rel=\"next\""),
        ("vary", "accept"),
        ("link", "</b>; rel=\"prev\""),
        ("link", "</a>; rel=\"next\""),
    ]);
    let (first, repeat) = first_and_repeat(&backend, work).await;
    let links: [&[u8]; 3] = [
        b"</a>; rel=\"next\"",
        b"</b>; rel=\"prev\"",
        b"</a>; rel=\"next\"",
    ];
    assert_eq!(first.values("link"), links, "of the first answer");
    assert_eq!(repeat.values("link"), links, "of the replay");
}

async fn cookies_go_to_the_first_client_only(backend: Backend) {
    let work = answering_with(&[
        ("set-cookie", "session=1; HttpOnly"),
        ("set-cookie", "csrf=2"),
    ]);
    let (first, repeat) = first_and_repeat(&backend, work).await;
    let cookies: [&[u8]; 2] = [b"session=1; HttpOnly", b"csrf=2"];
    assert_eq!(first.values("set-cookie"), cookies, "the first client's");
    assert!(
        repeat.values("set-cookie").is_empty(),
        "a cookie is replayed"
    );
    let stored = backend.record("k").await;
    assert!(
        !format!("{stored:?}").contains("session=1"),
        "a cookie is stored"
    );
}

async fn a_value_that_is_no_text_is_replayed_byte_for_byte(backend: Backend) {
    let odd: &[u8] = b"caf\xe9 \xff\x80";
    let work = Work::answering(move |_| async move {
        let value = HeaderValue::from_bytes(odd).expect("obs-text may be in a value");
        ([("x-name", value)], "done").into_response()
    });
    let (first, repeat) = first_and_repeat(&backend, work).await;
    assert_eq!(first.values("x-name"), [odd], "of the first answer");
    assert_eq!(repeat.values("x-name"), [odd], "of the replay");
}

async fn a_policy_can_add_headers_that_are_never_replayed(backend: Backend) {
    let work = answering_with(&[("x-session", "s1"), ("x-kept", "k1")]);
    let shop = backend
        .shop()
        .policy(|policy| policy.never_replay(["x-session".parse().unwrap()]))
        .work(work)
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    let repeat = shop.post("/charges").key("k").send().await;
    assert_eq!(first.header("x-session"), Some("s1"), "of the first answer");
    assert_eq!(repeat.header("x-session"), None, "it is replayed");
    assert_eq!(
        repeat.header("x-kept"),
        Some("k1"),
        "another header is lost"
    );
}

async fn a_policy_can_bring_headers_back_except_those_that_frame_the_message(backend: Backend) {
    let work = answering_with(&[
        ("x-request-id", "req_1"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
    ]);
    let names = [
        "x-request-id",
        "x-hop",
        "te",
        "connection",
        "content-length",
    ];
    let shop = backend
        .shop()
        .policy(|policy| policy.replay(names.map(|name| name.parse().unwrap())))
        .work(work)
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(
        repeat.header("x-request-id"),
        Some("req_1"),
        "it is not replayed"
    );
    for framing in ["connection", "te", "x-hop"] {
        assert_eq!(repeat.header(framing), None, "{framing} is replayed");
    }
}

async fn a_policy_can_name_the_mark_of_a_replay(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.replay_header("x-replayed".parse().unwrap()))
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    let repeat = shop.post("/charges").key("k").send().await;
    assert_eq!(first.header("x-replayed"), None, "on the first answer");
    assert_eq!(repeat.header("x-replayed"), Some("true"), "on the replay");
    assert_eq!(
        repeat.header("idempotent-replayed"),
        None,
        "under its old name"
    );
}

async fn a_cors_layer_outside_answers_for_the_origin_of_each_request(backend: Backend) {
    let replayed = HeaderName::from_static("idempotent-replayed");
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::mirror_request())
        .allow_headers([HeaderName::from_static("idempotency-key")])
        .expose_headers([replayed, RETRY_AFTER]);
    let shop = backend
        .shop()
        .outside(move |router| router.layer(cors))
        .open()
        .await;
    let ask = |origin: &str| {
        shop.post("/charges")
            .key("k")
            .header("origin", origin)
            .send()
    };
    let first = ask("https://one.example").await;
    let repeat = ask("https://two.example").await;
    repeat.expect_replay_of(&first);
    let allowed = |answer: &Answer| {
        let origin = answer.header("access-control-allow-origin");
        origin.map(str::to_owned)
    };
    assert_eq!(allowed(&first).as_deref(), Some("https://one.example"));
    assert_eq!(allowed(&repeat).as_deref(), Some("https://two.example"));
    assert_eq!(
        repeat.header("access-control-expose-headers"),
        Some("idempotent-replayed,retry-after"),
        "a browser cannot tell a replay"
    );
    let preflight = shop
        .request(Method::OPTIONS, "/charges")
        .header("origin", "https://one.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "idempotency-key");
    let preflight = preflight.send().await;
    assert_eq!(
        preflight.header("access-control-allow-headers"),
        Some("idempotency-key")
    );
    assert_eq!(shop.work.runs(), 1, "a preflight reached the handler");
}
