//! What was in flight at a moment, as the live store tells it.

use std::time::Duration;

use jiff::Timestamp;

use super::{Fixture, support::*};
use crate::{
    claim::{ClaimRequest, Lease},
    inspect::{InspectStore, OpenOutcome, OpenQuery, OpenRecord},
    scope::ScopedKey,
    store::Store,
};

fn at(at: Timestamp) -> OpenQuery {
    OpenQuery {
        at,
        within: OpenQuery::DEFAULT_WITHIN,
        limit: 100,
    }
}

async fn open(inspect: &dyn InspectStore, query: &OpenQuery) -> Vec<OpenRecord> {
    ok(inspect.open_at(query).await, "what was open")
}

async fn keys(inspect: &dyn InspectStore, query: &OpenQuery) -> Vec<ScopedKey> {
    let records = open(inspect, query).await;
    records.iter().map(|record| record.key).collect()
}

fn a_moment_before(time: Timestamp) -> Timestamp {
    before(time, Duration::from_micros(1))
}

async fn claimed(store: &dyn Store, attempt: &ClaimRequest) -> Lease {
    claim(store, attempt).await.claimed("a claim")
}

pub(super) async fn what_runs_is_open_from_its_claim_on(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claimed(store, &first).await;
    let expected = OpenRecord {
        key: first.key,
        attempt: Some(1),
        created_at: lease.created_at,
        expires_at: lease.expires_at,
        status: None,
        resource_id: None,
        outcome: OpenOutcome::Unknown,
    };
    let found = open(inspect, &at(lease.created_at)).await;
    same(&found, &vec![expected], "what was open as it was claimed");
    let found = keys(inspect, &at(later(lease.created_at, HOUR))).await;
    same(&found, &vec![first.key], "what was open later");
    let found = keys(inspect, &at(a_moment_before(lease.created_at))).await;
    same(&found, &vec![], "what was open before the claim");
}

pub(super) async fn what_lapsed_is_open(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claimed(store, &first).await;
    fixture.advance(2 * HOUR).await;
    let found = open(inspect, &at(later(lease.created_at, HOUR))).await;
    let outcomes: Vec<_> = found.iter().map(|record| record.outcome).collect();
    same(&outcomes, &vec![OpenOutcome::Unknown], "the outcomes");
}

pub(super) async fn a_takeover_is_open_from_the_first_claim_on(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claimed(store, &first).await;
    fixture.advance(LEASE).await;
    claimed(store, &retry_of(&first)).await;
    let found = open(inspect, &at(lease.created_at)).await;
    let attempts: Vec<_> = found.iter().map(|record| record.attempt).collect();
    same(&attempts, &vec![Some(2)], "the attempts of what was open");
}

pub(super) async fn what_never_ran_is_not_open(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let unconfirmed = old("k", now(store).await);
    let lease = claimed(store, &unconfirmed).await;
    let query = at(later(lease.created_at, SECOND));
    let found = keys(inspect, &query).await;
    same(&found, &vec![], "what was open, unconfirmed");
    let mut renewal = renewal_of(&unconfirmed);
    renewal.confirmed = true;
    renew(store, renewal).await;
    let found = keys(inspect, &query).await;
    same(
        &found,
        &vec![unconfirmed.key],
        "what was open, once confirmed",
    );
}

pub(super) async fn what_was_completed_by_then_is_not_open(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    claimed(store, &first).await;
    fixture.advance(5 * SECOND).await;
    let _ = complete(store, &first, &answered(201)).await;
    let by_then = now(store).await;
    let found = keys(inspect, &at(by_then)).await;
    same(&found, &vec![], "what was open as it was completed");
    let found = keys(inspect, &at(later(by_then, HOUR))).await;
    same(&found, &vec![], "what was open an hour later");
}

pub(super) async fn what_was_completed_later_was_open(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claimed(store, &first).await;
    fixture.advance(20 * SECOND).await;
    // Long before, by what a request may take: the moment is known all the same.
    let query = OpenQuery {
        within: Duration::ZERO,
        ..at(later(lease.created_at, 10 * SECOND))
    };
    let earliest = now(store).await;
    let _ = complete(store, &first, &answered(201)).await;
    let latest = now(store).await;
    let found = open(inspect, &query).await;
    same(&found.len(), &1, "the number of records that were open");
    let record = &found[0];
    same(&record.status, &Some(201), "its status in the end");
    same(
        &record.resource_id,
        &answered(201).resource_id,
        "its resource id in the end",
    );
    let OpenOutcome::RecordedAt(then) = record.outcome else {
        panic!("expected its outcome with a moment, got {record:?}");
    };
    assert!(
        earliest <= then && then <= latest,
        "expected it from {earliest} through {latest}, got {then}"
    );
    let found = keys(inspect, &at(a_moment_before(then))).await;
    same(&found, &vec![first.key], "what was open a moment before");
    let found = keys(inspect, &at(then)).await;
    same(&found, &vec![], "what was open at that moment");
}

pub(super) async fn what_was_amended_later_was_open(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claimed(store, &first).await;
    fixture.advance(HOUR).await;
    amend(store, first.key, &answered(201)).await;
    let found = open(inspect, &at(later(lease.created_at, 30 * MINUTE))).await;
    let found: Vec<_> = found.iter().map(|record| record.status).collect();
    same(
        &found,
        &vec![Some(201)],
        "the statuses of what was open before the amendment",
    );
    let found = keys(inspect, &at(later(lease.created_at, 2 * HOUR))).await;
    same(&found, &vec![], "what was open after the amendment");
}

pub(super) async fn what_expired_is_open_until_it_is_swept(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claimed(store, &first).await;
    fixture.advance(TTL).await;
    let query = at(later(lease.created_at, HOUR));
    let found = keys(inspect, &query).await;
    same(&found, &vec![first.key], "what was open before a sweep");
    sweep(store, None, 100).await;
    let found = keys(inspect, &query).await;
    same(&found, &vec![], "what the store tells after a sweep");
}

pub(super) async fn the_oldest_are_told_first_and_no_more_than_asked(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    // What was not open is no part of the number.
    for n in 0..5 {
        run(store, &request(&format!("completed {n}")), 201).await;
        let unconfirmed = old(&format!("unconfirmed {n}"), now(store).await);
        claimed(store, &unconfirmed).await;
    }
    fixture.advance(SECOND).await;
    let mut expected = Vec::new();
    for n in 0..5 {
        let attempt = request(&format!("open {n}"));
        claimed(store, &attempt).await;
        expected.push(attempt.key);
        fixture.advance(SECOND).await;
    }
    let all = at(now(store).await);
    same(&keys(inspect, &all).await, &expected, "what was open");
    let three = OpenQuery { limit: 3, ..all };
    same(
        &keys(inspect, &three).await,
        &expected[..3].to_vec(),
        "the three oldest of it",
    );
    let none = OpenQuery { limit: 0, ..all };
    same(&keys(inspect, &none).await, &vec![], "none of it");
}
