//! The partitions are made before they are needed, in the way of nobody.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, IdempotencyLayer, Policy, PrincipalSource, Sweeper, Ttl,
    archive::{Archive as _, PostgresArchive},
    store::StoreErrorKind,
};
use jiff::Timestamp;

use super::{
    Raw, in_time, key,
    place::{DAY, Place, at, tombstone},
};
use crate::support::{Logs, postgres::Schema};

/// The months from one through another, such as `2026_12`.
fn months(from: &str, through: &str) -> Vec<String> {
    let number = |month: &str| -> u32 {
        let (year, month) = month.split_once('_').expect("a month");
        let part = |text: &str| text.parse::<u32>().expect("a number");
        part(year) * 12 + part(month) - 1
    };
    let name = |number| format!("{:04}_{:02}", number / 12, number % 12 + 1);
    (number(from)..=number(through)).map(name).collect()
}

async fn prepare(archive: &PostgresArchive, from: &str, until: &str) {
    let prepared = archive.prepare(at(from), at(until)).await;
    prepared.expect("prepared");
}

#[tokio::test]
async fn an_opened_archive_has_room_for_two_months_ahead() {
    in_time(async {
        for (now, through) in [
            ("2026-12-01T00:00:00Z", "2027_02"),
            ("2026-07-01T00:00:00Z", "2026_09"),
            ("2027-01-31T23:59:59Z", "2027_04"),
        ] {
            let (schema, place) = (Schema::new(), Place::new().await);
            place.clock.set(at(now));
            let builder = PostgresArchive::builder().url(schema.url());
            let opened = builder.clock(place.clock.clone()).open().await;
            let there = opened.expect("an archive").partitions().await;
            let names: Vec<_> = there
                .expect("an answer")
                .into_iter()
                .map(|partition| partition.name)
                .collect();
            let first = now[..7].replace('-', "_");
            let expected: Vec<_> = months(&first, through)
                .iter()
                .map(|month| format!("idempotency_key_archive_{month}"))
                .collect();
            assert_eq!(names, expected, "opened at {now}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_sweep_makes_room_for_two_months_beyond_the_longest_ttl() {
    in_time(async {
        let place = Place::new().await;
        let ttl = |days| Ttl::new(days * DAY).expect("a TTL");
        let policy = |days| {
            Policy::builder(PrincipalSource::bearer())
                .ttl(ttl(days))
                .build()
        };
        let layer = IdempotencyLayer::builder(place.store.clone())
            .archive(place.store.archive())
            .policy(policy(1).expect("a policy"))
            .build()
            .expect("a layer");
        layer.sweeper().sweep_once().await.expect("a sweep");
        let mut beside = place.beside().await;
        assert_eq!(beside.months().await, months("2026_12", "2027_02"));

        let slow = layer.with_policy(policy(90).expect("a policy"));
        slow.expect("a layer")
            .sweeper()
            .sweep_once()
            .await
            .expect("a sweep");
        // 1 December, 90 days and two months.
        assert_eq!(beside.months().await, months("2026_12", "2027_05"));
    })
    .await;
}

#[tokio::test]
async fn a_sweep_makes_room_for_the_oldest_expired_row() {
    in_time(async {
        let place = Place::new().await;
        place.complete("k", at("2024-11-30T12:00:00Z"), 201).await;
        let logs = Logs::capture();
        let sweeper = Sweeper::new(place.store.clone()).archive(place.store.archive());
        let swept = sweeper.sweep_once().await.expect("a sweep");
        assert_eq!(swept.archived, 1);
        let there = place.beside().await.months().await;
        assert_eq!(there, months("2024_12", "2027_03"));
        let text = logs.text();
        assert!(!text.contains("ERROR"), "nothing went wrong:\n{text}");
    })
    .await;
}

/// Where rows go that expire just before and just at a bound.
async fn around(place: &Place, archive: &PostgresArchive, bound: Timestamp) -> [String; 2] {
    let before = bound - Duration::from_micros(1);
    let rows = [
        tombstone("before", 201, before),
        tombstone("at", 201, bound),
    ];
    archive.insert(&rows).await.expect("inserted");
    let mut beside = place.beside().await;
    let mut tables = Vec::new();
    for name in ["before", "at"] {
        let table = format!(
            "SELECT tableoid::regclass::text FROM idempotency_key_archive \
             WHERE scoped_key = '{}'",
            key(name)
        );
        tables.push(beside.get::<String>(&table).await);
    }
    tables.try_into().expect("two tables")
}

#[tokio::test]
async fn bounds_are_those_of_utc_in_every_session() {
    in_time(async {
        for session in [
            "SET TIME ZONE 'UTC'",
            "SET TIME ZONE 'Pacific/Kiritimati'; SET DateStyle = 'German'",
            "SET TIME ZONE 'Pacific/Pago_Pago'; SET DateStyle = 'SQL, MDY'",
            "SET TIME ZONE 'Asia/Kolkata'; SET DateStyle = 'Postgres, DMY'",
        ] {
            let place = Place::new().await;
            let archive = place.archive_over_sessions_with(session).await;
            prepare(&archive, "2026-12-31T23:00:00Z", "2027-01-01T01:00:00Z").await;
            let there = archive.partitions().await.expect("an answer");
            let bounds: Vec<_> = there.iter().map(|one| (one.from, one.until)).collect();
            let [december, january, february] =
                ["2026-12", "2027-01", "2027-02"].map(|month| at(&format!("{month}-01T00:00:00Z")));
            assert_eq!(
                bounds,
                [(december, january), (january, february)],
                "{session}"
            );
            let tables = around(&place, &archive, january).await;
            let expected =
                ["2026_12", "2027_01"].map(|month| format!("idempotency_key_archive_{month}"));
            assert_eq!(tables, expected, "{session}");
            // To a session of any zone they are all there.
            let other = place.store.archive();
            prepare(&other, "2026-12-01T00:00:00Z", "2027-01-31T23:59:59Z").await;
            assert_eq!(place.beside().await.months().await.len(), 2, "{session}");
        }
    })
    .await;
}

#[tokio::test]
async fn processes_that_prepare_at_once_make_each_partition_once() {
    in_time(async {
        let place = Place::new().await;
        let (from, until) = (at("2026-10-15T00:00:00Z"), at("2027-02-15T00:00:00Z"));
        let mut processes = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let archive = place.other().await.archive();
            processes.spawn(async move { archive.prepare(from, until).await });
        }
        while let Some(prepared) = processes.join_next().await {
            prepared.expect("no panic").expect("prepared");
        }
        let there = place.beside().await.months().await;
        assert_eq!(there, months("2026_10", "2027_02"));
    })
    .await;
}

#[tokio::test]
async fn what_was_made_and_not_attached_is_attached_with_its_rows() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        let mut beside = place.beside().await;
        beside
            .script(&format!(
                "CREATE TABLE idempotency_key_archive_2026_11 \
                     (LIKE idempotency_key_archive INCLUDING ALL); \
                 INSERT INTO idempotency_key_archive_2026_11 \
                     VALUES ('{}', '\\x10', 201, NULL, now(), '2026-11-05 00:00:00+00')",
                key("k"),
            ))
            .await;
        prepare(&archive, "2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z").await;
        assert_eq!(beside.months().await, ["2026_11"]);
        let found = archive.lookup(key("k"), None).await.expect("an answer");
        assert_eq!(found.expect("the row").status, 201);
    })
    .await;
}

