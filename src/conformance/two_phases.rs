//! The phases of a sweep into another database: list, archive, remove what is
//! still the same.

use super::{Fixture, stand_in::Midway, support::*};
use crate::{
    archive::MemoryArchive,
    claim::ClaimRequest,
    record::{ExpiredRecord, Tombstone},
    store::{Store, move_in_two_phases},
};

async fn expired(store: &dyn Store, limit: u32) -> Vec<ExpiredRecord> {
    ok(store.expired(limit).await, "a list of expired records")
}

async fn remove(store: &dyn Store, records: &[ExpiredRecord]) -> u64 {
    ok(store.remove(records).await, "a removal")
}

pub(super) async fn expired_records_are_listed_oldest_first(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for hours in [5, 1, 4, 2, 3] {
        let attempt = ClaimRequest {
            ttl: hours * HOUR,
            ..archived(&format!("{hours} h"))
        };
        run(store, &attempt, 201).await;
    }
    fixture.advance(4 * HOUR + MINUTE).await;
    let keys = async |limit| -> Vec<_> {
        let listed = expired(store, limit).await.into_iter();
        listed.map(|row| row.tombstone.key).collect()
    };
    let all = ["1 h", "2 h", "3 h", "4 h"].map(key).to_vec();
    same(&keys(100).await, &all, "the expired records");
    same(&keys(2).await, &all[..2].to_vec(), "the two oldest");
    same(&keys(100).await, &all, "the expired records, listed again");
}

pub(super) async fn a_listed_record_tells_all_that_is_archived(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    let expected = ExpiredRecord {
        tombstone: Tombstone {
            key: first.key,
            fingerprint: first.fingerprint.clone(),
            status: Tombstone::UNKNOWN_OUTCOME,
            resource_id: None,
            created_at: lease.created_at,
            expired_at: lease.expires_at,
        },
        token: first.token,
        speculative: false,
    };
    same(
        &expired(store, 100).await,
        &vec![expected],
        "the expired records",
    );
}

pub(super) async fn an_unconfirmed_claim_is_listed_as_such(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    claim(store, &old("k", now(store).await))
        .await
        .claimed("the first claim");
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    let marks: Vec<bool> = listed.iter().map(|row| row.speculative).collect();
    same(
        &marks,
        &vec![true],
        "which of the expired records are unconfirmed",
    );
}

pub(super) async fn a_live_lease_is_not_listed(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let live = ClaimRequest {
        lease: 2 * TTL,
        ..archived("live")
    };
    claim(store, &live).await.claimed("an attempt");
    fixture.advance(TTL + HOUR).await;
    same(&expired(store, 100).await, &vec![], "the expired records");
}

pub(super) async fn listed_records_are_removed_once(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    run(store, &archived("completed"), 201).await;
    claim(store, &archived("lapsed"))
        .await
        .claimed("an attempt");
    claim(store, &old("unconfirmed", now(store).await))
        .await
        .claimed("an attempt");
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    same(&remove(store, &listed).await, &3, "how many were removed");
    same(
        &remove(store, &listed).await,
        &0,
        "how many were removed again",
    );
    same(&remove(store, &[]).await, &0, "the removal of nothing");
    same(&expired(store, 100).await, &vec![], "the expired records");
}

pub(super) async fn a_record_that_took_an_outcome_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    same(
        &amend(store, first.key, &answered(201)).await,
        &true,
        "the amendment",
    );
    same(&remove(store, &listed).await, &0, "how many were removed");
    let found = claim(store, &retry_of(&first))
        .await
        .expired("a late retry");
    same(&found.status, &201, "the status");

    let Some(archive) = archive_of(fixture) else {
        return;
    };
    // What was archived before the outcome came takes it with the next sweep.
    insert(&*archive, &[listed[0].tombstone.clone()]).await;
    same(
        &sweep(store, Some(&*archive), 100).await,
        &1,
        "how many were swept",
    );
    let found = lookup(&*archive, first.key).await;
    same(
        &found.map(|row| row.status),
        &Some(201),
        "the status in the archive",
    );
}

pub(super) async fn a_record_that_was_claimed_anew_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let (completed, lapsed) = (request("completed"), request("lapsed"));
    run(store, &completed, 201).await;
    claim(store, &lapsed).await.claimed("the first claim");
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    same(&listed.len(), &2, "how many were listed");
    for attempt in [&completed, &lapsed] {
        claim(store, &retry_of(attempt))
            .await
            .claimed("a claim of an expired key");
    }
    same(&remove(store, &listed).await, &0, "how many were removed");
    for attempt in [&completed, &lapsed] {
        claim(store, &retry_of(attempt)).await.in_flight("a retry");
    }
}

