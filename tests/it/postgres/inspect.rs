//! What is special to PostgreSQL of what an operator asks.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, Tombstone,
    archive::{Archive, PostgresArchive},
    inspect::{InspectArchive, InspectStore, LiveState, OpenOutcome, OpenQuery},
    store::{
        Fenced, Store as _,
        postgres::{PostgresStore, migrator},
    },
};
use jiff::Timestamp;
use tokio::join;

use super::{
    Fixture, Raw, TTL, claim, completion, in_time, key,
    place::{DAY, Place, at, tombstone},
    promptly, request,
};
use crate::support::postgres::Schema;

const MINUTE: Duration = Duration::from_mins(1);

fn asked(store: &PostgresStore) -> &dyn InspectStore {
    store.inspect().expect("a store that can be inspected")
}

fn asked_archive(archive: &PostgresArchive) -> &dyn InspectArchive {
    archive.inspect().expect("an archive that can be inspected")
}

async fn completed(place: &Place, name: &str) -> Timestamp {
    let token = claim(&place.store, request(key(name))).await;
    let done = place.store.complete(key(name), token, completion(201));
    assert_eq!(done.await.expect("an answer"), Fenced::Owner);
    place.clock.now()
}

async fn moment(store: &PostgresStore, name: &str) -> Option<Timestamp> {
    let record = asked(store).record(key(name)).await.expect("an answer");
    match record.expect("a record").state {
        LiveState::Completed { completed_at, .. } => completed_at,
        other => panic!("expected a completed record, got {other:?}"),
    }
}

async fn outcomes(store: &PostgresStore, at: Timestamp, within: Duration) -> Vec<OpenOutcome> {
    let query = OpenQuery {
        at,
        within,
        limit: 10,
    };
    let open = asked(store).open_at(&query).await.expect("an answer");
    open.iter().map(|record| record.outcome).collect()
}

#[tokio::test]
async fn what_was_completed_before_the_migration_has_no_moment() {
    in_time(async {
        let place = Place::new().await;
        let claimed_at = completed(&place, "old").await;
        let mut raw = Raw::connect(&place.schema.url()).await;
        migrator().undo(&mut raw.0, 1).await.expect("down to 1");
        let rows: i64 = raw.get("SELECT count(*) FROM idempotency_keys").await;
        assert_eq!(rows, 1);
        let store = place.other().await;

        assert_eq!(moment(&store, "old").await, None);
        place.clock.advance(2 * MINUTE);
        let then = claimed_at + MINUTE;
        let within = outcomes(&store, then, MINUTE).await;
        assert_eq!(within, [OpenOutcome::RecordedSometime]);
        assert_eq!(outcomes(&store, then, MINUTE / 2).await, []);
        // The process that was there before the migration goes on.
        let later = completed(&place, "new").await;
        assert_eq!(moment(&store, "new").await, Some(later));
        place.clock.advance(TTL);
        let swept = store.sweep(Some(&store.archive()), 10).await;
        assert_eq!(swept.expect("a sweep"), 2);
    })
    .await;
}

#[tokio::test]
async fn the_moment_of_an_earlier_window_is_none_of_this_one() {
    in_time(async {
        let place = Place::new().await;
        completed(&place, "k").await;
        place.clock.advance(TTL);
        // As a version writes that does not know the column: it claims an
        // expired key anew, and completes it.
        let again = place.clock.now();
        let mut raw = Raw::connect(&place.schema.url()).await;
        raw.run(&format!(
            "UPDATE idempotency_keys SET created_at = '{again}', \
             expires_at = '{again}'::timestamptz + interval '1 day'"
        ))
        .await;
        assert_eq!(moment(&place.store, "k").await, None);
        let within = outcomes(&place.store, again + MINUTE, MINUTE).await;
        assert_eq!(within, [OpenOutcome::RecordedSometime]);
        let too_long_ago = outcomes(&place.store, again + MINUTE, MINUTE / 2).await;
        assert_eq!(too_long_ago, []);
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_replaces_an_expired_record_leaves_no_moment() {
    in_time(async {
        let place = Place::new().await;
        completed(&place, "k").await;
        place.clock.advance(TTL);
        let mut again = request(key("k"));
        again.age.lookup_after = None;
        claim(&place.store, again).await;
        let mut raw = Raw::connect(&place.schema.url()).await;
        let moments: i64 = raw
            .get("SELECT count(completed_at) FROM idempotency_keys")
            .await;
        assert_eq!(moments, 0);
    })
    .await;
}

#[tokio::test]
async fn no_claim_waits_behind_a_migration_that_waits() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        migrator().undo(&mut raw.0, 1).await.expect("down to 1");
        // As a long sweep does.
        raw.script("BEGIN; LOCK TABLE idempotency_keys IN ROW EXCLUSIVE MODE")
            .await;
        let claims = async {
            raw_waits(&fixture).await;
            for n in 0..30 {
                promptly("a claim", fixture.claim(key(n))).await;
            }
            raw.script("COMMIT").await;
        };
        let (migrated, ()) = join!(fixture.store.migrate(), claims);
        migrated.expect("migrated, once the table was free");
        let census = asked(&fixture.store).census().await.expect("a census");
        assert_eq!(census.running, 30);
    })
    .await;
}

