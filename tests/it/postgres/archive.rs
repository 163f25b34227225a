//! What the archive holds, and how it is asked.

use axum_idempotency::{
    archive::{Archive as _, PostgresArchive},
    store::{Store as _, StoreErrorKind},
};

use super::{
    in_time, key,
    place::{DAY, Place, at, tombstone},
};

/// Three years of months, and what is prepared ahead.
async fn with_39_partitions() -> Place {
    let place = Place::new().await;
    let archive = place.store.archive();
    let three_years = (at("2023-12-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
    archive
        .prepare(three_years.0, three_years.1)
        .await
        .expect("prepared");
    assert_eq!(place.beside().await.months().await.len(), 39);
    place
}

#[tokio::test]
async fn the_archive_has_the_columns_of_the_contract_and_no_other() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        let (from, until) = (at("2026-11-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        archive.prepare(from, until).await.expect("prepared");
        let mut beside = place.beside().await;
        let tables: Vec<String> = beside
            .all(
                "SELECT table_name::text FROM information_schema.tables \
                 WHERE table_schema = current_schema() \
                   AND table_name LIKE 'idempotency_key_archive%' ORDER BY 1",
            )
            .await;
        assert_eq!(
            tables.len(),
            4,
            "the archive and its partitions: {tables:?}"
        );
        for table in tables {
            let columns: Vec<String> = beside
                .all(&format!(
                    "SELECT format('%s %s %s', column_name, data_type, is_nullable) \
                     FROM information_schema.columns \
                     WHERE table_schema = current_schema() AND table_name = '{table}' \
                     ORDER BY ordinal_position"
                ))
                .await;
            // None of them can hold a payload: a key is a digest, a resource id
            // is cut to 255 visible characters before it comes here.
            let expected = [
                "scoped_key text NO",
                "fingerprint bytea NO",
                "status_code smallint NO",
                "resource_id text YES",
                "created_at timestamp with time zone NO",
                "expired_at timestamp with time zone NO",
            ];
            assert_eq!(columns, expected, "the columns of {table}");
            let keys: Vec<String> = beside
                .all(&format!(
                    "SELECT pg_get_constraintdef(oid) FROM pg_constraint \
                     WHERE conrelid = '{table}'::regclass AND contype = 'p'"
                ))
                .await;
            assert_eq!(keys, ["PRIMARY KEY (scoped_key, expired_at)"], "of {table}");
            let indexes = beside
                .count(&format!("pg_index WHERE indrelid = '{table}'::regclass"))
                .await;
            assert_eq!(indexes, 1, "the indexes of {table}");
        }
    })
    .await;
}

#[tokio::test]
async fn no_partition_takes_what_the_others_do_not() {
    in_time(async {
        let place = Place::new().await;
        let now = at("2026-12-01T00:00:00Z");
        place
            .store
            .archive()
            .prepare(now, now)
            .await
            .expect("prepared");
        let mut beside = place.beside().await;
        let with_default = "pg_partitioned_table \
             WHERE partrelid = 'idempotency_key_archive'::regclass AND partdefid <> 0";
        assert_eq!(beside.count(with_default).await, 0);
        let refused = beside
            .try_script(
                "INSERT INTO idempotency_key_archive \
                 VALUES ('k', '\\x01', 201, NULL, now(), '2031-01-01 00:00:00+00')",
            )
            .await;
        refused.expect_err("there is no partition for it");
    })
    .await;
}

/// The plan of a lookup as a session of the store's gets it after some calls.
async fn plan_of_a_lookup(place: &Place, settings: &str, bound: &str) -> String {
    let mut beside = place.beside().await;
    beside.script(settings).await;
    let lookup = include_str!("../../../src/store/postgres/sql/archive_lookup.sql");
    beside
        .script(&format!("PREPARE lookup (text, timestamptz) AS {lookup}"))
        .await;
    let execute = format!("EXECUTE lookup ('idem:v1:k', '{bound}')");
    for _ in 0..8 {
        beside.script(&execute).await;
    }
    beside.plan_of(&execute).await
}

#[tokio::test]
async fn a_lookup_leaves_out_the_partitions_from_before_the_key() {
    in_time(async {
        let place = with_39_partitions().await;
        // As the store's own sessions are, and as those of a proxy may be.
        for settings in [
            "SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan",
            "SET enable_seqscan = off; SET jit = off",
        ] {
            let plan = plan_of_a_lookup(&place, settings, "2026-11-29 12:00:00+00").await;
            for month in ["2026_11", "2026_12", "2027_01", "2027_02"] {
                let probe = format!("Index Scan using idempotency_key_archive_{month}_pkey");
                assert!(plan.contains(&probe), "{month} is not probed:\n{plan}");
            }
            let probes = plan.matches("Index Scan using").count();
            assert_eq!(probes, 4, "partitions that are read:\n{plan}");
            assert!(!plan.contains("Seq Scan"), "{plan}");
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_bound_old_partitions_answer_too() {
    in_time(async {
        let place = with_39_partitions().await;
        let archive = place.store.archive();
        let old = tombstone("k", 201, at("2023-12-24T18:00:00Z"));
        archive
            .insert(std::slice::from_ref(&old))
            .await
            .expect("inserted");
        let lookup = async |not_before| {
            let found = archive.lookup(key("k"), not_before).await;
            found.expect("an answer")
        };
        assert_eq!(lookup(None).await, Some(old.clone()));
        assert_eq!(lookup(Some(old.created_at)).await, Some(old.clone()));
        let too_late = at("2024-01-01T00:00:00Z");
        assert_eq!(lookup(Some(too_late)).await, None);
    })
    .await;
}

#[tokio::test]
async fn of_many_rows_one_of_which_is_refused_none_is_inserted() {
    in_time(async {
        let place = Place::new().await;
        let archive = place.store.archive();
        let mut beside = place.beside().await;
        beside
            .script("ALTER TABLE idempotency_key_archive ADD CHECK (status_code <> 418)")
            .await;
        let expired_at = at("2026-12-01T00:00:00Z");
        // More than go in one statement, and the last is refused.
        let mut rows: Vec<_> = (0..5_000)
            .map(|n| {
                tombstone(
                    &n.to_string(),
                    201,
                    expired_at + n * std::time::Duration::from_secs(1),
                )
            })
            .collect();
        let last = rows.iter().map(|row| row.key).max().expect("rows");
        for row in &mut rows {
            if row.key == last {
                row.status = 418;
            }
        }
        archive.insert(&rows).await.expect_err("refused");
        assert_eq!(beside.count("idempotency_key_archive").await, 0);
        for row in &mut rows {
            row.status = 201;
        }
        archive.insert(&rows).await.expect("inserted");
        assert_eq!(beside.count("idempotency_key_archive").await, 5_000);
    })
    .await;
}

#[tokio::test]
async fn an_archive_works_over_sessions_that_are_shared() {
    in_time(async {
        let place = Place::new().await;
        let archive = place
            .archive_over_sessions_with("SET default_transaction_isolation = 'serializable'")
            .await
            .with_retention(365 * DAY);
        let (young, old) = (at("2026-11-01T00:00:00Z"), at("2020-11-01T00:00:00Z"));
        let rows = [tombstone("young", 0, young), tombstone("old", 201, old)];
        archive.insert(&rows).await.expect("inserted");
        let amended = archive.amend(key("young"), 202, None).await;
        assert!(amended.expect("an answer"), "the outcome was learned later");
        let now = at("2026-12-01T00:00:00Z");
        assert_eq!(archive.prune(now, 100).await.expect("an answer"), 1);
        for (name, status) in [("young", Some(202)), ("old", None)] {
            let found = archive.lookup(key(name), Some(old)).await;
            let found = found.expect("an answer").map(|row| row.status);
            assert_eq!(found, status, "the row {name}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_archive_is_closed_with_the_store_it_lives_in() {
    in_time(async {
        let place = Place::new().await;
        let within = place.store.archive();
        let apart = PostgresArchive::open(&place.schema.url()).await;
        let apart = apart.expect("an archive");
        assert_eq!(within.within(), Some(place.store.identity()));
        assert_eq!(apart.within(), None);
        place.store.close().await;
        let now = at("2026-12-01T00:00:00Z");
        let row = [tombstone("k", 201, now)];
        for refused in [
            within.insert(&row).await,
            within.insert(&[]).await,
            within.lookup(key("k"), None).await.map(drop),
            within.prune(now, 1).await.map(drop),
            within.prepare(now, now).await,
            within.partitions().await.map(drop),
        ] {
            let error = refused.expect_err("closed");
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
        apart.insert(&row).await.expect("open");
        apart.close().await;
        apart.insert(&row).await.expect_err("closed");
    })
    .await;
}
