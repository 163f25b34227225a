//! A claim that is made again by the token that made it: what a client of the
//! store does when it did not hear the answer.

use super::{Fixture, support::*};
use crate::store::{Fenced, Renewal};

pub(super) async fn a_claim_made_twice_is_its_own(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(SECOND).await;
    let answer = claim(store, &first).await;
    let now = answer.now;
    let again = answer.claimed("the claim made again");
    same(&again.attempt, &1, "the attempt");
    same(&again.created_at, &lease.created_at, "the time of creation");
    same(
        &again.lease_until,
        &later(now, LEASE),
        "the end of the lease",
    );
    same(
        &record(store, first.key).await.token,
        &first.token,
        "the owner",
    );
    claim(store, &retry_of(&first))
        .await
        .in_flight("another attempt");
}

pub(super) async fn a_takeover_made_twice_is_one_attempt(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    claim(store, &second).await.claimed("the takeover");
    let again = claim(store, &second)
        .await
        .claimed("the takeover made again");
    same(&again.attempt, &2, "the attempt");
    same(&again.created_at, &lease.created_at, "the time of creation");
    same(
        &record(store, first.key).await.attempt,
        &2,
        "the record's attempt",
    );
}

pub(super) async fn a_lapsed_claim_made_again_is_its_own(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(2 * LEASE).await;
    let lease = claim(store, &first).await.claimed("the claim made again");
    same(&lease.attempt, &1, "the attempt");
    claim(store, &retry_of(&first))
        .await
        .in_flight("another attempt");
}

pub(super) async fn an_unconfirmed_claim_made_again_stays_unconfirmed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    let again = claim(store, &first).await.claimed("the claim made again");
    same(&again.ask_archive, &true, "whether to ask the archive");
    same(
        &record(store, first.key).await.is_speculative(),
        &true,
        "whether it is unconfirmed",
    );
}

pub(super) async fn an_unconfirmed_claim_made_again_has_to_be_confirmed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let mut first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    // By now the key counts as young: a larger TTL is in force, or the clock
    // stepped back.
    first.age.lookup_after = Some(4 * TTL);
    let again = claim(store, &first).await.claimed("the claim made again");
    same(&again.ask_archive, &true, "whether to ask the archive");
    let is_speculative = record(store, first.key).await.is_speculative();
    same(&is_speculative, &true, "whether it is unconfirmed");
}

pub(super) async fn a_confirmed_claim_made_again_stays_confirmed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    let confirmed = Renewal {
        confirmed: true,
        ..renewal_of(&first)
    };
    renew(store, confirmed).await;
    claim(store, &first).await.claimed("the claim made again");
    same(
        &record(store, first.key).await.is_speculative(),
        &false,
        "whether it is unconfirmed",
    );
}

pub(super) async fn a_completed_claim_made_again_is_completed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    let found = claim(store, &first).await.completed("the claim made again");
    same(&found.completion, &answered(201), "the answer");
}

pub(super) async fn a_claim_made_again_after_its_release_is_fresh(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    same(&release(store, &first).await, &Fenced::Owner, "the release");
    let lease = claim(store, &first).await.claimed("the claim made again");
    same(&lease.attempt, &1, "the attempt");
}