/// Until somebody of this schema waits for a lock.
async fn raw_waits(fixture: &Fixture) {
    fixture.raw().await.until_waiting(1).await;
}

#[tokio::test]
async fn the_partitions_tell_their_rows_and_bytes() {
    in_time(async {
        // In a database of its own, and in the store's.
        let (schema, place) = (Schema::new(), Place::new().await);
        let builder = PostgresArchive::builder().url(schema.url());
        let apart = builder.clock(place.clock.clone()).open().await;
        for archive in [apart.expect("an archive"), place.store.archive()] {
            let rows: Vec<Tombstone> = (0..50)
                .map(|n| tombstone(&format!("december {n}"), 201, at("2026-12-05T00:00:00Z")))
                .chain([tombstone("january", 201, at("2027-01-31T23:59:59Z"))])
                .collect();
            archive.insert(&rows).await.expect("inserted");
            let census = asked_archive(&archive).census().await.expect("a census");
            assert!(census.is_partitioned);
            assert_eq!(census.rows, 51);
            let december = &census.months[0];
            assert_eq!(december.name, "idempotency_key_archive_2026_12");
            assert_eq!(december.from, at("2026-12-01T00:00:00Z"));
            assert_eq!(december.until, at("2027-01-01T00:00:00Z"));
            assert_eq!(december.rows, 50);
            assert_eq!(census.months[1].rows, 1);
            let sizes: Vec<u64> = census
                .months
                .iter()
                .map(|month| month.bytes.expect("a size"))
                .collect();
            assert!(sizes[0] >= 50 * 60, "{sizes:?}");
            assert_eq!(census.bytes, Some(sizes.iter().sum()));
            let there = archive.partitions().await.expect("partitions");
            assert_eq!(there.len(), census.months.len());

            let gauges = asked_archive(&archive).gauges().await.expect("gauges");
            assert_eq!(gauges.rows, census.rows);
            assert_eq!(gauges.bytes, census.bytes);
            let newest = there.last().expect("a partition").until;
            assert_eq!(gauges.newest_partition_until, Some(newest));
        }
    })
    .await;
}

#[tokio::test]
async fn a_large_partition_tells_about_how_many_rows_it_has() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        archive
            .prepare(at("2026-12-01T00:00:00Z"), at("2026-12-02T00:00:00Z"))
            .await
            .expect("prepared");
        let mut raw = Raw::connect(&place.schema.url()).await;
        raw.run(
            "INSERT INTO idempotency_key_archive \
             SELECT 'idem:v1:' || n, '\\x1000', 201, NULL, '2026-12-02T00:00:00Z', \
                    '2026-12-03T00:00:00Z' FROM generate_series(1, 100001) n",
        )
        .await;
        raw.run("ANALYZE idempotency_key_archive").await;
        raw.run("DELETE FROM idempotency_key_archive WHERE scoped_key <> 'idem:v1:7'")
            .await;
        let rows = async || {
            let gauges = asked_archive(&archive).gauges().await.expect("gauges");
            gauges.rows
        };
        assert_eq!(rows().await, 100_001, "as the statistics have it");
        raw.run("ANALYZE idempotency_key_archive").await;
        assert_eq!(rows().await, 1, "counted, as there are few");
    })
    .await;
}

#[tokio::test]
async fn the_archive_tells_its_columns_with_their_types() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        let census = asked_archive(&archive).census().await.expect("a census");
        let columns: Vec<_> = census
            .columns
            .iter()
            .map(|column| (column.name.as_str(), column.type_name.as_str()))
            .collect();
        let expected = [
            ("scoped_key", "text"),
            ("fingerprint", "bytea"),
            ("status_code", "smallint"),
            ("resource_id", "text"),
            ("created_at", "timestamp with time zone"),
            ("expired_at", "timestamp with time zone"),
        ];
        assert_eq!(columns, expected);
    })
    .await;
}

#[tokio::test]
async fn a_census_tells_what_the_records_take_up() {
    in_time(async {
        let place = Place::new().await;
        let bytes = async || {
            let census = asked(&place.store).census().await.expect("a census");
            census.bytes.expect("a size")
        };
        let before = bytes().await;
        for n in 0..30 {
            completed(&place, &format!("key {n}")).await;
        }
        assert!(bytes().await > before);
    })
    .await;
}

#[tokio::test]
async fn the_newest_row_is_found_behind_partitions_that_are_empty() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        let far = place.clock.now() + 400 * DAY;
        archive
            .prepare(place.clock.now(), far)
            .await
            .expect("prepared");
        let row = tombstone("k", 201, at("2026-12-05T00:00:00Z"));
        archive
            .insert(std::slice::from_ref(&row))
            .await
            .expect("inserted");
        let newest = asked_archive(&archive).newest().await;
        assert_eq!(newest.expect("an answer"), Some(row));
    })
    .await;
}
