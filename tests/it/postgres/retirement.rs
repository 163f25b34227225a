//! Months that are past the retention go, and nothing else does.

use axum_idempotency::{
    Clock as _, Sweeper,
    archive::{Archive as _, PostgresArchive},
};

use super::{
    in_time, key,
    place::{DAY, Place, at, tombstone},
};

/// An archive of a year, with a row in the middle of every month from this one
/// back through `months`.
async fn archive_of_a_year(place: &Place, months: u32) -> PostgresArchive {
    let archive = place.store.archive_with_retention(365 * DAY);
    let rows: Vec<_> = (0..months)
        .map(|back| {
            let (year, month) = (2026 - back / 12, 12 - back % 12);
            let expired_at = at(&format!("{year}-{month:02}-15T00:00:00Z"));
            tombstone(&format!("{year}_{month:02}"), 201, expired_at)
        })
        .collect();
    archive.insert(&rows).await.expect("inserted");
    archive
}

#[tokio::test]
async fn a_month_goes_when_its_last_moment_is_past_the_retention() {
    in_time(async {
        let place = Place::new().await;
        let archive = archive_of_a_year(&place, 15).await;
        let mut beside = place.beside().await;
        let prune = async |now| archive.prune(at(now), 100).await.expect("an answer");
        // November of 2025 ends as December begins.
        assert_eq!(
            prune("2026-11-30T23:59:59Z").await,
            1,
            "only October is past it"
        );
        assert_eq!(beside.months().await[0], "2025_11");
        assert_eq!(prune("2026-12-01T00:00:00Z").await, 1);
        assert_eq!(beside.months().await[0], "2025_12");
        assert_eq!(prune("2026-12-31T23:59:59Z").await, 0, "nothing is left");
        for (name, is_kept) in [("2025_10", false), ("2025_11", false), ("2025_12", true)] {
            let found = archive.lookup(key(name), None).await.expect("an answer");
            assert_eq!(
                found.is_some(),
                is_kept,
                "whether the row of {name} is kept"
            );
        }
        let left_over = "pg_class WHERE relnamespace = current_schema()::regnamespace \
                         AND relname LIKE 'idempotency_key_archive_2025_1_'";
        assert_eq!(beside.count(left_over).await, 1, "tables of those months");
    })
    .await;
}

#[tokio::test]
async fn a_sweep_drops_what_is_past_the_retention() {
    in_time(async {
        let place = Place::new().await;
        let archive = archive_of_a_year(&place, 20).await;
        let sweeper = Sweeper::new(place.store.clone()).archive(archive);
        let swept = sweeper.sweep_once().await.expect("a sweep");
        assert_eq!(swept.pruned, 7, "the rows of May through November 2025");
        assert_eq!(place.beside().await.months().await[0], "2025_12");
    })
    .await;
}

#[tokio::test]
async fn an_empty_month_goes_on_the_way_to_those_with_rows() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive_with_retention(365 * DAY);
        archive
            .prepare(at("2024-01-01T00:00:00Z"), place.clock.now())
            .await
            .expect("prepared");
        let row = tombstone("k", 201, at("2025-03-01T00:00:00Z"));
        archive.insert(&[row]).await.expect("inserted");
        let prune = async |limit| archive.prune(place.clock.now(), limit).await;
        assert_eq!(prune(0).await.expect("an answer"), 0);
        let mut beside = place.beside().await;
        assert_eq!(beside.months().await[0], "2024_01");
        assert_eq!(prune(1).await.expect("an answer"), 1);
        assert_eq!(beside.months().await[0], "2025_04", "enough for this time");
        assert_eq!(prune(1).await.expect("an answer"), 0);
        assert_eq!(beside.months().await[0], "2025_12");
    })
    .await;
}

#[tokio::test]
async fn what_was_detached_and_not_dropped_is_dropped() {
    in_time(async {
        let place = Place::new().await;
        let archive = archive_of_a_year(&place, 14).await;
        let mut beside = place.beside().await;
        // What a retirement leaves that dies between its two transactions.
        let schema = place.schema.name();
        let interrupted = |month| {
            format!(
                "ALTER TABLE idempotency_key_archive \
                     DETACH PARTITION idempotency_key_archive_{month}; \
                 COMMENT ON TABLE idempotency_key_archive_{month} IS \
                     'axum-idempotency: retired from {schema}.idempotency_key_archive'"
            )
        };
        let table = |month| {
            format!(
                "pg_class WHERE oid = \
            to_regclass('idempotency_key_archive_{month}')"
            )
        };
        beside.script(&interrupted("2025_11")).await;
        let now = place.clock.now();
        archive.prepare(now, now).await.expect("prepared");
        assert_eq!(beside.count(&table("2025_11")).await, 0);

        // Where its month is needed again, it is made anew.
        beside.script(&interrupted("2025_12")).await;
        let row = tombstone("late", 201, at("2025-12-20T00:00:00Z"));
        archive.insert(&[row]).await.expect("inserted");
        let found = archive.lookup(key("2025_12"), None).await;
        assert_eq!(found.expect("an answer"), None, "what was retired stays so");
        let found = archive.lookup(key("late"), None).await;
        assert_eq!(found.expect("an answer").expect("the row").status, 201);
    })
    .await;
}

#[tokio::test]
async fn what_somebody_else_detached_is_kept() {
    in_time(async {
        let place = Place::new().await;
        let archive = archive_of_a_year(&place, 16).await;
        let mut beside = place.beside().await;
        // An operator keeps a month elsewhere, and has a table that looks alike.
        beside
            .script(
                "ALTER TABLE idempotency_key_archive \
                     DETACH PARTITION idempotency_key_archive_2025_10; \
                 CREATE TABLE idempotency_key_archive_2020_01 (id int)",
            )
            .await;
        let now = place.clock.now();
        archive.prepare(now, now).await.expect("prepared");
        let pruned = archive.prune(now, 100).await;
        assert_eq!(pruned.expect("an answer"), 2, "September and November");
        assert_eq!(beside.count("idempotency_key_archive_2025_10").await, 1);
        assert_eq!(beside.count("idempotency_key_archive_2020_01").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_lookup_passes_a_retirement_that_waits_for_a_report() {
    in_time(async {
        let place = Place::new().await;
        let archive = archive_of_a_year(&place, 14).await;
        let mut beside = place.beside().await;
        let mut report = place.beside().await;
        report
            .script("BEGIN; SELECT count(*) FROM idempotency_key_archive")
            .await;
        let retiring = {
            let (archive, now) = (archive.clone(), place.clock.now());
            tokio::spawn(async move { archive.prune(now, 100).await })
        };
        // The lookup stands in line behind the retirement, which leaves the line:
        // else it would wait for the report, which does not end.
        beside
            .until(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted \
                 AND mode = 'AccessExclusiveLock' \
                 AND relation = 'idempotency_key_archive'::regclass)",
            )
            .await;
        let found = archive.lookup(key("2026_11"), None).await;
        assert!(found.expect("an answer").is_some());
        report
            .script("SELECT count(*) FROM idempotency_key_archive; COMMIT")
            .await;
        let retired = retiring.await.expect("no panic").expect("an answer");
        assert_eq!(retired, 1, "the retirement came back when it could");
    })
    .await;
}
