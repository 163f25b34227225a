//! Policies that were adjusted, stores that are down, and questions asked at odd
//! moments.

use axum::response::IntoResponse as _;
use axum_idempotency::{
    FingerprintOptions, FoundState, PolicyBuilder, Retry, StoreDown, store::Store as _,
};
use http::StatusCode;

use super::{
    LEASE, RETENTION, abandon_the_first_attempt, deliver, found, key_of, stripe, stripe_with,
};
use crate::support::{Backend, Fault, Gate, Script, Shop, Verb, Work, on_every_backend};

on_every_backend!(
    a_changed_payload_is_refused_where_the_policy_compares_it,
    a_late_delivery_is_acknowledged_though_its_payload_has_changed,
    an_event_that_ran_without_the_store_is_recorded_once_its_claim_lands,
    an_event_that_failed_without_the_store_is_forgotten,
    without_the_store_a_duplicate_is_still_held_back_in_its_process,
    a_late_event_without_an_outcome_waits_for_a_store_that_cannot_archive_it,
    an_attempt_that_takes_over_is_found_as_running,
);

fn comparing(policy: PolicyBuilder) -> PolicyBuilder {
    policy.fingerprint(FingerprintOptions::default())
}

fn open_when_down(policy: PolicyBuilder) -> PolicyBuilder {
    policy.store_down(StoreDown::Open)
}

const CHANGED: &str = r#"{"id":"evt_1","type":"charge.failed"}"#;

async fn a_changed_payload_is_refused_where_the_policy_compares_it(backend: Backend) {
    let shop = stripe_with(&backend, comparing).open().await;
    let other = stripe_with(&backend, comparing).open().await;
    let handler = shop.work.hold();
    let first = deliver(&shop, "evt_1").start();
    handler.reached().await;
    let refused = async || {
        for shop in [&shop, &other] {
            let changed = shop.post("/hooks").body(CHANGED).send().await;
            changed.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
        }
    };
    refused().await;
    handler.open();
    let first = first.answer().await;
    refused().await;
    deliver(&other, "evt_1")
        .send()
        .await
        .expect_replay_of(&first);
    assert_eq!(shop.work.runs() + other.work.runs(), 1);
}

/// It is late whatever it says, and what is done is done.
async fn a_late_delivery_is_acknowledged_though_its_payload_has_changed(backend: Backend) {
    let shop = stripe_with(&backend, comparing).open().await;
    deliver(&shop, "evt_1").send().await.expect_run(1);
    backend.clock.advance(RETENTION);
    let late = async || {
        let changed = shop.post("/hooks").body(CHANGED).send().await;
        changed.expect_acknowledgement();
    };
    late().await;
    assert_eq!(backend.sweep().await, 1);
    late().await;
    assert_eq!(shop.work.runs(), 1);
}

/// The claim is under way when the connection breaks, and lands at the gate.
fn claim_lands_late(shop: &Shop) -> Gate {
    let gate = Gate::closed();
    shop.store.next(Verb::Claim, Fault::LandsLate(gate.clone()));
    gate
}

async fn an_event_that_ran_without_the_store_is_recorded_once_its_claim_lands(backend: Backend) {
    let shop = stripe_with(&backend, open_when_down).open().await;
    let landing = claim_lands_late(&shop);
    deliver(&shop, "evt_1").send().await.expect_run(1);
    landing.open();
    let other = stripe(&backend).open().await;
    loop {
        let state = found(&other, "evt_1").await.map(|found| found.state);
        if matches!(state, Some(FoundState::Completed { status: 201, .. })) {
            break;
        }
        tokio::task::yield_now().await;
    }
    for shop in [&shop, &other] {
        let duplicate = deliver(shop, "evt_1").send().await;
        assert_eq!(duplicate.status, 201);
        assert!(duplicate.is_marked_as_replay(), "it ran twice");
    }
    assert_eq!(other.work.runs(), 0);
}

async fn an_event_that_failed_without_the_store_is_forgotten(backend: Backend) {
    let work = Work::answering(|seen| async move {
        match seen.run {
            1 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            2 => panic!("as the test asked"),
            _ => seen.charge(),
        }
    });
    let shop = stripe_with(&backend, open_when_down)
        .work(work)
        .open()
        .await;
    for run in 1..=2 {
        // It lands, and nobody hears of it.
        shop.store.next(Verb::Claim, Fault::AnswerLost);
        let failed = deliver(&shop, "evt_1").send().await;
        assert_eq!(failed.status, 500, "run {run}");
        loop {
            let record = shop.store.get(key_of(&shop, "evt_1")).await;
            if record.expect("an answer").is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let retry = deliver(&shop, "evt_1").send().await;
    retry.expect_run(3);
    assert_eq!(retry.json()["attempt"], 1, "a failure is forgotten");
}

async fn without_the_store_a_duplicate_is_still_held_back_in_its_process(backend: Backend) {
    let shop = stripe_with(&backend, open_when_down).open().await;
    shop.store.always(Verb::Claim, Fault::DOWN);
    let handler = shop.work.hold();
    let first = deliver(&shop, "evt_1").start();
    handler.reached().await;
    let duplicate = deliver(&shop, "evt_1").send().await;
    duplicate
        .expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater)
        .with_retry_after_up_to(LEASE.as_secs());
    handler.open();
    first.answer().await.expect_run(1);
    assert_eq!(shop.work.runs(), 1);
}

/// Nothing may run before it is written down that an attempt was made, whatever
/// runs without protection otherwise.
async fn a_late_event_without_an_outcome_waits_for_a_store_that_cannot_archive_it(
    backend: Backend,
) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(RETENTION);
    let shop = stripe_with(&backend, open_when_down).open().await;
    let scripts: [(Verb, &Script); 2] = [(Verb::Get, &shop.store), (Verb::Insert, &shop.archive)];
    for (verb, script) in scripts {
        script.next(verb, Fault::DOWN);
        let refused = deliver(&shop, "evt_1").send().await;
        refused.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    }
    assert_eq!(shop.work.runs(), 0);
    let ran = deliver(&shop, "evt_1").send().await;
    ran.expect_run(1);
    assert_eq!(ran.json()["attempt"], 2);
}

async fn an_attempt_that_takes_over_is_found_as_running(backend: Backend) {
    let _stuck = abandon_the_first_attempt(&backend).await;
    backend.clock.advance(LEASE);
    let (shop, other) = (stripe(&backend).open().await, stripe(&backend).open().await);
    let asking = shop.archive.hold_before(Verb::Lookup);
    let handler = shop.work.hold();
    let second = deliver(&shop, "evt_1").start();
    let is_running = async || {
        for shop in [&shop, &other] {
            let running = found(shop, "evt_1").await.expect("it has begun");
            assert_eq!(running.state, FoundState::InProgress);
            assert_eq!(running.attempt, Some(2));
        }
    };
    asking.reached().await;
    is_running().await;
    asking.open();
    handler.reached().await;
    is_running().await;
    handler.open();
    second.answer().await.expect_run(1);
    let done = found(&other, "evt_1").await.expect("it is done");
    assert_eq!(done.attempt, Some(2));
    assert!(matches!(
        done.state,
        FoundState::Completed { status: 201, .. }
    ));
}