pub(super) async fn a_record_that_its_owner_claimed_again_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    claim(store, &first).await.claimed("the claim made again");
    same(&remove(store, &listed).await, &0, "how many were removed");
    claim(store, &retry_of(&first)).await.in_flight("a retry");
}

pub(super) async fn a_record_that_differs_from_the_listed_one_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    run(store, &archived("k"), 201).await;
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    let [is] = <[ExpiredRecord; 1]>::try_from(listed).expect("one expired record");
    let with = |tombstone| ExpiredRecord {
        tombstone,
        ..is.clone()
    };
    let others = [
        ExpiredRecord {
            token: request("k").token,
            ..is.clone()
        },
        with(Tombstone {
            status: Tombstone::UNKNOWN_OUTCOME,
            ..is.tombstone.clone()
        }),
        with(Tombstone {
            expired_at: before(is.tombstone.expired_at, SECOND),
            ..is.tombstone.clone()
        }),
        with(Tombstone {
            key: key("l"),
            ..is.tombstone.clone()
        }),
    ];
    let removed = remove(store, &others).await;
    same(
        &removed,
        &0,
        "how many were removed with another token, status, expiry or key",
    );
    same(&remove(store, &[is]).await, &1, "how many were removed");
}

pub(super) async fn only_the_same_records_are_counted(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for name in ["a", "b", "c", "d"] {
        run(store, &request(name), 201).await;
    }
    fixture.advance(TTL).await;
    let listed = expired(store, 100).await;
    claim(store, &request("b"))
        .await
        .claimed("a claim of an expired key");
    same(&remove(store, &listed).await, &3, "how many were removed");
    record(store, key("b")).await;
}

pub(super) async fn a_sweep_in_two_phases_moves_like_any_other(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for n in 0..10 {
        run(store, &archived(&format!("k{n}")), 201).await;
    }
    claim(store, &old("unconfirmed", now(store).await))
        .await
        .claimed("an attempt");
    fixture.advance(TTL).await;
    let mut total = 0;
    loop {
        let moved = ok(
            move_in_two_phases(store, Some(&*archive), 4).await,
            "a sweep",
        );
        total += moved;
        if moved == 0 {
            break;
        }
    }
    same(&total, &11, "how many were swept");
    for n in 0..10 {
        let key = key(&format!("k{n}"));
        no_record(store, key, "after the sweep").await;
        same(
            &lookup(&*archive, key).await.is_some(),
            &true,
            "whether it was archived",
        );
    }
    same(
        &lookup(&*archive, key("unconfirmed")).await,
        &None,
        "the tombstone",
    );
}

pub(super) async fn a_sweep_into_another_database_moves_the_records(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let archive = MemoryArchive::new();
    run(store, &archived("completed"), 201).await;
    claim(store, &archived("lapsed"))
        .await
        .claimed("an attempt");
    claim(store, &old("unconfirmed", now(store).await))
        .await
        .claimed("an attempt");
    fixture.advance(TTL).await;
    same(
        &sweep(store, Some(&archive), 100).await,
        &3,
        "how many were swept",
    );
    let expected = [
        ("completed", Some(201)),
        ("lapsed", Some(0)),
        ("unconfirmed", None),
    ];
    for (name, status) in expected {
        let found = lookup(&archive, key(name)).await;
        same(
            &found.map(|row| row.status),
            &status,
            "the status in the archive",
        );
        no_record(store, key(name), "after the sweep").await;
    }
}

pub(super) async fn a_sweep_that_was_overtaken_looks_again(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for hours in 1..=4 {
        let attempt = ClaimRequest {
            ttl: hours * HOUR,
            ..archived(&format!("{hours} h"))
        };
        run(store, &attempt, 201).await;
    }
    fixture.advance(TTL).await;
    let other = fixture.store();
    let archive = Midway::new(async move {
        same(
            &sweep(&*other, None, 2).await,
            &2,
            "how many the faster sweeper moved",
        );
    });
    // Zero would tell the sweeper that nothing is left.
    same(
        &sweep(store, Some(&archive), 2).await,
        &2,
        "how many the slower sweeper moved",
    );
    same(&expired(store, 100).await, &vec![], "the expired records");
}

pub(super) async fn a_record_that_changes_during_a_sweep_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    fixture.advance(TTL).await;
    let (other, second) = (fixture.store(), retry_of(&first));
    let archive = Midway::new(async move {
        claim(&*other, &second)
            .await
            .claimed("a claim of an expired key");
    });
    same(
        &sweep(store, Some(&archive), 100).await,
        &0,
        "how many were swept",
    );
    claim(store, &retry_of(&first)).await.in_flight("a retry");
}
