//! Responses whose bodies are not kept, and what names them all the same.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use axum_idempotency::{PolicyBuilder, RecordState, Recording, ResourceId, Retry};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use serde_json::json;

use super::{Place, base::Base, on_both};
use crate::support::{Answer, Seen, Shop};

on_both!(
    a_stream_leaves_and_is_recorded_as_not_kept,
    a_body_over_the_cap_leaves_and_is_recorded_as_not_kept,
    a_body_leaves_where_none_is_kept,
    a_response_in_the_place_of_one_that_was_not_kept_does_not_leave,
    what_the_request_made_is_named_in_its_record,
    a_body_that_panics_is_recorded_as_a_failure_beside_the_effect,
);

/// A body of two chunks and unknown length.
fn chunks() -> Body {
    let chunks = ["first, ", "second"].map(|chunk| Ok::<_, axum::Error>(Bytes::from(chunk)));
    Body::from_stream(stream::iter(chunks))
}

async fn charge_with(base: &Base, seen: &Seen, response: Response) -> Response {
    let idempotency = seen.idempotency();
    if let Some(id) = ResourceId::new("ch_1") {
        idempotency.set_resource_id(id);
    }
    let mut work = base.begin(&idempotency).await;
    work.have_effect("once").await;
    work.commit(response).await
}

async fn expect_not_kept(place: &Place, shop: &Shop, first: &Answer) {
    assert_eq!(first.status, 201);
    assert_eq!(
        first.body, "first, second",
        "the body leaves as it was made"
    );
    for _ in 0..2 {
        let repeat = shop.post("/charges").key("k").send().await;
        expect_told(&repeat);
    }
    assert_eq!(shop.work.runs(), 1);
    assert_eq!(place.base.effects().await, 1);
}

fn expect_told(answer: &Answer) {
    let told = answer.expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile);
    told.with(&json!({
        "original_status": 201,
        "resource_id": "ch_1",
        "created_at": "2026-12-01T00:00:00Z",
    }));
}

async fn a_stream_leaves_and_is_recorded_as_not_kept(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let response = (StatusCode::CREATED, Recording::Stream, chunks());
        charge_with(&base, &seen, response.into_response()).await
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    expect_not_kept(&place, &shop, &first).await;
}

async fn a_body_over_the_cap_leaves_and_is_recorded_as_not_kept(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let response = (StatusCode::CREATED, chunks()).into_response();
        charge_with(&base, &seen, response).await
    });
    let shop = shop.policy(|policy| policy.response_limit(8)).open().await;
    let first = shop.post("/charges").key("k").send().await;
    expect_not_kept(&place, &shop, &first).await;
}

async fn a_body_leaves_where_none_is_kept(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let response = (StatusCode::CREATED, chunks()).into_response();
        charge_with(&base, &seen, response).await
    });
    let shop = shop.policy(PolicyBuilder::keep_no_bodies).open().await;
    let first = shop.post("/charges").key("k").send().await;
    expect_not_kept(&place, &shop, &first).await;
}

/// There is no recorded body that could leave instead.
async fn a_response_in_the_place_of_one_that_was_not_kept_does_not_leave(place: Place) {
    for ending in ["answers", "panics"] {
        let key = format!("it-{ending}");
        let shop = place.shop_of(move |base, seen| async move {
            base.run("DELETE FROM effects").await;
            let response = (StatusCode::CREATED, chunks()).into_response();
            let _lost = charge_with(&base, &seen, response).await;
            assert_eq!(ending, "answers", "as the test asked");
            (StatusCode::BAD_GATEWAY, "the mail was not sent").into_response()
        });
        let shop = shop.policy(PolicyBuilder::keep_no_bodies).open().await;
        for _ in 0..2 {
            expect_told(&shop.post("/charges").key(&key).send().await);
        }
        assert_eq!(place.base.effects().await, 1);
    }
}

async fn what_the_request_made_is_named_in_its_record(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        charge_with(&base, &seen, "no id in here".into_response()).await
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.body, "no id in here");
    let record = place.backend.record("k").await.expect("a record");
    let RecordState::Completed(completion) = record.state else {
        panic!("not completed: {record:?}");
    };
    assert_eq!(completion.resource_id, ResourceId::new("ch_1"));
}

async fn a_body_that_panics_is_recorded_as_a_failure_beside_the_effect(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let chunk = Ok::<_, axum::Error>(Bytes::from("half"));
        let panics = stream::iter([chunk]).inspect(|_| panic!("as the test asked"));
        let body = Body::from_stream(panics);
        charge_with(&base, &seen, body.into_response()).await
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 500);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 1);
}
