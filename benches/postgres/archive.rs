//! The archive: looking a key up, sweeping into it, and its size.

use std::time::{Duration, Instant};

use axum_idempotency::{
    archive::{Archive, PostgresArchive},
    store::{Store as _, postgres::PostgresStore},
};
use jiff::Timestamp;
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::{
    fresh::{drive, median, request},
    plain::fresh_key,
};

const MONTHS: u64 = 39;
const ROWS_A_MONTH: i64 = 20_000;
const LOOKUPS: usize = 3_000;
const BATCH: u32 = 10_000;
const BATCHES: usize = 10;

/// Over 39 partitions, of which 36 lie in the past.
pub(crate) async fn lookups(url: &str) {
    let (store, archive) = open(url).await;
    let now = store.now().await.expect("the time");
    let oldest = now - Duration::from_hours(24 * 31 * (MONTHS - 3));
    let ahead = now + Duration::from_hours(24 * 60);
    archive.prepare(oldest, ahead).await.expect("partitions");
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    sqlx::query(include_str!("fill_archive.sql"))
        .bind(ROWS_A_MONTH)
        .execute(&mut connection)
        .await
        .expect("rows");
    sqlx::raw_sql("VACUUM ANALYZE axum_idempotency_bench.idempotency_key_archive")
        .execute(&mut connection)
        .await
        .expect("statistics");
    // A late retry of some days.
    let bound = now - Duration::from_hours(72);
    let (mut pruned, mut unpruned) = (Vec::new(), Vec::new());
    for lookup in 0..LOOKUPS + 100 {
        let with = timed(&archive, Some(bound)).await;
        let without = timed(&archive, None).await;
        // The first warm up.
        if lookup >= 100 {
            pruned.push(with);
            unpruned.push(without);
        }
    }
    let ratio = median(unpruned) / median(pruned.clone());
    pruned.sort_by(f64::total_cmp);
    let p99 = pruned[pruned.len() * 99 / 100];
    println!("archive lookup over {MONTHS} partitions");
    println!("  pruned {ratio:.2} times as fast as unpruned (to reach: 2)");
    println!("  p99 {:.2} ms (to reach: 5)", p99 * 1e3);
    size(&mut connection).await;
    store.close().await;
}

async fn timed(archive: &PostgresArchive, not_before: Option<Timestamp>) -> f64 {
    let begun = Instant::now();
    let found = archive.lookup(fresh_key(), not_before).await;
    assert!(found.expect("an answer").is_none());
    begun.elapsed().as_secs_f64()
}

async fn size(connection: &mut PgConnection) {
    let size = sqlx::query(include_str!("archive_size.sql"))
        .fetch_one(connection)
        .await
        .expect("a size");
    let (heap, total): (f64, f64) = (size.get(0), size.get(1));
    println!("archive bytes per row");
    println!("  heap  {heap:.0} (to reach: 130)");
    println!("  total {total:.0} (to reach: 210)");
}

/// Batches of 10,000 rows, in turns with the plain statement.
pub(crate) async fn sweeps(url: &str) {
    let (store, archive) = open(url).await;
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    let rows = i64::from(BATCH) * i64::try_from(BATCHES).expect("a few");
    let plain = include_str!("fill_plain.sql");
    let completed = include_str!("complete_plain.sql");
    fill(&mut connection, plain, completed, rows).await;
    let ours = include_str!("fill_store.sql");
    let completed = include_str!("complete_store.sql");
    fill(&mut connection, ours, completed, rows).await;
    for step in [
        "VACUUM ANALYZE plain_keys, axum_idempotency_bench.idempotency_keys",
        "CHECKPOINT",
    ] {
        let done = sqlx::raw_sql(step).execute(&mut connection).await;
        done.expect("statistics");
    }
    let mut ratios = Vec::new();
    for _ in 0..BATCHES {
        let begun = Instant::now();
        let swept = sqlx::query(include_str!("plain_sweep.sql"))
            .execute(&mut connection)
            .await;
        assert_eq!(swept.expect("a batch").rows_affected(), u64::from(BATCH));
        let by_hand = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let swept = store.sweep(Some(&archive), BATCH).await;
        assert_eq!(swept.expect("a batch"), u64::from(BATCH));
        ratios.push(by_hand / begun.elapsed().as_secs_f64());
    }
    println!("sweep of {BATCH} rows, against the same by joining on the key");
    println!("  {:.2} times as fast (to reach: 1.3)", median(ratios));
    store.close().await;
}

/// What claims and completions notice of a sweep.
pub(crate) async fn beside_a_sweep(url: &str) {
    const ROUND: Duration = Duration::from_millis(1_500);
    let (store, archive) = open(url).await;
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    let mut ratios = Vec::new();
    for round in 0..6 {
        let (claimed, completed) = (
            include_str!("fill_store.sql"),
            include_str!("complete_store.sql"),
        );
        fill(&mut connection, claimed, completed, 10 * i64::from(BATCH)).await;
        let load = || drive(16, ROUND, || request(store.clone(), vec![b'x'; 512]));
        let idle = load().await;
        let sweep = async {
            let begun = Instant::now();
            while begun.elapsed() < ROUND {
                store.sweep(Some(&archive), BATCH).await.expect("a batch");
                // As a sweeper does.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (swept, ()) = tokio::join!(load(), sweep);
        if round > 0 {
            ratios.push(swept.p99 / idle.p99);
        }
    }
    println!("p99 of 16 at once while a sweeper runs, against idle");
    println!("  {:.2} (at most: 2)", median(ratios));
    store.close().await;
}

/// What a live record takes up beyond its answer's body, claimed and completed
/// as requests do it.
pub(crate) async fn live_size(url: &str) {
    let (store, _) = open(url).await;
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    println!("live bytes per row, with its indexes");
    for body in [0, 512, 4_096] {
        let emptied = sqlx::raw_sql("TRUNCATE axum_idempotency_bench.idempotency_keys")
            .execute(&mut connection)
            .await;
        emptied.expect("an empty table");
        // Ids, of which there is little to compress.
        let ids = std::iter::repeat_with(|| uuid::Uuid::new_v4().to_string());
        let ids: String = ids.take(body / 36 + 1).collect();
        let request = || request(store.clone(), ids.as_bytes()[..body].to_vec());
        drive(16, Duration::from_secs(5), request).await;
        let size = sqlx::query(include_str!("live_size.sql"))
            .fetch_one(&mut connection)
            .await
            .expect("a size");
        let (rows, bytes): (i64, f64) = (size.get(0), size.get(1));
        println!("  {bytes:.0} with a body of {body} ({rows} rows)");
    }
    store.close().await;
}

/// Rows that were claimed and then completed, as in their life.
async fn fill(
    connection: &mut PgConnection,
    claim: &'static str,
    complete: &'static str,
    rows: i64,
) {
    let filled = sqlx::query(claim)
        .bind(rows)
        .execute(&mut *connection)
        .await;
    filled.expect("rows");
    let completed = sqlx::query(complete).execute(connection).await;
    completed.expect("outcomes");
}

async fn open(url: &str) -> (PostgresStore, PostgresArchive) {
    let store = PostgresStore::builder().url(url).schema(crate::SCHEMA);
    let store = store.open().await.expect("a store");
    let archive = store.archive();
    (store, archive)
}
