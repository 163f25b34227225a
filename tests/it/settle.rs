//! Outcomes that are learned later, from an operator or a reconciler.

use std::time::Duration;

use axum_idempotency::{Abandoned, ResourceId, Retry};
use http::StatusCode;
use serde_json::json;

use crate::support::{Backend, Shop, on_every_backend, scoped};

on_every_backend!(
    an_abandoned_live_record_can_be_settled,
    an_archived_record_without_an_outcome_can_be_settled,
    a_record_that_expired_and_is_not_swept_can_be_settled,
    what_is_running_cannot_be_settled,
    what_has_an_outcome_cannot_be_settled,
    what_is_unknown_cannot_be_settled,
);

/// A process whose handler for `key` hangs.
async fn hanging(backend: &Backend, key: &str) -> (Shop, crate::support::Started) {
    let shop = backend.shop().open().await;
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key(key).start();
    handler.reached().await;
    (shop, first)
}

async fn settle(shop: &Shop, key: &str) -> bool {
    let id = ResourceId::new("ch_9").expect("a short id");
    let settled = shop
        .layer
        .settle(scoped("alice", key), StatusCode::CREATED, Some(id));
    settled.await.expect("store and archive answer")
}

async fn an_abandoned_live_record_can_be_settled(backend: Backend) {
    let (_hanging, _first) = hanging(&backend, "k").await;
    backend.clock.advance(Duration::from_secs(30));
    let shop = backend
        .shop()
        .policy(|policy| policy.abandoned(Abandoned::Refuse))
        .open()
        .await;
    let before = shop.post("/charges").key("k").send().await;
    before.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    assert!(
        settle(&shop, "k").await,
        "an abandoned record was not settled"
    );
    let after = shop.post("/charges").key("k").send().await;
    after
        .expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile)
        .with(&json!({
            "original_status": 201,
            "resource_id": "ch_9",
            "created_at": "2026-12-01T00:00:00Z",
        }));
    let other = shop.post("/charges").key("k").body("other").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    assert!(!settle(&shop, "k").await, "an outcome was settled twice");
}

async fn an_archived_record_without_an_outcome_can_be_settled(backend: Backend) {
    let key = backend.ulid_made_before(Duration::ZERO);
    let (_hanging, _first) = hanging(&backend, &key).await;
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 1);
    let shop = backend.shop().open().await;
    let before = shop.post("/charges").key(&key).send().await.json();
    assert_eq!(before["outcome"], "unknown");
    assert!(
        settle(&shop, &key).await,
        "an archived record was not settled"
    );
    late_with_outcome(&shop, &key).await;
    assert!(!settle(&shop, &key).await, "an outcome was settled twice");
}

async fn a_record_that_expired_and_is_not_swept_can_be_settled(backend: Backend) {
    let key = backend.ulid_made_before(Duration::ZERO);
    let (_hanging, _first) = hanging(&backend, &key).await;
    backend.clock.advance(DAY);
    let shop = backend.shop().open().await;
    assert!(
        settle(&shop, &key).await,
        "an expired record was not settled"
    );
    late_with_outcome(&shop, &key).await;
    assert_eq!(backend.sweep().await, 1);
    late_with_outcome(&shop, &key).await;
}

async fn late_with_outcome(shop: &Shop, key: &str) {
    let late = shop.post("/charges").key(key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    let late = late.json();
    assert_eq!(late["outcome"], "completed");
    assert_eq!(late["original_status"], 201);
    assert_eq!(late["resource_id"], "ch_9");
    assert_eq!(shop.work.runs(), 0, "a settled request ran");
}

async fn what_is_running_cannot_be_settled(backend: Backend) {
    let (shop, _first) = hanging(&backend, "k").await;
    assert!(!settle(&shop, "k").await, "a running request was settled");
}

async fn what_has_an_outcome_cannot_be_settled(backend: Backend) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert!(!settle(&shop, "k").await, "an answer was overwritten");
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
}

async fn what_is_unknown_cannot_be_settled(backend: Backend) {
    let shop = backend.shop().open().await;
    assert!(!settle(&shop, "k").await, "nothing was settled");
    let without = backend.shop().without_archive().open().await;
    assert!(!settle(&without, "k").await, "nothing was settled");
    shop.post("/charges").key("k").send().await.expect_run(1);
}

const DAY: Duration = Duration::from_hours(24);