#[tokio::test]
async fn a_table_that_is_in_the_way_is_kept_and_named() {
    in_time(async {
        let place = Place::new().await;
        let mut beside = place.beside().await;
        for (in_the_way, cleared) in [
            (
                "CREATE TABLE idempotency_key_archive_2026_12 (id int)",
                "DROP TABLE idempotency_key_archive_2026_12",
            ),
            (
                "CREATE VIEW idempotency_key_archive_2026_12 AS SELECT 1",
                "DROP VIEW idempotency_key_archive_2026_12",
            ),
            // Rows of other months.
            (
                "CREATE TABLE idempotency_key_archive_2026_12 \
                     (LIKE idempotency_key_archive INCLUDING ALL); \
                 INSERT INTO idempotency_key_archive_2026_12 \
                     VALUES ('k', '\\x10', 201, NULL, now(), '2025-01-01')",
                "DROP TABLE idempotency_key_archive_2026_12",
            ),
            // Months of its own.
            (
                "CREATE TABLE weeks PARTITION OF idempotency_key_archive \
                 FOR VALUES FROM ('2026-12-07 00:00+00') TO ('2026-12-14 00:00+00')",
                "DROP TABLE weeks; DROP TABLE idempotency_key_archive_2026_12",
            ),
        ] {
            beside.script(in_the_way).await;
            let now = place.clock.now();
            let refused = place.store.archive().prepare(now, now).await;
            let error = refused.expect_err(in_the_way);
            assert_eq!(error.kind(), StoreErrorKind::Setup, "{in_the_way}: {error}");
            assert!(error.to_string().contains("in the way"), "{error}");
            beside.script(cleared).await;
        }
        let now = place.clock.now();
        place
            .store
            .archive()
            .prepare(now, now)
            .await
            .expect("prepared");
        assert_eq!(beside.months().await, ["2026_12"]);
    })
    .await;
}

