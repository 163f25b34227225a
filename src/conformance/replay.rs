//! Answers come back byte for byte.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::{Fixture, support::*};
use crate::{
    record::{Completion, KeptResponse, ResourceId},
    store::{Fenced, Store},
};

/// Records an answer and compares what a retry gets, and what a read gets.
async fn replays(store: &dyn Store, name: &str, completion: &Completion) {
    let first = request(name);
    claim(store, &first).await.claimed("the first claim");
    let done = complete(store, &first, completion).await;
    same(&done, &Fenced::Owner, "the completion");
    let replayed = claim(store, &retry_of(&first))
        .await
        .completed("a retry")
        .completion;
    same(&replayed.status, &completion.status, "the status");
    same(
        &replayed.resource_id,
        &completion.resource_id,
        "the resource id",
    );
    let (got, expected) = (&replayed.response, &completion.response);
    same(
        &got.is_some(),
        &expected.is_some(),
        "whether a response was kept",
    );
    if let (Some(got), Some(expected)) = (got, expected) {
        same(&got.headers, &expected.headers, "the headers");
        assert!(
            got.body == expected.body,
            "expected the body of {name} byte for byte"
        );
    }
    let read = record(store, first.key).await;
    let is_same =
        matches!(&read.state, crate::record::RecordState::Completed(c) if c == completion);
    assert!(
        is_same,
        "expected the record of {name} to hold the completion"
    );
}

fn with_body(body: impl Into<Bytes>) -> Completion {
    with_response(vec![], body.into())
}

fn with_headers(headers: &[(&'static str, &[u8])]) -> Completion {
    let headers = headers.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value).expect("a header value");
        (HeaderName::from_static(name), value)
    });
    with_response(headers.collect(), Bytes::from_static(b"body"))
}

fn with_response(headers: Vec<(HeaderName, HeaderValue)>, body: Bytes) -> Completion {
    Completion {
        status: 200,
        resource_id: None,
        response: Some(KeptResponse { headers, body }),
    }
}

pub(super) async fn every_byte_value_is_replayed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let all: Vec<u8> = (0..=255).collect();
    replays(store, "all", &with_body(all.clone())).await;
    let backwards: Vec<u8> = all.into_iter().rev().collect();
    replays(store, "backwards", &with_body(backwards)).await;
    replays(store, "zeros", &with_body(vec![0; 64])).await;
}

pub(super) async fn odd_json_is_replayed_as_it_was(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let odd = br#"{ "b":1.0,"a":1e2, "b" : "\u0041\/", "n":12345678901234567890 }"#;
    replays(store, "json", &with_body(odd.to_vec())).await;
}

pub(super) async fn an_empty_body_is_not_a_missing_one(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    replays(store, "empty", &with_body(vec![])).await;
    let not_kept = Completion {
        status: 204,
        resource_id: None,
        response: None,
    };
    replays(store, "missing", &not_kept).await;
}

pub(super) async fn a_response_that_was_not_kept_leaves_its_status_and_id(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for (name, resource_id) in [("with", ResourceId::new("ch_1")), ("without", None)] {
        let not_kept = Completion {
            status: 201,
            resource_id,
            response: None,
        };
        replays(store, name, &not_kept).await;
    }
}

pub(super) async fn a_large_body_is_replayed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let large: Vec<u8> = (0..=250).cycle().take(1024 * 1024).collect();
    replays(store, "large", &with_body(large)).await;
}

pub(super) async fn repeated_headers_keep_their_order(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let repeated = with_headers(&[
        ("link", b"</a>; rel=next"),
        ("x-b", b"1"),
        ("link", b"</b>; rel=prev"),
        ("x-a", b"2"),
        ("link", b"</a>; rel=next"),
        ("location", b"/v1/charges/ch_1"),
        ("etag", b"\"v1\""),
    ]);
    replays(store, "repeated", &repeated).await;
}

pub(super) async fn header_values_are_bytes(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let odd = with_headers(&[
        ("x-latin", b"caf\xe9"),
        ("x-high", b"\x80\xfe\xff"),
        ("x-empty", b""),
        ("x-tab", b"a\tb"),
        ("x-comma", b"a, b,,c"),
        ("x-quoted", b"\"a\\\"b\""),
    ]);
    replays(store, "odd", &odd).await;
}

pub(super) async fn many_headers_are_replayed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let headers = (0..300).map(|n| {
        let name = format!("x-header-{n}").parse().expect("a header name");
        (name, HeaderValue::from(n))
    });
    let many = with_response(headers.collect(), Bytes::from_static(b"body"));
    replays(store, "many", &many).await;
    let long = HeaderValue::from_bytes(&vec![b'v'; 64 * 1024]).expect("a header value");
    let long = with_response(
        vec![(HeaderName::from_static("x-long"), long)],
        Bytes::new(),
    );
    replays(store, "long", &long).await;
}

pub(super) async fn every_status_is_replayed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for status in [100, 200, 201, 204, 302, 404, 422, 500, 503, 599, 999] {
        replays(store, &status.to_string(), &answered(status)).await;
    }
}

pub(super) async fn the_longest_resource_id_is_kept(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for (name, id) in [
        ("one", "1".into()),
        ("longest", "~".repeat(ResourceId::MAX_LENGTH)),
    ] {
        let completion = Completion {
            resource_id: Some(ResourceId::new(&id).expect("a resource id")),
            ..answered(201)
        };
        replays(store, name, &completion).await;
    }
}
