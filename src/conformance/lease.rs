//! What happens when a lease lapses.

use std::time::Duration;

use super::{Fixture, support::*};
use crate::{
    claim::{Abandoned, ClaimRequest},
    record::RecordState,
    store::Fenced,
};

pub(super) async fn a_lapsed_lease_is_taken_over(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    let answer = claim(store, &second).await;
    let now = answer.now;
    let takeover = answer.claimed("a claim after the lease");
    same(&takeover.attempt, &2, "the attempt");
    same(
        &takeover.created_at,
        &lease.created_at,
        "the time of creation",
    );
    same(&takeover.expires_at, &later(now, TTL), "the time of expiry");
    same(
        &takeover.lease_until,
        &later(now, LEASE),
        "the end of the lease",
    );

    let found = record(store, first.key).await;
    same(&found.token, &second.token, "the owner");
    same(&found.attempt, &2, "the record's attempt");
    same(
        &found.created_at,
        &lease.created_at,
        "the record's time of creation",
    );
    same(
        &found.expires_at,
        &takeover.expires_at,
        "the record's time of expiry",
    );
    let expected = RecordState::InProgress {
        lease_until: takeover.lease_until,
        speculative: false,
    };
    same(&found.state, &expected, "the record's state");
}

pub(super) async fn every_takeover_is_one_attempt_more(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    for attempt in 1..=5 {
        let lease = claim(store, &retry_of(&first)).await.claimed("an attempt");
        same(&lease.attempt, &attempt, "the attempt");
        fixture.advance(LEASE).await;
    }
}

pub(super) async fn a_takeover_does_not_depend_on_the_lease_it_wants(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for (name, lease) in [
        ("shorter", LEASE / 3),
        ("equal", LEASE),
        ("longer", 3 * LEASE),
    ] {
        let first = request(name);
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(LEASE).await;
        let second = ClaimRequest {
            lease,
            ..retry_of(&first)
        };
        let lease = claim(store, &second)
            .await
            .claimed(&format!("a claim with a {name} lease"));
        same(&lease.attempt, &2, "the attempt");
    }
}

pub(super) async fn a_lease_of_no_time_is_lapsed_at_once(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = ClaimRequest {
        lease: Duration::ZERO,
        ..request("k")
    };
    claim(store, &first).await.claimed("the first claim");
    let lease = claim(store, &retry_of(&first))
        .await
        .claimed("the second claim");
    same(&lease.attempt, &2, "the attempt");
}

pub(super) async fn a_takeover_asks_the_archive_whatever_the_key(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for (first, asks) in [(archived("with"), true), (request("without"), false)] {
        let lease = claim(store, &first).await.claimed("the first claim");
        same(
            &lease.ask_archive,
            &false,
            "whether a fresh claim asks an archive",
        );
        fixture.advance(LEASE).await;
        let lease = claim(store, &retry_of(&first))
            .await
            .claimed("the takeover");
        same(
            &lease.ask_archive,
            &asks,
            "whether a takeover asks an archive",
        );
        let found = record(store, first.key).await;
        same(
            &found.is_speculative(),
            &false,
            "whether the takeover is unconfirmed",
        );
    }
}

pub(super) async fn a_takeover_runs_to_the_end(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    let lease = claim(store, &second).await.claimed("the takeover");
    let done = complete(store, &second, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion of the takeover");
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&found.created_at, &lease.created_at, "the time of creation");
    same(&found.expires_at, &lease.expires_at, "the time of expiry");
}

pub(super) async fn a_refusing_policy_leaves_a_lapsed_record(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let before = record(store, first.key).await;
    let careful = ClaimRequest {
        abandoned: Abandoned::Refuse,
        ..retry_of(&first)
    };
    for _ in 0..2 {
        let since = claim(store, &careful)
            .await
            .abandoned("a claim under Abandoned::Refuse");
        same(&since, &lease.created_at, "the time of creation");
    }
    same(&record(store, first.key).await, &before, "the record");
    let late = complete(store, &first, &answered(201)).await;
    same(&late, &Fenced::Owner, "the completion that came late");
    claim(store, &careful).await.completed("a retry");
}

pub(super) async fn a_refusing_policy_still_meets_a_live_lease(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    let careful = ClaimRequest {
        abandoned: Abandoned::Refuse,
        ..retry_of(&first)
    };
    claim(store, &careful)
        .await
        .in_flight("a claim under Abandoned::Refuse");
}

pub(super) async fn a_lapsed_unconfirmed_claim_never_ran(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let past_lease = LEASE;
    let past_ttl = TTL + LEASE;
    for (name, wait) in [("past the lease", past_lease), ("past the TTL", past_ttl)] {
        let first = old(name, now(store).await);
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(wait).await;
        let careful = ClaimRequest {
            abandoned: Abandoned::Refuse,
            ..reuse_of(&first)
        };
        let answer = claim(store, &careful).await;
        let now = answer.now;
        let lease = answer.claimed("the next claim, whatever it asks for");
        same(&lease.attempt, &1, "the attempt");
        same(&lease.created_at, &now, "the time of creation");
        same(&lease.ask_archive, &true, "whether to ask the archive");
        let found = record(store, first.key).await;
        same(
            &found.is_speculative(),
            &true,
            "whether the record is unconfirmed",
        );
    }
}