#[tokio::test]
async fn partitions_of_the_users_own_making_count() {
    in_time(async {
        let place = Place::new().await;
        let mut beside = place.beside().await;
        beside
            .script(
                "CREATE TABLE before PARTITION OF idempotency_key_archive \
                     FOR VALUES FROM (MINVALUE) TO ('2026-12-10 00:00+00'); \
                 CREATE TABLE year PARTITION OF idempotency_key_archive \
                     FOR VALUES FROM ('2026-12-10 00:00+00') TO ('2028-01-01 00:00+00')",
            )
            .await;
        let archive = place.store.archive();
        prepare(&archive, "2020-01-01T00:00:00Z", "2028-01-01T00:00:00Z").await;
        let there = archive.partitions().await.expect("an answer");
        let names: Vec<_> = there.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["before", "year", "idempotency_key_archive_2028_01"]);
        assert_eq!(there[0].from, Timestamp::MIN);
    })
    .await;
}

/// A reader who does not end, as a report or a dump is.
async fn a_long_report(place: &Place) -> Raw {
    let mut report = place.beside().await;
    report
        .script("BEGIN; SELECT count(*) FROM idempotency_key_archive")
        .await;
    report
}

#[tokio::test]
async fn a_partition_is_made_beside_a_long_report() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        prepare(&archive, "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z").await;
        let mut report = a_long_report(&place).await;
        // The runbook's way waits for the report, and every lookup for it.
        let mut runbook = place.beside().await;
        runbook.script("SET lock_timeout = '50ms'").await;
        let refused = runbook
            .try_script(
                "CREATE TABLE idempotency_key_archive_2027_01 \
                 PARTITION OF idempotency_key_archive \
                 FOR VALUES FROM ('2027-01-01 00:00+00') TO ('2027-02-01 00:00+00')",
            )
            .await;
        let error = refused.expect_err("it waits for the report");
        let code = error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code);
        assert_eq!(code.as_deref(), Some("55P03"), "{error}");

        prepare(&archive, "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z").await;
        assert_eq!(place.beside().await.months().await, ["2026_12", "2027_01"]);
        // Nobody has waited for the report to end.
        report
            .script("SELECT count(*) FROM idempotency_key_archive; COMMIT")
            .await;
    })
    .await;
}

#[tokio::test]
async fn who_may_not_make_partitions_is_told_when_one_is_missing() {
    in_time(async {
        let place = Place::new().await;
        let now = place.clock.now();
        place
            .store
            .archive()
            .prepare(now, now)
            .await
            .expect("prepared");
        // A role that there always is, and that owns nothing.
        let role = "pg_signal_backend";
        let schema = place.schema.name();
        place
            .beside()
            .await
            .script(&format!(
                "GRANT USAGE ON SCHEMA {schema} TO {role}; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
            ))
            .await;
        let archive = place
            .archive_over_sessions_with("SET ROLE pg_signal_backend")
            .await;
        archive.prepare(now, now).await.expect("all there is to be");
        let row = tombstone("k", 201, now);
        archive.insert(&[row]).await.expect("inserted");

        let refused = archive.prepare(now, now + 62 * DAY).await;
        let error = refused.expect_err("the role may not create anything");
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error}");
        assert!(error.to_string().contains("own the table"), "{error}");
    })
    .await;
}
