//! Inbound webhooks: each event once, a 2xx for what is done, and never a lost
//! event.

mod adyen;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod commits;
mod deliveries;
mod find;
mod ids;
mod late;
mod presets;
mod samples;
mod unusual;

use std::time::Duration;

use axum_idempotency::{Found, IdempotencyKey, PolicyBuilder, ScopedKey, webhook::Webhook};
use http::Method;

use crate::support::{Answer, Ask, Backend, Opening, Shop};

const DAY: Duration = Duration::from_hours(24);

/// How long Stripe's events are remembered.
const RETENTION: Duration = Duration::from_hours(24 * 30);

/// The lease of a policy that says nothing of it.
const LEASE: Duration = Duration::from_secs(30);

fn stripe(backend: &Backend) -> Opening {
    backend.shop().policy(|_| Webhook::stripe().policy())
}

fn stripe_with(backend: &Backend, change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Opening {
    backend
        .shop()
        .policy(|_| change(Webhook::stripe().policy()))
}

/// A delivery of an event.
fn deliver(shop: &Shop, event: &str) -> Ask {
    let body = format!(r#"{{"id":"{event}","type":"charge.succeeded"}}"#);
    shop.post("/hooks").body(body)
}

fn key_of(shop: &Shop, event: &str) -> ScopedKey {
    let event = IdempotencyKey::from_id(event).expect("a test's event has an id");
    let stripe = Webhook::stripe().principal();
    shop.layer
        .scoped_key(&stripe, (&Method::POST, "/hooks"), &event)
}

async fn found(shop: &Shop, event: &str) -> Option<Found> {
    let found = shop.layer.find(key_of(shop, event)).await;
    found.expect("store and archive answer")
}

impl Answer {
    /// A 2xx that tells nothing but that the event is known.
    #[track_caller]
    fn expect_acknowledgement(&self) {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(
            self.status, 200,
            "a known event is not acknowledged: {text}"
        );
        assert!(
            self.is_marked_as_replay(),
            "an acknowledgement is not marked as a replay"
        );
        assert_eq!(text, "", "an acknowledgement says something");
    }
}

/// The first attempt at `evt_1` stops halfway, as its process does.
async fn abandon_the_first_attempt(backend: &Backend) -> Shop {
    let stuck = stripe(backend).open().await;
    let handler = stuck.work.hold();
    let first = deliver(&stuck, "evt_1").start();
    handler.reached().await;
    stuck.loses_its_leases();
    drop(first);
    stuck
}
