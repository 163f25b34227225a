//! Who may complete a record, and when.

use super::{Fixture, support::*};
use crate::{
    claim::ClaimRequest,
    record::{Record, RecordState, Tombstone},
    store::Fenced,
};

pub(super) async fn a_completion_is_recorded(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    let before = record(store, first.key).await;
    fixture.advance(SECOND).await;
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    let expected = Record {
        state: RecordState::Completed(answered(201)),
        ..before
    };
    same(&record(store, first.key).await, &expected, "the record");
}

pub(super) async fn a_completion_of_nothing_is_stale(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Stale, "the completion of an unknown key");
    no_record(store, first.key, "after a stale completion").await;
}

pub(super) async fn a_completion_by_another_token_is_stale(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    let before = record(store, first.key).await;
    let done = complete(store, &retry_of(&first), &answered(500)).await;
    same(&done, &Fenced::Stale, "the completion by another token");
    same(&record(store, first.key).await, &before, "the record");
}

pub(super) async fn a_completion_after_a_takeover_is_stale(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    claim(store, &second).await.claimed("the takeover");

    let late = complete(store, &first, &answered(500)).await;
    same(
        &late,
        &Fenced::Stale,
        "the completion by the attempt that was taken over",
    );
    claim(store, &retry_of(&first)).await.in_flight("a retry");
    let done = complete(store, &second, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion by the takeover");

    let later = complete(store, &first, &answered(500)).await;
    same(
        &later,
        &Fenced::Stale,
        "the completion of a record that another completed",
    );
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&found.completion, &answered(201), "the answer");
}

pub(super) async fn a_lapsed_lease_can_be_completed_until_the_takeover(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(10 * LEASE).await;
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion after the lease");
    claim(store, &retry_of(&first)).await.completed("a retry");
}

pub(super) async fn a_repeated_completion_succeeds_and_changes_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    let before = record(store, first.key).await;
    fixture.advance(HOUR).await;
    for again in [answered(201), answered(500)] {
        let done = complete(store, &first, &again).await;
        same(&done, &Fenced::Owner, "the completion made again");
        same(&record(store, first.key).await, &before, "the record");
    }
}

pub(super) async fn an_expired_attempt_cannot_be_completed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Stale, "the completion after the TTL");
    let found = claim(store, &retry_of(&first)).await.expired("a retry");
    same(&found.status, &Tombstone::UNKNOWN_OUTCOME, "the status");
}

pub(super) async fn a_live_lease_can_be_completed_past_the_ttl(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = ClaimRequest {
        lease: 2 * TTL,
        ..archived("k")
    };
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL + HOUR).await;
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion past the TTL");
    let found = claim(store, &retry_of(&first)).await.expired("a retry");
    same(&found.status, &201, "the status");
    same(&found.expired_at, &lease.expires_at, "the time of expiry");
}

pub(super) async fn a_completion_keeps_the_time_of_expiry(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE / 2).await;
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    same(
        &record(store, first.key).await.expires_at,
        &lease.expires_at,
        "the time of expiry",
    );
    fixture.advance(TTL - LEASE / 2).await;
    claim(store, &retry_of(&first))
        .await
        .expired("a retry one TTL after the claim");
}

pub(super) async fn a_key_that_expired_can_be_run_anew(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 500).await;
    fixture.advance(TTL).await;
    let second = retry_of(&first);
    claim(store, &second)
        .await
        .claimed("a claim of the expired key");
    let late = complete(store, &first, &answered(500)).await;
    same(
        &late,
        &Fenced::Stale,
        "the completion by the attempt before",
    );
    let done = complete(store, &second, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&found.completion, &answered(201), "the answer");
}
