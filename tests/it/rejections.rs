//! What a client sees when it has to mend its request, take another key, or
//! come back later: every such row of the contract's table.

use std::time::Duration;

use axum_idempotency::{ArchiveLookup, IdempotencyKey, Retry, store::StoreErrorKind};
use serde_json::json;

use crate::support::{Backend, Fault, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    a_request_without_a_key_is_told_which_header_to_send,
    a_request_without_a_key_is_told_of_the_header_that_this_api_uses,
    a_key_that_cannot_be_used_is_named_a_reason,
    a_request_without_a_principal_is_refused,
    a_body_over_the_limit_is_told_the_limit,
    a_key_without_a_timestamp_is_refused_where_one_is_required,
    a_key_from_too_far_ahead_is_refused,
    another_request_under_a_key_in_flight_is_a_reuse,
    another_request_under_a_completed_key_is_a_reuse_and_leaves_the_record_alone,
    a_repeat_while_the_first_runs_is_told_to_wait,
    a_repeat_while_the_first_runs_in_another_process_is_told_to_wait,
    a_store_that_fails_is_unavailable,
    a_store_that_cannot_publish_its_ttl_is_unavailable,
    an_archive_that_fails_is_unavailable,
    a_row_that_cannot_be_read_is_unavailable,
);

on_tokio_time!(
    a_store_that_is_too_slow_is_unavailable,
    an_archive_that_is_too_slow_is_unavailable,
);

async fn a_request_without_a_key_is_told_which_header_to_send(backend: Backend) {
    let shop = backend.shop().open().await;
    let answer = shop.post("/charges").send().await;
    answer
        .expect_problem(400, "idempotency_key_missing", Retry::Fix)
        .with(&json!({"header": "Idempotency-Key"}));
    assert_eq!(shop.work.runs(), 0, "a request without its key ran");
}

async fn a_request_without_a_key_is_told_of_the_header_that_this_api_uses(backend: Backend) {
    let source = axum_idempotency::KeySource::Header("x-request-key".parse().unwrap());
    let shop = backend
        .shop()
        .policy(|policy| policy.key_source(source))
        .open()
        .await;
    let answer = shop.post("/charges").key("k").send().await;
    answer
        .expect_problem(400, "idempotency_key_missing", Retry::Fix)
        .with(&json!({"header": "X-Request-Key"}));
}

async fn a_key_that_cannot_be_used_is_named_a_reason(backend: Backend) {
    let shop = backend.shop().open().await;
    let long = "k".repeat(IdempotencyKey::MAX_LENGTH + 1);
    for (key, reason) in [
        ("", "empty"),
        ("\"\"", "empty"),
        ("\"   \"", "blank"),
        ("\"k", "bad_syntax"),
        ("a b", "bad_character"),
        ("a,b", "bad_character"),
        (long.as_str(), "too_long"),
    ] {
        let answer = shop.post("/charges").key(key).send().await;
        answer
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": reason, "max_length": 255}));
    }
    let twice = shop.post("/charges").key("k").key("k").send().await;
    twice
        .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
        .with(&json!({"reason": "multiple_values", "max_length": 255}));
    assert_eq!(shop.work.runs(), 0, "a request with an unusable key ran");
    assert_eq!(
        shop.store.calls(Verb::Claim),
        0,
        "an unusable key was claimed"
    );
}

async fn a_request_without_a_principal_is_refused(backend: Backend) {
    let shop = backend.shop().open().await;
    let answer = shop.post("/charges").key("k").anonymous().send().await;
    answer
        .expect_problem(401, "idempotency_principal_missing", Retry::Fix)
        .with(&json!({}));
    assert_eq!(shop.work.runs(), 0, "a request of nobody ran");
    assert_eq!(
        shop.store.calls(Verb::Claim),
        0,
        "a key of nobody was claimed"
    );
}

async fn a_body_over_the_limit_is_told_the_limit(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.request_limit(8))
        .open()
        .await;
    let answer = shop
        .post("/charges")
        .key("k")
        .body("123456789")
        .send()
        .await;
    answer
        .expect_problem(413, "idempotency_body_too_large", Retry::Fix)
        .with(&json!({"limit_bytes": 8}));
    assert_eq!(shop.work.runs(), 0, "a request over the limit ran");
    assert_eq!(shop.store.calls(Verb::Claim), 0, "its key was claimed");
}

async fn a_key_without_a_timestamp_is_refused_where_one_is_required(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.archive_lookup(ArchiveLookup::RequireTimestamped))
        .open()
        .await;
    let answer = shop.post("/charges").key("order-1").send().await;
    answer
        .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
        .with(&json!({"reason": "timestamp_missing", "max_length": 255}));
    assert_eq!(shop.work.runs(), 0, "a key without a timestamp ran");
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
}

