//! Each provider's delivery as its documentation shows it.

use axum::response::IntoResponse as _;
use axum_idempotency::{
    ArchiveLookup, ConfigError, IdempotencyLayer, KeySource, Ttl, store::MemoryStore,
    webhook::Webhook,
};
use http::StatusCode;

use super::{DAY, samples::deliveries};
use crate::support::{Backend, Work};

/// Tells the id under which it runs.
fn telling_the_id() -> Work {
    Work::answering(|seen| async move {
        let id = seen.idempotency().key().as_str().to_owned();
        (StatusCode::ACCEPTED, id).into_response()
    })
}

#[tokio::test]
async fn the_id_of_every_providers_event_is_found_and_its_duplicate_is_acknowledged() {
    for delivery in deliveries() {
        let name = format!("{:?}", delivery.webhook);
        let policy = delivery.webhook.policy();
        let shop = Backend::memory().shop().policy(|_| policy);
        let shop = shop.work(telling_the_id()).in_memory();
        let first = delivery.to(&shop).send().await;
        assert_eq!(
            (first.status, &*first.body),
            (StatusCode::ACCEPTED, delivery.id.as_bytes()),
            "{name}"
        );
        delivery.to(&shop).send().await.expect_replay_of(&first);
        assert_eq!(shop.work.runs(), 1, "{name} ran twice");
    }
}

#[test]
fn an_event_is_remembered_for_longer_than_its_provider_delivers_it() {
    for delivery in deliveries() {
        let policy = delivery.webhook.build().expect("a preset can work");
        let kept = policy.ttl().get();
        assert!(kept > delivery.window, "{:?}", delivery.webhook);
        assert!(
            kept <= 30 * DAY,
            "{:?} is kept for {kept:?}",
            delivery.webhook
        );
    }
}

#[tokio::test]
async fn no_two_providers_share_an_id() {
    let backend = Backend::memory();
    let mut runs = 0;
    for delivery in deliveries() {
        let policy = delivery.webhook.policy();
        let shop = backend.shop().policy(|_| policy).in_memory();
        runs += shop.work.runs();
        delivery.to(&shop).send().await;
        runs += shop.work.runs();
    }
    assert_eq!(
        runs,
        deliveries().len(),
        "an id of one provider is another's"
    );
}

#[test]
fn without_an_archive_a_layer_says_how_to_go_on() {
    let layer = |webhook: Webhook| {
        let policy = webhook.build().expect("a preset can work");
        IdempotencyLayer::builder(MemoryStore::new())
            .policy(policy)
            .build()
    };
    let refused = layer(Webhook::stripe()).expect_err("every id has to be asked about");
    assert_eq!(refused, ConfigError::ArchiveMissing);
    let way_out = ".archive_lookup(ArchiveLookup::TimestampedKeys)";
    assert!(refused.to_string().contains(way_out), "{refused}");
    let lax = Webhook::stripe().archive_lookup(ArchiveLookup::TimestampedKeys);
    layer(lax).expect("the way out is one");
}

#[test]
fn a_provider_without_a_name_is_none() {
    for name in ["", "a\0b", "a\n"] {
        let id = KeySource::BodyPointer("/id".to_owned());
        let refused = Webhook::new(name, id, Ttl::DEFAULT).build().err();
        assert_eq!(refused, Some(ConfigError::BadProvider(name.to_owned())));
    }
    let acme = Webhook::slack();
    assert_ne!(acme.principal(), acme.principal_of(""));
    assert_ne!(acme.principal(), Webhook::square().principal());
}

#[test]
fn a_webhooks_policy_tells_its_rules() {
    let policy = Webhook::twilio().retention(Ttl::DEFAULT).build();
    let text = policy.expect("a preset can work").describe();
    for said in [
        "the `I-Twilio-Idempotency-Token` header or else (the form field `MessageSid` together with the form field `MessageStatus`)",
        "optional on POST, 1 to 255 bytes of text",
        "unique per caller and endpoint",
        "acknowledged with a 2xx for 1 day",
        "a repeat gets 200, or runs again where no outcome is known",
        "a larger one a repeat gets an empty 200",
        "everything but 2xx",
    ] {
        assert!(text.contains(said), "{said:?} is not in:\n{text}");
    }
}
