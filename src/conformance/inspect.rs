//! What a store tells an operator.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::{Fixture, support::*};
use crate::{
    inspect::{
        InspectStore, LiveRecord, LiveState, OpenQuery, PerMinute, PublishedTtls, StoreCensus,
    },
    record::Completion,
    store::{Fenced, StoreErrorKind, TtlNotice},
};

async fn census(inspect: &dyn InspectStore) -> StoreCensus {
    ok(inspect.census().await, "a census")
}

async fn backlog(inspect: &dyn InspectStore) -> u64 {
    ok(inspect.backlog().await, "the backlog")
}

/// Running, lapsed, completed, expired.
fn counts(census: &StoreCensus) -> [u64; 4] {
    let StoreCensus {
        running,
        lapsed,
        completed,
        expired,
        ..
    } = census;
    [*running, *lapsed, *completed, *expired]
}

/// When the outcome was recorded.
#[track_caller]
fn moment(record: &LiveRecord) -> Option<Timestamp> {
    match record.state {
        LiveState::Completed { completed_at, .. } => completed_at,
        LiveState::InProgress { .. } => panic!("expected a completed record, got {record:?}"),
    }
}

#[track_caller]
fn between(moment: Option<Timestamp>, earliest: Timestamp, latest: Timestamp, what: &str) {
    let Some(moment) = moment else {
        panic!("expected {what} to have left its moment, got none");
    };
    assert!(
        earliest <= moment && moment <= latest,
        "expected {what} from {earliest} through {latest}, got {moment}"
    );
}

pub(super) async fn records_are_counted_by_state(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let lapsed = claim(store, &request("lapsed")).await;
    let first_expiry = lapsed.claimed("the first claim").expires_at;
    let unconfirmed = old("unconfirmed", now(store).await);
    claim(store, &unconfirmed).await.claimed("an old key");
    fixture.advance(LEASE).await;
    claim(store, &request("running")).await.claimed("a claim");
    run(store, &request("completed"), 201).await;
    run(store, &request("completed too"), 500).await;

    let earliest = now(store).await;
    let found = census(inspect).await;
    same(&counts(&found), &[1, 2, 2, 0], "the counts by state");
    same(&found.oldest_expired, &None, "the oldest that expired");
    same(&found.records(), &5, "all records");
    between(
        Some(found.now),
        earliest,
        now(store).await,
        "the time of the census",
    );

    fixture.advance(TTL).await;
    let found = census(inspect).await;
    same(&counts(&found), &[0, 0, 0, 5], "the counts after a TTL");
    let oldest = found.oldest_expired;
    same(&oldest, &Some(first_expiry), "the oldest that expired");
    sweep(store, None, 100).await;
    let found = census(inspect).await;
    same(&counts(&found), &[0; 4], "the counts after a sweep");
}

pub(super) async fn an_empty_store_counts_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let found = census(inspect).await;
    same(&counts(&found), &[0; 4], "the counts");
    same(&found.oldest_expired, &None, "the oldest that expired");
    same(&found.ttls, &None, "the published TTLs");
    same(&backlog(inspect).await, &0, "the backlog");
    let query = OpenQuery {
        at: now(store).await,
        within: OpenQuery::DEFAULT_WITHIN,
        limit: 10,
    };
    let open = ok(inspect.open_at(&query).await, "what was open");
    same(&open, &Vec::new(), "what was open");
    let none = ok(inspect.record(key("k")).await, "an operator's read");
    same(&none, &None, "the record of an unknown key");
}

pub(super) async fn the_backlog_is_what_a_sweep_moves(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    for name in ["one", "two", "three"] {
        run(store, &request(name), 201).await;
    }
    claim(store, &request("lapsed")).await.claimed("a claim");
    let unconfirmed = old("unconfirmed", now(store).await);
    claim(store, &unconfirmed).await.claimed("an old key");
    let mut live = request("live");
    live.lease = 2 * TTL;
    claim(store, &live).await.claimed("a long lease");
    same(&backlog(inspect).await, &0, "the backlog inside the window");

    fixture.advance(TTL).await;
    run(store, &request("later"), 201).await;
    same(&backlog(inspect).await, &5, "the backlog after a TTL");
    same(&sweep(store, None, 2).await, &2, "a sweep of two");
    same(&backlog(inspect).await, &3, "the backlog after that");
    same(&sweep(store, None, 100).await, &3, "a sweep of all");
    same(&backlog(inspect).await, &0, "the backlog in the end");
}

