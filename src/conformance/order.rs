//! In which order a claim judges the row it found: a live lease, then expiry,
//! then the fingerprint, then the outcome.

use super::{Fixture, support::*};
use crate::{
    claim::{Abandoned, ClaimRequest},
    record::{Completion, Tombstone},
    store::{Fenced, Renewal, Store},
};

pub(super) async fn a_reuse_is_told_before_in_flight(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    claim(store, &reuse_of(&first))
        .await
        .mismatch("a reuse of a key in flight");
}

pub(super) async fn a_reuse_is_told_before_a_completed_record(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    let before = record(store, first.key).await;
    claim(store, &reuse_of(&first))
        .await
        .mismatch("a reuse of a completed key");
    same(&record(store, first.key).await, &before, "the record");
}

pub(super) async fn a_reuse_is_told_before_a_takeover(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    for abandoned in [Abandoned::TakeOver, Abandoned::Refuse] {
        let reuse = ClaimRequest {
            abandoned,
            ..reuse_of(&first)
        };
        claim(store, &reuse)
            .await
            .mismatch("a reuse of a lapsed key");
    }
    same(&record(store, first.key).await.attempt, &1, "the attempt");
}

pub(super) async fn a_reuse_of_an_unconfirmed_claim_is_in_flight(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    let lease = claim(store, &first).await.claimed("the first claim");
    same(&lease.ask_archive, &true, "whether to ask the archive");
    claim(store, &reuse_of(&first))
        .await
        .in_flight("a reuse before the archive has answered");

    let confirmed = Renewal {
        confirmed: true,
        ..renewal_of(&first)
    };
    renew(store, confirmed).await;
    claim(store, &reuse_of(&first))
        .await
        .mismatch("a reuse after the archive has answered");
}

pub(super) async fn expiry_is_told_before_a_reuse(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    run(store, &first, 201).await;
    fixture.advance(TTL).await;
    claim(store, &reuse_of(&first))
        .await
        .expired("a reuse of an expired key");
}

pub(super) async fn an_expired_record_answers_like_the_archive(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    complete_with(store, &first, &answered(201)).await;
    fixture.advance(TTL).await;
    let found = claim(store, &retry_of(&first))
        .await
        .expired("a late retry");
    let expected = Tombstone {
        key: first.key,
        fingerprint: first.fingerprint.clone(),
        status: 201,
        resource_id: answered(201).resource_id,
        created_at: lease.created_at,
        expired_at: lease.expires_at,
    };
    same(&found, &expected, "the late retry's answer");
}

pub(super) async fn a_record_expires_when_its_ttl_is_over(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    run(store, &first, 201).await;
    fixture.advance(TTL - MINUTE).await;
    claim(store, &retry_of(&first))
        .await
        .completed("a retry a minute before");
    fixture.advance(MINUTE).await;
    claim(store, &retry_of(&first))
        .await
        .expired("a retry as the TTL is over");
}

pub(super) async fn an_expired_attempt_without_outcome_has_status_0(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    for abandoned in [Abandoned::TakeOver, Abandoned::Refuse] {
        let late = ClaimRequest {
            abandoned,
            ..retry_of(&first)
        };
        let found = claim(store, &late).await.expired("a retry after the TTL");
        same(&found.status, &Tombstone::UNKNOWN_OUTCOME, "the status");
        same(&found.resource_id, &None, "the resource id");
    }
}

pub(super) async fn without_an_archive_an_expired_key_runs_again(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for (name, is_completed) in [("completed", true), ("lapsed", false)] {
        let first = request(name);
        claim(store, &first).await.claimed("the first claim");
        if is_completed {
            complete_with(store, &first, &answered(201)).await;
        }
        fixture.advance(TTL).await;
        let again = reuse_of(&first);
        let answer = claim(store, &again).await;
        let now = answer.now;
        let lease = answer.claimed("a claim of an expired key");
        same(&lease.attempt, &1, "the attempt");
        same(&lease.created_at, &now, "the time of creation");
        let found = record(store, first.key).await;
        same(&found.fingerprint, &again.fingerprint, "the fingerprint");
        same(&found.token, &again.token, "the owner");
    }
}

pub(super) async fn a_live_lease_outlives_the_ttl(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = ClaimRequest {
        lease: 2 * TTL,
        ..archived("k")
    };
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL + HOUR).await;
    claim(store, &retry_of(&first))
        .await
        .in_flight("a retry past the TTL");
    claim(store, &reuse_of(&first))
        .await
        .mismatch("a reuse past the TTL");
    let without_archive = ClaimRequest {
        age: request("k").age,
        ..retry_of(&first)
    };
    claim(store, &without_archive)
        .await
        .in_flight("a retry past the TTL without an archive");
    fixture.advance(TTL).await;
    claim(store, &retry_of(&first))
        .await
        .expired("a retry past the lease");
}

async fn complete_with(store: &dyn Store, attempt: &ClaimRequest, completion: &Completion) {
    let done = complete(store, attempt, completion).await;
    same(&done, &Fenced::Owner, "the completion");
}