async fn a_key_from_too_far_ahead_is_refused(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_ahead(DAY + Duration::from_secs(1));
    let answer = shop.post("/charges").key(&key).send().await;
    answer
        .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
        .with(&json!({"reason": "timestamp_future", "max_length": 255}));
    assert_eq!(shop.work.runs(), 0, "a key from the day after tomorrow ran");
    assert!(
        backend.record(&key).await.is_none(),
        "a refused key left a record"
    );
}

async fn another_request_under_a_key_in_flight_is_a_reuse(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let other = shop.post("/charges").key("k").body("{}").send().await;
    other
        .expect_problem(422, "idempotency_key_reused", Retry::NewKey)
        .with(&json!({}));
    handler.open();
    first.answer().await.expect_run(1);
    assert_eq!(shop.work.runs(), 1, "the other request ran");
}

async fn another_request_under_a_completed_key_is_a_reuse_and_leaves_the_record_alone(
    backend: Backend,
) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("k").send().await;
    let before = backend.record("k").await;
    let other = shop.post("/charges").key("k").body("{}").send().await;
    other
        .expect_problem(422, "idempotency_key_reused", Retry::NewKey)
        .with(&json!({}));
    assert_eq!(
        backend.record("k").await,
        before,
        "a reuse changed the record"
    );
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 1, "the other request ran");
}

async fn a_repeat_while_the_first_runs_is_told_to_wait(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(30);
    handler.open();
    let first = first.answer().await;
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

async fn a_repeat_while_the_first_runs_in_another_process_is_told_to_wait(backend: Backend) {
    let one = backend.shop().open().await;
    let other = backend.shop().open().await;
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    // 28 of the lease's 30 seconds are over.
    backend.clock.advance(Duration::from_secs(28));
    let repeat = other.post("/charges").key("k").send().await;
    repeat
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(2);
    handler.open();
    let first = first.answer().await;
    let repeat = other.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(other.work.runs(), 0, "the repeat ran in the other process");
}

async fn a_store_that_fails_is_unavailable(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Claim, Fault::DOWN);
    let answer = shop.post("/charges").key("k").send().await;
    answer
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(shop.work.runs(), 0, "a request ran without its claim");
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn a_store_that_cannot_publish_its_ttl_is_unavailable(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Publish, Fault::DOWN);
    let answer = shop.post("/charges").key("k").send().await;
    answer
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(
        shop.store.calls(Verb::Claim),
        0,
        "a claim was judged by no TTL"
    );
    assert_eq!(shop.work.runs(), 0, "a request ran without its claim");
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn an_archive_that_fails_is_unavailable(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(2 * DAY);
    shop.archive.next(Verb::Lookup, Fault::DOWN);
    let answer = shop.post("/charges").key(&key).send().await;
    answer
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(shop.work.runs(), 0, "a request ran without its lookup");
    assert!(
        backend.record(&key).await.is_none(),
        "the claim was not given back"
    );
    shop.post("/charges").key(&key).send().await.expect_run(1);
}

async fn a_row_that_cannot_be_read_is_unavailable(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store
        .next(Verb::Claim, Fault::Fails(StoreErrorKind::Corrupt));
    let answer = shop.post("/charges").key("k").send().await;
    answer
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(
        shop.work.runs(),
        0,
        "a request ran beside a record that nobody can read"
    );
}

/// 1. The store takes the claim and does not answer.
/// 2. The layer's patience ends: 503.
async fn a_store_that_is_too_slow_is_unavailable(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.store.next(Verb::Claim, Fault::Hangs);
    let answer = shop.post("/charges").key("k").send().await;
    answer
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(shop.work.runs(), 0, "a request ran without its claim");
}

/// 1. The claim is won. 2. The archive does not answer.
/// 3. The layer's patience ends: the claim is given back, 503.
async fn an_archive_that_is_too_slow_is_unavailable(backend: Backend) {
    let shop = backend.shop().in_memory();
    let key = backend.ulid_made_before(2 * DAY);
    shop.archive.next(Verb::Lookup, Fault::Hangs);
    let answer = shop.post("/charges").key(&key).send().await;
    answer
        .expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(shop.work.runs(), 0, "a request ran without its lookup");
    assert!(
        backend.record(&key).await.is_none(),
        "the claim was not given back"
    );
}

#[tokio::test]
async fn a_memory_store_at_its_capacity_takes_no_new_key_and_keeps_the_old() {
    let backend = Backend::with_capacity(1);
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("k").send().await;
    let refused = shop.post("/charges").key("another").send().await;
    refused
        .expect_problem(503, "idempotency_store_full", Retry::SameKeyLater)
        .with_retry_after_up_to(60);
    assert_eq!(shop.work.runs(), 1, "a request ran without its claim");
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

const DAY: Duration = Duration::from_hours(24);
