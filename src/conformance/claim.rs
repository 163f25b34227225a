//! What a claim writes, and what it tells the next one.

use std::time::Duration;

use super::{Fixture, support::*};
use crate::{
    claim::{Abandoned, ClaimRequest},
    fingerprint::FingerprintOptions,
    record::{Record, RecordState},
    store::Fenced,
};

pub(super) async fn a_fresh_claim_is_attempt_one(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let answer = claim(store, &first).await;
    let now = answer.now;
    let lease = answer.claimed("the first claim");
    same(&lease.attempt, &1, "the attempt");
    same(&lease.created_at, &now, "the time of creation");
    same(&lease.expires_at, &later(now, TTL), "the time of expiry");
    same(
        &lease.lease_until,
        &later(now, LEASE),
        "the end of the lease",
    );
    same(&lease.ask_archive, &false, "whether to ask an archive");
}

pub(super) async fn a_fresh_claim_writes_a_record_in_progress(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    let expected = Record {
        key: first.key,
        fingerprint: first.fingerprint.clone(),
        token: first.token,
        attempt: 1,
        created_at: lease.created_at,
        expires_at: lease.expires_at,
        state: RecordState::InProgress {
            lease_until: lease.lease_until,
            speculative: false,
        },
    };
    same(&record(store, first.key).await, &expected, "the record");
}

pub(super) async fn a_claim_is_judged_by_the_stores_clock(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    fixture.advance(400 * DAY).await;
    let earliest = now(store).await;
    let judged_at = claim(store, &request("k")).await.now;
    let latest = now(store).await;
    assert!(
        (earliest..=latest).contains(&judged_at),
        "expected the claim to be judged between {earliest} and {latest}, got {judged_at}",
    );
}

pub(super) async fn two_keys_know_nothing_of_each_other(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let (one, two) = (request("one"), reuse_of(&request("two")));
    claim(store, &one)
        .await
        .claimed("the first claim of one key");
    claim(store, &two)
        .await
        .claimed("the first claim of another");
    let done = complete(store, &one, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion of one key");
    claim(store, &retry_of(&two))
        .await
        .in_flight("the other key");
    no_record(store, key("three"), "of a key that was never claimed").await;
}

pub(super) async fn keys_that_differ_in_case_are_two(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    run(store, &request("order-a"), 201).await;
    claim(store, &request("order-A"))
        .await
        .claimed("a key in another case");
}

pub(super) async fn a_second_claim_is_in_flight(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    let until = claim(store, &retry_of(&first))
        .await
        .in_flight("the second claim");
    same(&until, &lease.lease_until, "the end of the lease it met");
    fixture.advance(LEASE - SECOND).await;
    claim(store, &retry_of(&first))
        .await
        .in_flight("a claim near the end of the lease");
}

pub(super) async fn a_claim_that_met_a_lease_leaves_it_alone(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    let before = record(store, first.key).await;
    fixture.advance(SECOND).await;
    let long = ClaimRequest {
        lease: HOUR,
        ..retry_of(&first)
    };
    claim(store, &long).await.in_flight("the second claim");
    claim(store, &reuse_of(&first))
        .await
        .mismatch("a reuse of the key");
    same(&record(store, first.key).await, &before, "the record");
}

pub(super) async fn a_completed_record_answers_the_same_request(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    for wait in [Duration::ZERO, LEASE, TTL - HOUR] {
        fixture.advance(wait).await;
        let found = claim(store, &retry_of(&first)).await.completed("a retry");
        same(&found.fingerprint, &first.fingerprint, "the fingerprint");
        same(&found.created_at, &lease.created_at, "the time of creation");
        same(&found.expires_at, &lease.expires_at, "the time of expiry");
        same(&found.completion, &answered(201), "the answer");
    }
}

pub(super) async fn a_policy_that_refuses_a_second_run_still_replays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    let careful = ClaimRequest {
        abandoned: Abandoned::Refuse,
        ..retry_of(&first)
    };
    claim(store, &careful)
        .await
        .completed("a retry under Abandoned::Refuse");
}

pub(super) async fn a_record_without_a_fingerprint_answers_every_request(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let mut first = request("k");
    first.fingerprint = fingerprint(&FingerprintOptions::none(), "4500 gbp");
    claim(store, &first).await.claimed("the first claim");
    claim(store, &reuse_of(&first))
        .await
        .in_flight("another payload");
    let done = complete(store, &first, &answered(200)).await;
    same(&done, &Fenced::Owner, "the completion");
    claim(store, &reuse_of(&first))
        .await
        .completed("another payload");
}

pub(super) async fn a_request_without_a_fingerprint_meets_every_record(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    let mut second = retry_of(&first);
    second.fingerprint = fingerprint(&FingerprintOptions::none(), "9900 gbp");
    claim(store, &second)
        .await
        .completed("a request that compares nothing");
}
