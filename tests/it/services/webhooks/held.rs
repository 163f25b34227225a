//! Events that are under way: a lock on the service's table, or on its database,
//! in which a handler waits that has its claim. In SQLite claims would wait too.

use super::{STRIPE, Witness, is_processed, ran};
use crate::services::{Service, Site, eventually, http::Waiting, settled};

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres() {
    for_each_ending("BEGIN; LOCK TABLE events", || async { Site::postgres() }).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis() {
    for_each_ending("BEGIN IMMEDIATE", Site::redis).await;
}

async fn for_each_ending<F: Future<Output = Site>>(lock: &'static str, site: impl Fn() -> F) {
    an_event_under_way_is_told_as_such(site().await, lock).await;
    an_event_under_way_is_finished_before_a_clean_stop(site().await, lock).await;
    an_event_that_met_a_crash_is_processed_by_its_redelivery(site().await, lock).await;
}

/// An event whose handler waits.
async fn under_way(site: &Site, service: &Service, lock: &'static str) -> (Witness, Waiting) {
    let mut locked = Witness::of(site).await.expect("a database");
    locked.run(lock).await;
    let first = STRIPE.deliver(service, "evt_1").begin().await;
    let is_known = async || STRIPE.ask(service, "evt_1").await.status == 200;
    eventually("it is under way", is_known).await;
    (locked, first)
}

async fn unlock(mut locked: Witness) {
    locked.run("ROLLBACK").await;
}

async fn an_event_under_way_is_told_as_such(site: Site, lock: &'static str) {
    let (one, other) = tokio::join!(site.start("webhooks"), site.start("webhooks"));
    let (locked, first) = under_way(&site, &one, lock).await;
    for service in [&one, &other] {
        let told = STRIPE.ask(service, "evt_1").await;
        STRIPE.is_told_as(&told, "evt_1", "in_progress");
        let duplicate = STRIPE.deliver(service, "evt_1").send().await;
        duplicate.problem(409, "idempotency_request_in_progress");
        let retry_after = duplicate.header("retry-after").map(str::parse::<u64>);
        assert!(
            matches!(retry_after, Some(Ok(1..=30))),
            "within the lease: {duplicate}"
        );
    }
    unlock(locked).await;
    let first = first.answer().await.expect("an answer");
    ran(&first);
    for service in [&one, &other] {
        STRIPE
            .deliver(service, "evt_1")
            .send()
            .await
            .must_replay(&first);
    }
    is_processed(&site, STRIPE, "evt_1", 1).await;
}

async fn an_event_under_way_is_finished_before_a_clean_stop(site: Site, lock: &'static str) {
    let service = site.start("webhooks").await;
    let (locked, first) = under_way(&site, &service, lock).await;
    service.signal("TERM").await;
    service.has_logged("stopping").await;
    unlock(locked).await;
    ran(&first.answer().await.expect("an answer"));
    assert_eq!(service.exit_code().await, Some(0));
    let service = site.start("webhooks").await;
    STRIPE.is_told_as(&STRIPE.ask(&service, "evt_1").await, "evt_1", "completed");
    is_processed(&site, STRIPE, "evt_1", 1).await;
}

async fn an_event_that_met_a_crash_is_processed_by_its_redelivery(site: Site, lock: &'static str) {
    let site = site.set("LEASE", "1s");
    let service = site.start("webhooks").await;
    let (locked, first) = under_way(&site, &service, lock).await;
    service.kill().await;
    first.answer().await.expect_err("killed before it answered");
    unlock(locked).await;
    let service = site.start("webhooks").await;
    let lapsed = async || {
        let told = STRIPE.ask(&service, "evt_1").await.json();
        told["state"] == "outcome_unknown"
    };
    eventually("its lease is over", lapsed).await;
    let again = settled(&STRIPE.deliver(&service, "evt_1")).await;
    ran(&again);
    STRIPE.is_told_as(&STRIPE.ask(&service, "evt_1").await, "evt_1", "completed");
    is_processed(&site, STRIPE, "evt_1", 1).await;
}
