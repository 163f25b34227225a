//! Deliveries that come after the window.

use super::{HOOKS, STRIPE, is_processed, ran};
use crate::services::{
    Site,
    http::{Answer, Request},
    late::{is_swept, short},
    until,
};

on_every_store!(
    a_late_delivery_is_acknowledged_before_the_sweep,
    a_late_delivery_is_acknowledged_after_the_sweep,
    without_an_archive_an_expired_event_is_unknown,
);

#[track_caller]
fn is_acknowledged(answer: &Answer) {
    assert_eq!(answer.status, 200, "{answer}");
    assert!(answer.is_replay(), "it ran: {answer}");
    assert!(answer.body.is_empty(), "nothing is left to tell: {answer}");
}

/// Delivers until what is known of the event is only that it was processed.
async fn expired(delivery: &Request, first: &Answer) -> Answer {
    let expired = async || {
        let answer = delivery.send().await;
        if answer.body == first.body {
            answer.must_replay(first);
            return None;
        }
        Some(answer)
    };
    until("the record has expired", expired).await
}

async fn a_late_delivery_is_acknowledged_before_the_sweep(site: Site) {
    let site = short(site, "1h");
    let service = site.start("webhooks").await;
    for hook in HOOKS {
        let delivery = hook.deliver(&service, "evt_1");
        let first = delivery.send().await;
        ran(&first);
        is_acknowledged(&expired(&delivery, &first).await);
        hook.is_told_as(&hook.ask(&service, "evt_1").await, "evt_1", "completed");
        is_processed(&site, hook, "evt_1", 1).await;
    }
}

async fn a_late_delivery_is_acknowledged_after_the_sweep(site: Site) {
    let site = short(site, "100ms");
    let service = site.start("webhooks").await;
    let delivery = STRIPE.deliver(&service, "evt_1");
    ran(&delivery.send().await);
    is_swept(&service).await;
    for _ in 0..2 {
        is_acknowledged(&delivery.send().await);
    }
    let told = STRIPE.ask(&service, "evt_1").await;
    let told = STRIPE.is_told_as(&told, "evt_1", "completed");
    assert_eq!(told["archived"], true);
    is_processed(&site, STRIPE, "evt_1", 1).await;
}

async fn without_an_archive_an_expired_event_is_unknown(site: Site) {
    let site = short(site, "100ms").set("ARCHIVE_URL", "none");
    let service = site.start("webhooks").await;
    let delivery = STRIPE.deliver(&service, "evt_1");
    let first = delivery.send().await;
    ran(&first);
    let again = until("it is forgotten", async || {
        let answer = delivery.send().await;
        (!answer.is_replay()).then_some(answer)
    });
    ran(&again.await);
}