pub(super) async fn a_live_lease_past_its_ttl_is_no_backlog(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let mut long = request("k");
    long.ttl = MINUTE;
    long.lease = HOUR;
    claim(store, &long).await.claimed("a claim");
    fixture.advance(2 * MINUTE).await;
    same(&backlog(inspect).await, &0, "the backlog under the lease");
    let found = census(inspect).await;
    same(&counts(&found), &[1, 0, 0, 0], "the counts under the lease");
    fixture.advance(HOUR).await;
    same(&backlog(inspect).await, &1, "the backlog after the lease");
    let found = census(inspect).await;
    same(&counts(&found), &[0, 0, 0, 1], "the counts after the lease");
}

pub(super) async fn a_record_in_progress_is_told(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let old = old("old", now(store).await);
    for (attempt, speculative) in [(&first, false), (&old, true)] {
        let lease = claim(store, attempt).await.claimed("the first claim");
        let state = LiveState::InProgress {
            lease_until: lease.lease_until,
            speculative,
        };
        let (created_at, expires_at) = (lease.created_at, lease.expires_at);
        let expected = LiveRecord::new(attempt.key, 1, created_at, expires_at, state);
        same(&live(inspect, attempt.key).await, &expected, "the record");
    }
    fixture.advance(LEASE).await;
    let taken_over = claim(store, &retry_of(&first)).await;
    taken_over.claimed("a takeover");
    same(
        &live(inspect, first.key).await.attempt,
        &2,
        "the attempt after a takeover",
    );
}

pub(super) async fn a_completed_record_is_told_without_its_answer(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    let done = answered(201);
    let body = done.response.as_ref().map_or(0, |kept| kept.body.len());
    let completed = complete(store, &first, &done).await;
    same(&completed, &Fenced::Owner, "the completion");
    let found = live(inspect, first.key).await;
    same(&found.created_at, &lease.created_at, "the first claim");
    same(&found.expires_at, &lease.expires_at, "the time of expiry");
    let LiveState::Completed {
        status,
        resource_id,
        kept_bytes,
        ..
    } = found.state
    else {
        panic!("expected a completed record, got {found:?}");
    };
    same(&status, &201, "the status");
    same(&resource_id, &done.resource_id, "the resource id");
    let kept = kept_bytes.unwrap_or_default();
    assert!(
        kept > body as u64,
        "expected the kept bytes to be more than the {body} of the body, got {kept}"
    );

    let bare = request("bare");
    claim(store, &bare).await.claimed("another claim");
    let not_kept = Completion {
        status: 204,
        resource_id: None,
        response: None,
    };
    let completed = complete(store, &bare, &not_kept).await;
    same(&completed, &Fenced::Owner, "the completion");
    let found = live(inspect, bare.key).await;
    let state = LiveState::Completed {
        completed_at: moment(&found),
        status: 204,
        resource_id: None,
        kept_bytes: None,
    };
    same(&found.state, &state, "a record that keeps no answer");
}

pub(super) async fn a_completion_leaves_its_moment(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(7 * SECOND).await;
    let earliest = now(store).await;
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    let latest = now(store).await;
    let told = moment(&live(inspect, first.key).await);
    between(told, earliest, latest, "the completion");

    fixture.advance(MINUTE).await;
    let again = complete(store, &first, &answered(201)).await;
    same(&again, &Fenced::Owner, "the completion, repeated");
    let after = moment(&live(inspect, first.key).await);
    same(&after, &told, "the moment after a repeated completion");
}

pub(super) async fn a_late_completion_leaves_its_own_moment(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let second = retry_of(&first);
    claim(store, &second).await.claimed("a takeover");
    fixture.advance(LEASE + SECOND).await;
    let earliest = now(store).await;
    let done = complete(store, &second, &answered(201)).await;
    same(&done, &Fenced::Owner, "the late completion");
    let told = moment(&live(inspect, first.key).await);
    between(told, earliest, now(store).await, "the late completion");
}

