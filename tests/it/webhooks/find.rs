//! "Did we process it, and when?"

use axum_idempotency::{FoundState, ResourceId, Scope, ScopeSecret};
use http::Method;

use super::{LEASE, RETENTION, abandon_the_first_attempt, deliver, found, key_of, stripe};
use crate::support::{Backend, Verb, on_every_backend};

on_every_backend!(
    nothing_is_found_of_an_event_that_never_came,
    an_event_is_found_from_its_first_attempt_to_the_archive,
    an_attempt_that_lapsed_is_found_as_unknown_before_the_sweep_and_after_it,
    a_claim_that_waits_for_the_archive_is_no_evidence,
    a_sweep_between_store_and_archive_hides_nothing,
    a_key_is_named_by_the_layers_secret_and_scope,
);

async fn nothing_is_found_of_an_event_that_never_came(backend: Backend) {
    let shop = stripe(&backend).open().await;
    deliver(&shop, "evt_1").send().await.expect_run(1);
    assert_eq!(found(&shop, "evt_2").await, None);
}

async fn an_event_is_found_from_its_first_attempt_to_the_archive(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let handler = shop.work.hold();
    let first = deliver(&shop, "evt_1").start();
    handler.reached().await;
    let running = found(&shop, "evt_1").await.expect("it is running");
    assert_eq!(running.state, FoundState::InProgress);
    assert_eq!(running.attempt, Some(1));
    assert_eq!(running.expires_at, running.created_at + RETENTION);
    handler.open();
    first.answer().await.expect_run(1);
    let done = found(&shop, "evt_1").await.expect("it is done");
    let completed = FoundState::Completed {
        status: 201,
        resource_id: ResourceId::new("ch_1"),
    };
    assert_eq!(done.state, completed);
    assert_eq!(done.attempt, Some(1));
    assert_eq!(done.created_at, running.created_at);
    backend.clock.advance(RETENTION);
    assert_eq!(found(&shop, "evt_1").await.as_ref(), Some(&done));
    assert_eq!(backend.sweep().await, 1);
    let archived = found(&shop, "evt_1").await.expect("it is archived");
    assert_eq!(archived.state, completed);
    assert_eq!(archived.attempt, None);
    assert_eq!(archived.created_at, done.created_at);
    assert_eq!(archived.expires_at, done.expires_at);
}

async fn an_attempt_that_lapsed_is_found_as_unknown_before_the_sweep_and_after_it(
    backend: Backend,
) {
    let shop = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(LEASE);
    let lapsed = found(&shop, "evt_1").await.expect("it has begun");
    assert_eq!(lapsed.state, FoundState::OutcomeUnknown);
    assert_eq!(lapsed.attempt, Some(1));
    backend.clock.advance(RETENTION);
    assert_eq!(backend.sweep().await, 1);
    let archived = found(&shop, "evt_1").await.expect("it is archived");
    assert_eq!(archived.state, FoundState::OutcomeUnknown);
    assert_eq!(archived.attempt, None);
}

async fn a_claim_that_waits_for_the_archive_is_no_evidence(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let asking = shop.archive.hold_before(Verb::Lookup);
    let first = deliver(&shop, "evt_1").start();
    asking.reached().await;
    let other = stripe(&backend).open().await;
    assert_eq!(found(&other, "evt_1").await, None, "nothing has run");
    asking.open();
    first.answer().await.expect_run(1);
    assert!(found(&other, "evt_1").await.is_some());
}

async fn a_sweep_between_store_and_archive_hides_nothing(backend: Backend) {
    let shop = stripe(&backend).open().await;
    deliver(&shop, "evt_1").send().await.expect_run(1);
    backend.clock.advance(RETENTION);
    let other = stripe(&backend).open().await;
    let reading = other.store.hold_after(Verb::Get);
    let key = key_of(&other, "evt_1");
    let layer = other.layer.clone();
    let finding = tokio::spawn(async move { layer.find(key).await });
    reading.reached().await;
    assert_eq!(backend.sweep().await, 1);
    reading.open();
    let found = finding.await.expect("it does not panic");
    assert!(found.expect("store and archive answer").is_some());
}

async fn a_key_is_named_by_the_layers_secret_and_scope(backend: Backend) {
    let shop = stripe(&backend)
        .layer(|layer| layer.scope_secret(ScopeSecret::new("s3cret")))
        .open()
        .await;
    deliver(&shop, "evt_1").send().await.expect_run(1);
    assert!(found(&shop, "evt_1").await.is_some());
    let elsewhere = axum_idempotency::IdempotencyKey::from_id("evt_1").expect("an id");
    let stripe = axum_idempotency::webhook::Webhook::stripe().principal();
    let named = |scope| {
        let endpoint = (&Method::POST, "/hooks");
        axum_idempotency::ScopedKey::derive(None, scope, &stripe, endpoint, &elsewhere)
    };
    for unkeyed in [Scope::Principal, Scope::PrincipalAndEndpoint] {
        let found = shop.layer.find(named(unkeyed)).await;
        assert_eq!(
            found.ok(),
            Some(None),
            "without the secret nothing is found"
        );
    }
}
