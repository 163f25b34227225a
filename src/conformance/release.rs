//! A claim that is given back.

use super::{Fixture, support::*};
use crate::{
    claim::{Abandoned, ClaimRequest},
    record::Record,
    store::{Fenced, Renewed, Store},
};

/// Brings the key to its second attempt, which is returned.
async fn second_attempt(fixture: &dyn Fixture, store: &dyn Store) -> ClaimRequest {
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    claim(store, &second).await.claimed("the takeover");
    second
}

pub(super) async fn a_released_first_attempt_is_absent(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    same(&release(store, &first).await, &Fenced::Owner, "the release");
    no_record(store, first.key, "after the release").await;
    let lease = claim(store, &reuse_of(&first))
        .await
        .claimed("the next claim");
    same(&lease.attempt, &1, "the attempt");
}

pub(super) async fn a_released_later_attempt_is_remembered(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let second = second_attempt(fixture, store).await;
    let before = record(store, second.key).await;
    same(
        &release(store, &second).await,
        &Fenced::Owner,
        "the release",
    );
    let found = record(store, second.key).await;
    let now = now(store).await;
    same(
        &found.has_live_lease(now),
        &false,
        "whether its lease is live",
    );
    let expected = Record {
        token: found.token,
        state: found.state.clone(),
        ..before.clone()
    };
    same(&found, &expected, "the rest of the record");

    let careful = ClaimRequest {
        abandoned: Abandoned::Refuse,
        ..retry_of(&second)
    };
    claim(store, &careful)
        .await
        .abandoned("a claim under Abandoned::Refuse");
    claim(store, &reuse_of(&second))
        .await
        .mismatch("a reuse of the key");
    let lease = claim(store, &retry_of(&second))
        .await
        .claimed("the next claim");
    same(&lease.attempt, &3, "the attempt");
    same(
        &lease.created_at,
        &before.created_at,
        "the time of creation",
    );
}

pub(super) async fn a_released_token_owns_nothing_any_more(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let second = second_attempt(fixture, store).await;
    same(
        &release(store, &second).await,
        &Fenced::Owner,
        "the release",
    );
    let renewed = renew(store, renewal_of(&second)).await;
    same(&renewed, &Renewed::Lost, "the renewal after the release");
    let done = complete(store, &second, &answered(201)).await;
    same(&done, &Fenced::Stale, "the completion after the release");
    let lease = claim(store, &retry_of(&second))
        .await
        .claimed("the next claim");
    same(&lease.attempt, &3, "the attempt");
}

pub(super) async fn a_second_release_changes_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("first");
    claim(store, &first).await.claimed("the first claim");
    same(&release(store, &first).await, &Fenced::Owner, "the release");
    same(
        &release(store, &first).await,
        &Fenced::Stale,
        "the release made again",
    );
    no_record(store, first.key, "after two releases").await;

    let second = second_attempt(fixture, store).await;
    same(
        &release(store, &second).await,
        &Fenced::Owner,
        "the release",
    );
    let before = record(store, second.key).await;
    same(
        &release(store, &second).await,
        &Fenced::Stale,
        "the release made again",
    );
    same(&record(store, second.key).await, &before, "the record");
}

pub(super) async fn a_release_by_another_token_is_stale(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    same(
        &release(store, &first).await,
        &Fenced::Stale,
        "the release of an unknown key",
    );
    claim(store, &first).await.claimed("the first claim");
    let before = record(store, first.key).await;
    let other = retry_of(&first);
    same(
        &release(store, &other).await,
        &Fenced::Stale,
        "the release by another token",
    );
    same(&record(store, first.key).await, &before, "the record");
}

pub(super) async fn a_release_after_a_takeover_is_stale(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    claim(store, &retry_of(&first))
        .await
        .claimed("the takeover");
    let before = record(store, first.key).await;
    let late = release(store, &first).await;
    same(
        &late,
        &Fenced::Stale,
        "the release by the attempt that was taken over",
    );
    same(&record(store, first.key).await, &before, "the record");
}

pub(super) async fn a_completed_record_cannot_be_released(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    same(
        &release(store, &first).await,
        &Fenced::Stale,
        "the release of a completed record",
    );
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&found.completion, &answered(201), "the answer");
}

pub(super) async fn a_lapsed_first_attempt_can_be_released(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(2 * LEASE).await;
    same(
        &release(store, &first).await,
        &Fenced::Owner,
        "the release after the lease",
    );
    let lease = claim(store, &retry_of(&first))
        .await
        .claimed("the next claim");
    same(&lease.attempt, &1, "the attempt");
}

pub(super) async fn an_unconfirmed_claim_can_be_released(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    same(&release(store, &first).await, &Fenced::Owner, "the release");
    no_record(store, first.key, "after the release").await;
}

pub(super) async fn a_release_frees_its_own_key_only(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let (one, two) = (request("one"), request("two"));
    claim(store, &one).await.claimed("the claim of one key");
    claim(store, &two).await.claimed("the claim of another");
    same(&release(store, &one).await, &Fenced::Owner, "the release");
    claim(store, &retry_of(&two))
        .await
        .in_flight("the other key");
}
