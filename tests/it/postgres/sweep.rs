//! Moving expired rows: all of them, each once, in the way of nobody.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, Tombstone,
    archive::{Archive, PostgresArchive},
    store::{Store as _, move_in_two_phases, postgres::PostgresStore},
};

use super::{
    Raw, TTL, completion, in_time, key,
    place::{Place, at, tombstone},
};
use crate::support::{Logs, postgres::Schema};

const CLAIMED: &str = "2026-11-29T00:00:00Z";
const EXPIRED: &str = "2026-11-30T00:00:00Z";

async fn sweep(store: &PostgresStore, archive: &dyn Archive, limit: u32) -> u64 {
    store.sweep(Some(archive), limit).await.expect("a sweep")
}

async fn status_of(name: &str, archive: &dyn Archive) -> Option<u16> {
    let found = archive.lookup(key(name), None).await;
    found.expect("an answer").map(|row| row.status)
}

/// An archive in a database of its own, which was not prepared.
async fn apart() -> (Schema, PostgresArchive) {
    let schema = Schema::new();
    drop(PostgresStore::open(&schema.url()).await.expect("migrated"));
    let archive = PostgresArchive::builder().url(schema.url()).migrate(false);
    let archive = archive.open().await.expect("an archive");
    (schema, archive)
}

