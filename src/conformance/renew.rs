//! Leases that are extended.

use super::{Fixture, support::*};
use crate::{
    claim::ClaimRequest,
    record::RecordState,
    store::{Fenced, Renewal, Renewed, Store},
};

#[track_caller]
fn until(renewed: Renewed, what: &str) -> jiff::Timestamp {
    match renewed {
        Renewed::Until(until) => until,
        other => panic!("expected {what} to extend the lease, got {other:?}"),
    }
}

async fn lost(store: &dyn Store, attempt: &ClaimRequest, what: &str) {
    let renewed = renew(store, renewal_of(attempt)).await;
    same(&renewed, &Renewed::Lost, what);
}

pub(super) async fn a_renewed_lease_runs_from_now(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE / 2).await;
    let renewal = Renewal {
        lease: 2 * LEASE,
        ..renewal_of(&first)
    };
    let earliest = later(now(store).await, 2 * LEASE);
    let renewed = until(renew(store, renewal).await, "a renewal");
    let latest = later(now(store).await, 2 * LEASE);
    assert!(
        (earliest..=latest).contains(&renewed),
        "expected the lease to end between {earliest} and {latest}, got {renewed}",
    );
    let found = record(store, first.key).await;
    let expected = RecordState::InProgress {
        lease_until: renewed,
        speculative: false,
    };
    same(&found.state, &expected, "the record's state");
    same(&found.expires_at, &lease.expires_at, "the time of expiry");
    same(&found.attempt, &1, "the attempt");
    fixture.advance(2 * LEASE - SECOND).await;
    let met = claim(store, &retry_of(&first))
        .await
        .in_flight("a retry within the lease");
    same(&met, &renewed, "the end of the lease it met");
}

pub(super) async fn a_renewal_keeps_a_record_alive_past_its_ttl(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = ClaimRequest {
        ttl: HOUR,
        lease: 40 * MINUTE,
        ..archived("k")
    };
    claim(store, &first).await.claimed("the first claim");
    let renewal = Renewal {
        lease: 40 * MINUTE,
        ..renewal_of(&first)
    };
    for _ in 0..4 {
        fixture.advance(30 * MINUTE).await;
        until(renew(store, renewal).await, "a renewal in time");
        claim(store, &retry_of(&first)).await.in_flight("a retry");
    }
    let done = complete(store, &first, &answered(201)).await;
    same(
        &done,
        &Fenced::Owner,
        "the completion of a live lease past its TTL",
    );
    claim(store, &retry_of(&first))
        .await
        .expired("a retry after that");
}

pub(super) async fn many_renewals_are_answered_in_order(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let mut renewals = Vec::new();
    let mut expected = Vec::new();
    for n in 0..200 {
        let attempt = request(&format!("k{n}"));
        let owns = match n % 4 {
            0 => false,
            1 => {
                run(store, &attempt, 201).await;
                false
            }
            _ => {
                claim(store, &attempt).await.claimed("a claim");
                n % 4 == 2
            }
        };
        let token = if n % 4 == 3 {
            request("other").token
        } else {
            attempt.token
        };
        renewals.push(Renewal {
            token,
            ..renewal_of(&attempt)
        });
        expected.push(owns);
    }
    let answers = ok(store.renew(&renewals).await, "many renewals");
    let got: Vec<bool> = answers
        .iter()
        .map(|a| matches!(a, Renewed::Until(_)))
        .collect();
    same(&got, &expected, "which renewals were granted");
}

pub(super) async fn no_renewals_are_no_answers(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let answers = ok(store.renew(&[]).await, "no renewals");
    same(&answers, &vec![], "the answers");
}

pub(super) async fn one_lease_twice_in_a_call_is_no_error(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    let stale = Renewal {
        token: retry_of(&first).token,
        ..renewal_of(&first)
    };
    let renewals = [renewal_of(&first), stale, renewal_of(&first)];
    let answers = ok(store.renew(&renewals).await, "one key three times");
    let got: Vec<bool> = answers
        .iter()
        .map(|a| matches!(a, Renewed::Until(_)))
        .collect();
    same(
        &got,
        &vec![true, false, true],
        "which renewals were granted",
    );
}

pub(super) async fn a_renewal_confirms_a_claim(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    for (confirmed, speculative) in [(false, true), (true, false), (false, false)] {
        let renewal = Renewal {
            confirmed,
            ..renewal_of(&first)
        };
        until(renew(store, renewal).await, "a renewal");
        let found = record(store, first.key).await;
        same(
            &found.is_speculative(),
            &speculative,
            "whether the record is unconfirmed",
        );
    }
}

pub(super) async fn a_confirmed_claim_that_lapses_is_taken_over(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    let confirmed = Renewal {
        confirmed: true,
        ..renewal_of(&first)
    };
    until(renew(store, confirmed).await, "the confirming renewal");
    // The archive is asked again, and yet it is never forgotten that the first
    // attempt may have run.
    for attempt in [2, 3] {
        fixture.advance(LEASE).await;
        let answer = claim(store, &retry_of(&first)).await;
        let lease = answer.claimed("the takeover");
        same(&lease.attempt, &attempt, "the attempt");
        same(&lease.ask_archive, &true, "whether to ask the archive");
        let is_speculative = record(store, first.key).await.is_speculative();
        same(
            &is_speculative,
            &false,
            "whether the takeover is unconfirmed",
        );
    }
}

pub(super) async fn a_lapsed_lease_can_be_renewed_until_the_takeover(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(2 * LEASE).await;
    until(
        renew(store, renewal_of(&first)).await,
        "a renewal that came late",
    );
    claim(store, &retry_of(&first))
        .await
        .in_flight("a retry after the renewal");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    claim(store, &second).await.claimed("the takeover");
    lost(
        store,
        &first,
        "the renewal by the attempt that was taken over",
    )
    .await;
    until(
        renew(store, renewal_of(&second)).await,
        "the renewal by the takeover",
    );
}

pub(super) async fn an_expired_record_cannot_be_renewed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    lost(store, &first, "the renewal of an expired record").await;
    claim(store, &retry_of(&first)).await.expired("a retry");
}

pub(super) async fn a_renewal_writes_no_record(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    lost(store, &first, "the renewal of an unknown key").await;
    no_record(store, first.key, "after a renewal of an unknown key").await;
    run(store, &first, 201).await;
    let before = record(store, first.key).await;
    lost(store, &first, "the renewal of a completed record").await;
    same(&record(store, first.key).await, &before, "the record");
}
