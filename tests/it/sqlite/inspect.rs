//! What is special to SQLite of what an operator asks.

use std::{fs, time::Duration};

use axum_idempotency::{
    ResourceId,
    archive::{Archive, SqliteArchive},
    inspect::{InspectArchive, InspectStore, LiveState, OpenOutcome, OpenQuery},
    store::{
        Fenced, Store as _,
        sqlite::{SqliteStore, migrator},
    },
};
use jiff::Timestamp;
use tempfile::TempDir;

use super::{Fixture, TTL, completion, key, leased, request};

fn asked(store: &SqliteStore) -> &dyn InspectStore {
    store.inspect().expect("a store that can be inspected")
}

fn asked_archive(archive: &SqliteArchive) -> &dyn InspectArchive {
    archive.inspect().expect("an archive that can be inspected")
}

/// Claims and completes, and tells when.
async fn completed(fixture: &Fixture, name: &str, body: &[u8]) -> Timestamp {
    let (token, _) = fixture.claim(key(name)).await;
    let mut done = completion(201);
    if let Some(response) = &mut done.response {
        response.body = body.to_vec().into();
    }
    let done = fixture.store.complete(key(name), token, done).await;
    assert_eq!(done.expect("an answer"), Fenced::Owner);
    fixture.store.now().await.expect("the time")
}

async fn moment(store: &SqliteStore, name: &str) -> Option<Timestamp> {
    let record = asked(store).record(key(name)).await.expect("an answer");
    match record.expect("a record").state {
        LiveState::Completed { completed_at, .. } => completed_at,
        other => panic!("expected a completed record, got {other:?}"),
    }
}