#[tokio::test]
async fn a_missing_partition_is_reported_and_made_and_nothing_is_lost() {
    in_time(async {
        let (_schema, apart) = apart().await;
        for into_another_database in [false, true] {
            let place = Place::new().await;
            let within = place.store.archive();
            let archive = if into_another_database {
                &apart
            } else {
                &within
            };
            let logs = Logs::capture();
            place
                .complete("autumn", at("2026-10-31T12:00:00Z"), 201)
                .await;
            place.abandon("spring", at("2026-03-31T12:00:00Z")).await;
            assert_eq!(sweep(&place.store, archive, 100).await, 2);
            let text = logs.text();
            for month in ["2026_04", "2026_11"] {
                let said = text.lines().any(|line| {
                    line.contains("ERROR")
                        && line.contains(&format!("idempotency_key_archive_{month}"))
                });
                assert!(said, "{month} is not reported:\n{text}");
            }
            assert_eq!(text.matches("ERROR").count(), 2, "{text}");
            assert_eq!(status_of("autumn", archive).await, Some(201));
            assert_eq!(
                status_of("spring", archive).await,
                Some(Tombstone::UNKNOWN_OUTCOME)
            );
            assert_eq!(place.beside().await.count("idempotency_keys").await, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn an_outcome_that_came_after_its_row_was_archived_wins() {
    in_time(async {
        let (_schema, apart) = apart().await;
        for into_another_database in [false, true] {
            let place = Place::new().await;
            let within = place.store.archive();
            let archive = if into_another_database {
                &apart
            } else {
                &within
            };
            place.abandon("k", at(CLAIMED)).await;
            // A sweep of two phases dies between them, and an operator learns
            // the outcome.
            let unknown = tombstone("k", 0, at(EXPIRED));
            archive.insert(&[unknown]).await.expect("inserted");
            let amended = place.store.amend(key("k"), completion(202)).await;
            assert!(amended.expect("an answer"));
            assert_eq!(sweep(&place.store, archive, 100).await, 1);
            assert_eq!(status_of("k", archive).await, Some(202));
            // What is archived without an outcome after that changes nothing.
            let unknown = tombstone("k", 0, at(EXPIRED));
            archive.insert(&[unknown]).await.expect("inserted");
            assert_eq!(status_of("k", archive).await, Some(202));
        }
    })
    .await;
}

/// Keys that expired one after another, of which every third was in flight.
async fn expire_many(place: &Place, keys: u32) {
    let mut beside = place.beside().await;
    for n in 0..keys {
        let (status, lease) = match n % 3 {
            0 => ("NULL", "'2026-11-29 00:00:30+00'"),
            _ => ("201", "NULL"),
        };
        beside
            .script(&format!(
                "INSERT INTO idempotency_keys (scoped_key, fingerprint, token, attempt, \
                     created_at, expires_at, lease_until, speculative, status_code) \
                 VALUES ('{}', '\\x10', gen_random_uuid(), 1, '{CLAIMED}', \
                     timestamptz '{EXPIRED}' + {n} * interval '1 second', {lease}, false, {status})",
                key(n),
            ))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_sweepers_archive_every_row_once() {
    in_time(async {
        let (_schema, apart) = apart().await;
        for into_another_database in [false, true] {
            let place = Place::new().await;
            expire_many(&place, 300).await;
            let mut sweepers = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let store = place.other().await;
                let within = store.archive();
                let archive = if into_another_database {
                    apart.clone()
                } else {
                    within
                };
                sweepers.spawn(async move {
                    let mut total = 0;
                    loop {
                        match sweep(&store, &archive, 7).await {
                            0 => return total,
                            moved => total += moved,
                        }
                    }
                });
            }
            let mut moved = 0;
            while let Some(total) = sweepers.join_next().await {
                moved += total.expect("no panic");
            }
            assert_eq!(moved, 300, "rows moved by four sweepers together");
            let mut live = place.beside().await;
            assert_eq!(
                live.count("idempotency_keys").await,
                0,
                "rows that were left"
            );
            let archive = place.store.archive();
            let archive = if into_another_database {
                &apart
            } else {
                &archive
            };
            for n in 0..300 {
                let expected = if n % 3 == 0 { 0 } else { 201 };
                let found = status_of(&n.to_string(), archive).await;
                assert_eq!(found, Some(expected), "key {n}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_row_that_somebody_holds_is_left_and_moved_later() {
    in_time(async {
        let (_schema, apart) = apart().await;
        for into_another_database in [false, true] {
            let place = Place::new().await;
            let within = place.store.archive();
            let archive = if into_another_database {
                &apart
            } else {
                &within
            };
            expire_many(&place, 10).await;
            let mut holder = place.beside().await;
            holder
                .script(&format!(
                    "BEGIN; SELECT FROM idempotency_keys WHERE scoped_key = '{}' FOR UPDATE",
                    key("0"),
                ))
                .await;
            assert_eq!(sweep(&place.store, archive, 100).await, 9);
            let mut beside = place.beside().await;
            let left: Vec<String> = beside.all("SELECT scoped_key FROM idempotency_keys").await;
            assert_eq!(left, [key("0").to_string()], "the rows that are left");
            holder.script("COMMIT").await;
            assert_eq!(sweep(&place.store, archive, 100).await, 1);
            assert_eq!(status_of("0", archive).await, Some(0));
        }
    })
    .await;
}

#[tokio::test]
async fn an_insertion_waits_for_another_of_the_same_row() {
    in_time(async {
        let (schema, apart) = apart().await;
        let expired_at = at(EXPIRED);
        apart
            .prepare(expired_at, expired_at)
            .await
            .expect("prepared");
        let mut slow = Raw::connect(&schema.url()).await;
        slow.script(&format!(
            "BEGIN; INSERT INTO idempotency_key_archive \
             VALUES ('{}', '\\x10', 0, NULL, '{CLAIMED}', '{EXPIRED}')",
            key("k"),
        ))
        .await;
        let inserting = {
            let apart = apart.clone();
            let row = tombstone("k", 201, expired_at);
            tokio::spawn(async move { apart.insert(&[row]).await })
        };
        let mut beside = Raw::connect(&schema.url()).await;
        beside.until_waiting(1).await;
        slow.script("COMMIT").await;
        inserting.await.expect("no panic").expect("inserted");
        assert_eq!(status_of("k", &apart).await, Some(201), "the outcome won");
    })
    .await;
}

#[tokio::test]
async fn a_row_that_another_sweeper_moved_in_between_is_no_error() {
    in_time(async {
        let place = Place::new().await;
        let (_schema, apart) = apart().await;
        expire_many(&place, 3).await;
        let listed = place.store.expired(100).await.expect("an answer");
        let rows: Vec<_> = listed.iter().map(|row| row.tombstone.clone()).collect();
        apart.insert(&rows).await.expect("inserted");
        // Another one is faster with all of it.
        let other = place.other().await;
        let moved = move_in_two_phases(&other, Some(&apart), 100).await;
        assert_eq!(moved.expect("a sweep"), 3);
        assert_eq!(place.store.remove(&listed).await.expect("an answer"), 0);
        for (name, status) in [("0", 0), ("1", 201), ("2", 201)] {
            assert_eq!(status_of(name, &apart).await, Some(status), "key {name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_sweep_goes_by_the_index_where_statistics_are_stale() {
    in_time(async {
        let place = Place::new().await;
        place
            .store
            .archive()
            .prepare(at(EXPIRED), place.clock.now())
            .await
            .expect("prepared");
        let mut beside = place.beside().await;
        // Planned over an empty table, as far as anybody knows.
        beside
            .script(
                "ALTER TABLE idempotency_keys SET (autovacuum_enabled = off); \
                 ANALYZE idempotency_keys; \
                 SET enable_seqscan = off; SET jit = off",
            )
            .await;
        let statement = include_str!("../../../src/store/postgres/sql/sweep.sql");
        beside
            .script(&format!(
                "PREPARE sweep (timestamptz, bigint) AS {statement}"
            ))
            .await;
        let execute = "EXECUTE sweep ('2026-12-01 00:00:00+00', 100)";
        for mode in ["auto", "force_generic_plan"] {
            beside
                .script(&format!("SET plan_cache_mode = {mode}"))
                .await;
            for _ in 0..6 {
                beside.script(execute).await;
            }
            expire_many(&place, 200).await;
            let plan = beside.plan_of(execute).await;
            for step in [
                "using idempotency_keys_expires_at",
                "Tid Scan on idempotency_keys",
                // Into the archive in the order in which others insert.
                "scoped_key COLLATE \"C\"",
            ] {
                assert!(plan.contains(step), "no {step}:\n{plan}");
            }
            assert!(!plan.contains("Seq Scan"), "{plan}");
            beside.script("DELETE FROM idempotency_keys").await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_sweep_stops_at_its_limit_and_takes_the_oldest() {
    in_time(async {
        let place = Place::new().await;
        expire_many(&place, 5).await;
        let archive = place.store.archive();
        assert_eq!(sweep(&place.store, &archive, 2).await, 2);
        for (name, is_archived) in [("0", true), ("1", true), ("2", false), ("4", false)] {
            let found = status_of(name, &archive).await;
            assert_eq!(found.is_some(), is_archived, "whether {name} is archived");
        }
        // A row whose time has not come yet stays, whatever is asked for.
        let young = place.clock.now() - TTL + Duration::from_secs(1);
        place.complete("young", young, 201).await;
        assert_eq!(sweep(&place.store, &archive, 100).await, 3);
        assert_eq!(sweep(&place.store, &archive, 100).await, 0);
        assert_eq!(place.beside().await.count("idempotency_keys").await, 1);
    })
    .await;
}
