//! The overview: gauges against their thresholds, counts, plots.

use std::time::Duration;

use axum_idempotency::{
    Fingerprint, ResourceId, Tombstone, archive::Archive as _, console::Console,
    inspect::Inspector, store::MemoryStore,
};

use super::{
    http::Site,
    stage::{Stage, night},
};
use crate::support::{
    Backend, Verb,
    attempt::{TTL, fingerprint, key},
    on_every_backend,
};

async fn every_gauge_of_the_checklist_is_there_with_its_threshold(backend: Backend) {
    let stage = Stage::set(backend).await;
    let site = Site::open(stage.console()).await;
    let seen = site.get("").await;
    seen.is(200)
        .says("Expired backlog")
        .says("Alert above 100,000")
        .says("idempotency_expired_backlog")
        .says("idempotency_archived_total")
        .says("Page below 30 days")
        .says("idempotency_archive_newest_partition_days")
        .says("idempotency_expired_replay_total")
        .says("No store counts them: each process does.")
        .says("one lookup just now")
        .says("idempotency_archive_lookup_duration_ms")
        .says("idempotency_archive_bytes")
        .says("Counted at 2026-12-01 02:14:00 UTC, just now.")
        .says("Keys per minute, the last 24 hours")
        .says("Published TTLs 1 d to 7 d");
    // Two run, one of them while the archive is asked, beside the second attempt.
    seen.says("Running 3 under a live lease").says("Lapsed 1");
}

on_every_backend!(every_gauge_of_the_checklist_is_there_with_its_threshold);

#[tokio::test]
async fn what_waits_for_a_sweep_is_told_with_its_age() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let seen = site.get("").await;
    seen.says("OK 2 rows Alert above 100,000 The oldest waits for 5 min.")
        .says("Expired 2 wait for a sweep");

    // Nobody sweeps for two hours.
    stage.backend.clock.advance(Duration::from_hours(2));
    let site = Site::open(stage.console()).await;
    let seen = site.get("").await;
    seen.says("▲ Alert 0 in the last day")
        .says("An expired row waits for 2 h 5 min: does a sweeper run?");
}

#[tokio::test]
async fn the_plot_tells_its_data_in_words_and_as_a_table() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let seen = site.get("").await;
    // Those of 12 min ago and of 5 s ago are of the last day.
    seen.says("the busiest minute was 02:02 with 7.")
        .says("Keys by hour (UTC)")
        .says("2026-12-01 02:00 9 0 7 02:02");
    let drawn = seen.text.matches("vector-effect").count();
    assert_eq!(drawn, 1, "there is one line");
}

#[tokio::test]
async fn an_archive_that_takes_up_too_much_a_row_is_an_alert() {
    let backend = Backend::sqlite().await;
    let stage = Stage::empty(backend);
    let long = "x".repeat(ResourceId::MAX_LENGTH);
    let rows: Vec<_> = (0..10_000).map(|row| fat_row(row, &long)).collect();
    stage.archive.insert(&rows).await.expect("it answers");
    let site = Site::open(stage.console()).await;
    let seen = site.get("").await;
    seen.is(200).says("bytes a row in 10,000 rows.");
    let words = seen.words();
    let (before, _) = words.split_once("bytes a row in").expect("it is told");
    let a_row = before.rsplit(' ').find(|word| !word.is_empty());
    let a_row: u64 = a_row.expect("a number").parse().expect("a number");
    let is_alert = words.contains("Archive size ▲ Alert");
    assert_eq!(is_alert, a_row > 420, "{a_row} bytes a row: {words}");
    assert!(
        a_row > 420,
        "a row with the longest id takes up {a_row} bytes"
    );
}

fn fat_row(row: u32, resource: &str) -> Tombstone {
    Tombstone {
        key: key(row),
        fingerprint: Fingerprint::clone(&fingerprint(1)),
        status: 201,
        resource_id: ResourceId::new(resource),
        created_at: night() - 2 * TTL,
        expired_at: night() - TTL,
    }
}

#[tokio::test]
async fn a_count_is_kept_for_a_minute() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    site.get("").await.is(200);
    let asked = stage.store.calls(Verb::Inspect);
    stage.claims("another").await;
    let again = site.get("").await;
    again.is(200).says("Running 3 under a live lease");
    assert_eq!(
        stage.store.calls(Verb::Inspect),
        asked,
        "nobody counts again"
    );
    // Another console counts for itself.
    let other = Site::open(stage.console()).await;
    other
        .get("")
        .await
        .is(200)
        .says("Running 4 under a live lease");
}

#[tokio::test]
async fn without_an_archive_its_gauges_do_not_apply() {
    let site = Site::open(Console::new(Inspector::new(MemoryStore::new()))).await;
    let seen = site.get("").await;
    seen.is(200)
        .says("Archived – Not applicable")
        .says("Newest partition – Not applicable")
        .says("Archive size – Not applicable");
}
