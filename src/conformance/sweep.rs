//! Expired records move into the archive, oldest first.

use std::time::Duration;

use super::{Fixture, stand_in::Unreachable, support::*};
use crate::{
    claim::ClaimRequest,
    record::Tombstone,
    store::{Fenced, Renewal},
};

/// An attempt whose record lives for `ttl`.
fn lasting(name: &str, ttl: Duration) -> ClaimRequest {
    ClaimRequest {
        ttl,
        ..archived(name)
    }
}

pub(super) async fn with_nothing_expired_a_sweep_moves_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    same(
        &sweep(store, None, 100).await,
        &0,
        "the sweep of an empty store",
    );
    run(store, &request("k"), 201).await;
    same(
        &sweep(store, None, 100).await,
        &0,
        "the sweep of a young store",
    );
    claim(store, &retry_of(&request("k")))
        .await
        .completed("a retry");
}

pub(super) async fn an_expired_record_becomes_a_tombstone(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    let first = archived("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    let done = complete(store, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    fixture.advance(TTL).await;
    same(
        &sweep(store, Some(&*archive), 100).await,
        &1,
        "how many were swept",
    );
    let expected = Tombstone {
        key: first.key,
        fingerprint: first.fingerprint.clone(),
        status: 201,
        resource_id: answered(201).resource_id,
        created_at: lease.created_at,
        expired_at: lease.expires_at,
    };
    same(
        &lookup(&*archive, first.key).await,
        &Some(expected),
        "the tombstone",
    );
    no_record(store, first.key, "after the sweep").await;
    same(
        &sweep(store, Some(&*archive), 100).await,
        &0,
        "how many are left",
    );
}

pub(super) async fn an_attempt_without_outcome_is_archived_with_status_0(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    let first = archived("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    run(store, &archived("l"), 201).await;
    fixture.advance(TTL).await;
    same(
        &sweep(store, Some(&*archive), 100).await,
        &2,
        "how many were swept",
    );
    let found = lookup(&*archive, first.key).await.expect("a tombstone");
    same(&found.status, &Tombstone::UNKNOWN_OUTCOME, "the status");
    same(&found.resource_id, &None, "the resource id");
    same(&found.created_at, &lease.created_at, "the time of creation");
    no_record(store, first.key, "after the sweep").await;
}

pub(super) async fn an_unconfirmed_claim_leaves_no_tombstone(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    same(
        &sweep(store, Some(&*archive), 100).await,
        &1,
        "how many were swept",
    );
    same(&lookup(&*archive, first.key).await, &None, "the tombstone");
    no_record(store, first.key, "after the sweep").await;
}

pub(super) async fn without_an_archive_expired_records_are_deleted(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    run(store, &request("completed"), 201).await;
    claim(store, &request("lapsed")).await.claimed("an attempt");
    claim(store, &old("unconfirmed", now(store).await))
        .await
        .claimed("an attempt");
    fixture.advance(TTL).await;
    same(&sweep(store, None, 100).await, &3, "how many were swept");
    for name in ["completed", "lapsed", "unconfirmed"] {
        no_record(store, key(name), "after the sweep").await;
    }
}

pub(super) async fn a_record_inside_its_window_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let long = |name| ClaimRequest {
        ttl: 2 * TTL,
        ..archived(name)
    };
    run(store, &long("completed"), 201).await;
    claim(store, &long("lapsed")).await.claimed("an attempt");
    let live = ClaimRequest {
        lease: 2 * TTL,
        ..archived("live past its TTL")
    };
    claim(store, &live).await.claimed("an attempt");
    run(store, &archived("expired"), 201).await;
    claim(store, &archived("expired in flight"))
        .await
        .claimed("an attempt");
    fixture.advance(TTL + HOUR).await;
    same(&sweep(store, None, 100).await, &2, "how many were swept");
    for name in ["completed", "lapsed", "live past its TTL"] {
        record(store, key(name)).await;
    }
}

pub(super) async fn a_live_lease_does_not_hide_what_is_behind_it(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..20 {
        let live = ClaimRequest {
            lease: 3 * TTL,
            ..lasting(&format!("live {n}"), HOUR)
        };
        claim(store, &live).await.claimed("an attempt");
    }
    run(store, &lasting("expired", 2 * HOUR), 201).await;
    fixture.advance(TTL).await;
    same(&sweep(store, None, 1).await, &1, "how many were swept");
    no_record(store, key("expired"), "after the sweep").await;
    same(&sweep(store, None, 1).await, &0, "how many are left");
}

pub(super) async fn a_renewed_lease_is_not_swept(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = ClaimRequest {
        lease: 40 * MINUTE,
        ..lasting("k", HOUR)
    };
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(30 * MINUTE).await;
    let renewal = Renewal {
        lease: HOUR,
        ..renewal_of(&first)
    };
    renew(store, renewal).await;
    fixture.advance(45 * MINUTE).await;
    same(&sweep(store, None, 100).await, &0, "the sweep past the TTL");
    fixture.advance(15 * MINUTE).await;
    same(
        &sweep(store, None, 100).await,
        &1,
        "the sweep past the lease",
    );
}

pub(super) async fn a_sweep_takes_the_oldest_first(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for hours in [5, 1, 4, 2, 3] {
        run(store, &lasting(&format!("{hours} h"), hours * HOUR), 201).await;
    }
    fixture.advance(4 * HOUR + MINUTE).await;
    let is_archived = async |name| lookup(&*archive, key(name)).await.is_some();
    let names = ["1 h", "2 h", "3 h", "4 h", "5 h"];
    for (swept, left) in [(3, 1), (1, 0)] {
        same(
            &sweep(store, Some(&*archive), 3).await,
            &swept,
            "how many were swept",
        );
        for (n, name) in names.into_iter().enumerate() {
            let what = format!("whether the record of {name} was moved");
            same(&is_archived(name).await, &(n < 4 - left), &what);
            let found = ok(store.get(key(name)).await, "a read");
            same(&found.is_none(), &(n < 4 - left), &what);
        }
    }
    same(
        &sweep(store, Some(&*archive), 3).await,
        &0,
        "how many are left",
    );
    record(store, key("5 h")).await;
}

pub(super) async fn sweeps_end_when_nothing_is_left(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for n in 0..50 {
        run(store, &archived(&format!("k{n}")), 201).await;
    }
    fixture.advance(TTL).await;
    let mut swept = Vec::new();
    loop {
        match sweep(store, Some(&*archive), 20).await {
            0 => break,
            moved => swept.push(moved),
        }
    }
    same(&swept, &vec![20, 20, 10], "the batches");
    for n in 0..50 {
        let found = lookup(&*archive, key(&format!("k{n}"))).await;
        same(&found.is_some(), &true, "whether a record was archived");
    }
}

pub(super) async fn what_was_archived_already_is_still_removed(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    run(store, &archived("k"), 201).await;
    claim(store, &archived("lapsed"))
        .await
        .claimed("an attempt");
    fixture.advance(TTL).await;
    // A sweep that was interrupted between its two phases.
    let expired = ok(store.expired(100).await, "a list of expired records");
    let tombstones: Vec<_> = expired.iter().map(|row| row.tombstone.clone()).collect();
    insert(&*archive, &tombstones).await;

    same(
        &sweep(store, Some(&*archive), 100).await,
        &2,
        "how many were swept",
    );
    for tombstone in tombstones {
        no_record(store, tombstone.key, "after the sweep").await;
        let found = lookup(&*archive, tombstone.key).await;
        same(&found, &Some(tombstone), "the tombstone");
    }
}

pub(super) async fn a_sweep_whose_archive_fails_keeps_the_records(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    run(store, &archived("k"), 201).await;
    fixture.advance(TTL).await;
    let swept = store.sweep(Some(&Unreachable), 100).await;
    same(&swept.is_err(), &true, "whether the sweep failed");
    claim(store, &retry_of(&archived("k")))
        .await
        .expired("a late retry");
    same(
        &sweep(store, None, 100).await,
        &1,
        "how many the next sweep moved",
    );
}

pub(super) async fn a_swept_key_is_unknown_to_the_store(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    let mut first = archived("k");
    first.age.timestamp = Some(now(store).await);
    run(store, &first, 201).await;
    fixture.advance(TTL).await;
    same(
        &sweep(store, Some(&*archive), 100).await,
        &1,
        "how many were swept",
    );

    // The key's own timestamp is old by now, so the claim asks the archive.
    let lease = claim(store, &retry_of(&first))
        .await
        .claimed("a retry after the sweep");
    same(&lease.attempt, &1, "the attempt");
    same(&lease.ask_archive, &true, "whether to ask the archive");
    let found = ok(
        archive.lookup(first.key, first.age.timestamp).await,
        "a lookup",
    );
    same(
        &found.map(|row| row.status),
        &Some(201),
        "the status in the archive",
    );
}