async fn outcomes(store: &SqliteStore, at: Timestamp, within: Duration) -> Vec<OpenOutcome> {
    let query = OpenQuery {
        at,
        within,
        limit: 10,
    };
    let open = asked(store).open_at(&query).await.expect("an answer");
    open.iter().map(|record| record.outcome).collect()
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn what_was_completed_before_the_migration_has_no_moment() {
    let fixture = Fixture::new().await;
    let claimed_at = completed(&fixture, "old", b"charged").await;
    let mut raw = fixture.raw().await;
    migrator().undo(&mut raw.0, 1).await.expect("down to 1");
    assert_eq!(raw.count("idempotency_keys").await, 1);
    fixture.store.migrate().await.expect("up");

    assert_eq!(moment(&fixture.store, "old").await, None);
    fixture.clock.advance(2 * MINUTE);
    let then = claimed_at + MINUTE;
    let within = outcomes(&fixture.store, then, MINUTE).await;
    assert_eq!(within, [OpenOutcome::RecordedSometime]);
    let too_long_ago = outcomes(&fixture.store, then, MINUTE / 2).await;
    assert_eq!(too_long_ago, []);
    // It is replayed, expires and is swept like any other.
    let record = fixture.store.get(key("old")).await.expect("an answer");
    assert!(record.is_some());
    let later = completed(&fixture, "new", b"charged").await;
    assert_eq!(moment(&fixture.store, "new").await, Some(later));
    fixture.clock.advance(TTL);
    let archive = fixture.store.archive();
    let swept = fixture.store.sweep(Some(&archive), 10).await;
    assert_eq!(swept.expect("a sweep"), 2);
}

#[tokio::test]
async fn the_moment_of_an_earlier_window_is_none_of_this_one() {
    let fixture = Fixture::new().await;
    completed(&fixture, "k", b"charged").await;
    fixture.clock.advance(TTL);
    let again = fixture.store.now().await.expect("the time");
    // As a version writes that does not know the column: it claims an expired
    // key anew, and completes it.
    let again = again.as_microsecond();
    let mut raw = fixture.raw().await;
    raw.run(&format!(
        "UPDATE idempotency_keys SET created_at = {again}, expires_at = {again} + 86400000000"
    ))
    .await;
    assert_eq!(moment(&fixture.store, "k").await, None);
    let at = Timestamp::from_microsecond(again).expect("a time");
    let within = outcomes(&fixture.store, at + MINUTE, MINUTE).await;
    assert_eq!(within, [OpenOutcome::RecordedSometime]);
    let too_long_ago = outcomes(&fixture.store, at + MINUTE, MINUTE / 2).await;
    assert_eq!(too_long_ago, []);
}

#[tokio::test]
async fn a_claim_that_replaces_an_expired_record_leaves_no_moment() {
    let fixture = Fixture::new().await;
    completed(&fixture, "k", b"charged").await;
    fixture.clock.advance(TTL);
    let mut again = request(key("k"));
    again.age.lookup_after = None;
    let claimed = fixture.store.claim(again).await.expect("an answer");
    leased(claimed);
    let mut raw = fixture.raw().await;
    let of_moments = "idempotency_keys WHERE completed_at IS NOT NULL";
    assert_eq!(raw.count(of_moments).await, 0);
}

#[tokio::test]
async fn an_erased_answer_is_not_in_the_file_any_more() {
    const SECRET: &[u8] = b"card 4242 4242 4242 4242";
    let fixture = Fixture::new().await;
    let long = [&[b'x'; 9_000][..], SECRET].concat();
    for (name, body) in [("short", SECRET), ("long", &long)] {
        completed(&fixture, name, body).await;
    }
    // Beside others, so that no page goes whole.
    completed(&fixture, "other", b"charged").await;
    let read = |place: &Fixture| {
        let file = fs::read(place.path()).expect("the file");
        let mut windows = file.windows(SECRET.len());
        windows.any(|window| window == SECRET)
    };
    let other = fixture.other().await;
    for name in ["short", "long"] {
        let erased = asked(&other).erase_response(key(name)).await;
        assert!(erased.expect("an answer"), "{name}");
    }
    other.close().await;
    fixture.store.close().await;
    assert!(!read(&fixture), "the answer is in the file");
    assert!(
        !fixture.dir.path().join("a.db-wal").exists(),
        "a log is left"
    );
}

#[tokio::test]
async fn the_file_tells_what_records_and_rows_take_up() {
    let fixture = Fixture::new().await;
    let archive = fixture.store.archive();
    let bytes = async || {
        let store = asked(&fixture.store).census().await.expect("a census");
        let census = asked_archive(&archive).census().await.expect("a census");
        let gauges = asked_archive(&archive).gauges().await.expect("gauges");
        assert_eq!(gauges.bytes, census.bytes);
        assert_eq!(gauges.rows, census.rows);
        (
            store.bytes.expect("a size"),
            census.bytes.expect("a size of the archive"),
        )
    };
    let (before, archived_before) = bytes().await;
    let body = [b'x'; 12_000];
    for n in 0..80 {
        completed(&fixture, &format!("key {n}"), &body).await;
    }
    let (full, _) = bytes().await;
    assert!(full >= before + 80 * 12_000, "{before} and then {full}");
    fixture.clock.advance(TTL);
    let swept = fixture.store.sweep(Some(&archive), 100).await;
    assert_eq!(swept.expect("a sweep"), 80);
    let (after, archived) = bytes().await;
    assert!(after < full, "{full} and then {after}");
    assert!(
        archived >= archived_before + 80 * 60 && archived < archived_before + 80 * 12_000,
        "{archived_before} and then {archived}"
    );
}

#[tokio::test]
async fn the_archive_tells_its_columns_with_their_types() {
    let dir = TempDir::new().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("archive.db").display());
    let archive = SqliteArchive::open(&url).await.expect("an archive");
    let census = asked_archive(&archive).census().await.expect("a census");
    let columns: Vec<_> = census
        .columns
        .iter()
        .map(|column| (column.name.as_str(), column.type_name.as_str()))
        .collect();
    let expected = [
        ("scoped_key", "TEXT"),
        ("fingerprint", "BLOB"),
        ("status_code", "INTEGER"),
        ("resource_id", "TEXT"),
        ("created_at", "INTEGER"),
        ("expired_at", "INTEGER"),
    ];
    assert_eq!(columns, expected);
    assert!(!census.is_partitioned);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_hide_the_others() {
    let fixture = Fixture::new().await;
    fixture.claim(key("readable")).await;
    fixture.claim(key("unreadable")).await;
    let mut raw = fixture.raw().await;
    let unreadable = key("unreadable");
    raw.run(&format!(
        "UPDATE idempotency_keys SET scoped_key = 'nobody''s' WHERE scoped_key = '{unreadable}'"
    ))
    .await;
    let query = OpenQuery {
        at: fixture.store.now().await.expect("the time"),
        within: MINUTE,
        limit: 10,
    };
    let open = asked(&fixture.store).open_at(&query).await;
    let open: Vec<_> = open.expect("an answer").iter().map(|one| one.key).collect();
    assert_eq!(open, [key("readable")]);
}

#[tokio::test]
async fn an_id_that_could_be_no_id_is_left_out() {
    let fixture = Fixture::new().await;
    completed(&fixture, "k", b"charged").await;
    let mut raw = fixture.raw().await;
    raw.run("UPDATE idempotency_keys SET resource_id = 'not an id'")
        .await;
    let record = asked(&fixture.store).record(key("k")).await;
    let state = record.expect("an answer").expect("a record").state;
    let LiveState::Completed { resource_id, .. } = state else {
        panic!("expected a completed record, got {state:?}");
    };
    assert_eq!(resource_id, None::<ResourceId>);
}