pub(super) async fn an_amendment_leaves_its_moment(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    for (name, later) in [("lapsed", LEASE), ("expired", TTL)] {
        let attempt = request(name);
        claim(store, &attempt).await.claimed("a claim");
        fixture.advance(later).await;
        let earliest = now(store).await;
        let done = amend(store, attempt.key, &answered(201)).await;
        same(&done, &true, "the amendment");
        let told = moment(&live(inspect, attempt.key).await);
        between(told, earliest, now(store).await, "the amendment");
    }
}

pub(super) async fn a_key_that_runs_anew_has_no_moment(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    run(store, &first, 201).await;
    fixture.advance(TTL).await;
    let anew = retry_of(&first);
    let lease = claim(store, &anew).await.claimed("a claim after expiry");
    let running = LiveState::InProgress {
        lease_until: lease.lease_until,
        speculative: false,
    };
    same(&live(inspect, first.key).await.state, &running, "the state");
    fixture.advance(SECOND).await;
    let earliest = now(store).await;
    let done = complete(store, &anew, &answered(202)).await;
    same(&done, &Fenced::Owner, "the second completion");
    let told = moment(&live(inspect, first.key).await);
    between(told, earliest, now(store).await, "the second completion");
}

pub(super) async fn claims_are_counted_by_the_minute(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let mut claims = Vec::new();
    for (name, later) in [
        ("before", SECOND),
        ("first", Duration::ZERO),
        ("second", 2 * MINUTE),
        ("third", MINUTE),
        ("after", MINUTE),
    ] {
        let lease = claim(store, &request(name)).await.claimed("a claim");
        claims.push(lease.created_at);
        fixture.advance(later).await;
    }
    run(store, &request("completed"), 201).await;
    // The first bound is in, the second is out.
    let (from, until) = (claims[1], claims[4]);
    let counted = inspect.claimed_per_minute(from, until).await;
    let counted = ok(counted, "the claims per minute");
    same(
        &counted,
        &by_the_minute(&claims[1..4]),
        "the claims per minute",
    );
}

/// Times in their order, counted by the minute.
pub(super) fn by_the_minute(claims: &[Timestamp]) -> Vec<PerMinute> {
    let mut minutes: Vec<PerMinute> = Vec::new();
    for claim in claims {
        let second = claim.as_second();
        let begin = Timestamp::from_second(second - second.rem_euclid(60));
        let minute = begin.expect("a time of the calendar");
        match minutes.last_mut() {
            Some(last) if last.minute == minute => last.keys += 1,
            _ => minutes.push(PerMinute { minute, keys: 1 }),
        }
    }
    minutes
}

pub(super) async fn the_published_ttls_are_told(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    for (smallest, largest) in [(12 * HOUR, 24 * HOUR), (6 * HOUR, 48 * HOUR)] {
        let notice = TtlNotice {
            process: Uuid::new_v4(),
            smallest,
            largest,
        };
        ok(store.publish_ttl(notice).await, "a notice");
    }
    let told = PublishedTtls {
        smallest: 6 * HOUR,
        largest: 48 * HOUR,
    };
    same(&census(inspect).await.ttls, &Some(told), "the TTLs");
}

pub(super) async fn a_closed_store_tells_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let now = now(store).await;
    store.close().await;
    let query = OpenQuery {
        at: now,
        within: OpenQuery::DEFAULT_WITHIN,
        limit: 10,
    };
    let name = key("k");
    let kinds = [
        inspect.backlog().await.err(),
        inspect.census().await.err(),
        inspect.record(name).await.err(),
        inspect.open_at(&query).await.err(),
        inspect.claimed_per_minute(now, now).await.err(),
        inspect.erase_response(name).await.err(),
    ]
    .map(|error| error.map(|error| error.kind()));
    same(
        &kinds,
        &[Some(StoreErrorKind::Unavailable); 6],
        "the errors after close",
    );
}
