//! Moving expired records into the archive.

use std::time::Duration;

use axum_idempotency::{
    Completion, OwnerToken, ScopedKey, Tombstone,
    archive::{Archive as _, SqliteArchive},
    store::{Renewal, Renewed, Store as _, move_in_two_phases},
};
use tempfile::TempDir;

use super::{Fixture, LEASE, TTL, completion, key, request, response, url};

async fn completed(fixture: &Fixture, key: ScopedKey, status: u16) -> OwnerToken {
    let (token, _) = fixture.claim(key).await;
    let done = fixture.store.complete(key, token, completion(status));
    let _ = done.await.expect("an answer");
    token
}

#[tokio::test]
async fn the_oldest_go_first_and_no_more_than_asked_for() {
    let fixture = Fixture::new().await;
    for n in 0..5 {
        completed(&fixture, key(n), 201).await;
        fixture.clock.advance(Duration::from_secs(1));
    }
    // Three of five are past their time.
    fixture
        .clock
        .advance(TTL.saturating_sub(Duration::from_secs(3)));
    let archive = fixture.store.archive();
    let sweep = async |limit| {
        let swept = fixture.store.sweep(Some(&archive), limit).await;
        swept.expect("an answer")
    };
    assert_eq!(sweep(0).await, 0);
    assert_eq!(sweep(2).await, 2);
    for (n, is_archived) in [(0, true), (1, true), (2, false), (3, false)] {
        let row = archive.lookup(key(n), None).await.expect("an answer");
        assert_eq!(row.is_some(), is_archived, "{n}");
        let live = fixture.store.get(key(n)).await.expect("an answer");
        assert_eq!(live.is_none(), is_archived, "{n}");
    }
    assert_eq!(sweep(10).await, 1);
    assert_eq!(sweep(10).await, 0);
}

#[tokio::test]
async fn a_row_becomes_its_tombstone_in_either_archive() {
    for apart in [false, true] {
        let fixture = Fixture::new().await;
        let dir = TempDir::new().expect("a directory");
        let archive = if apart {
            SqliteArchive::open(&url(&dir)).await.expect("an archive")
        } else {
            fixture.store.archive()
        };
        assert_eq!(archive.within(), (!apart).then(|| fixture.store.identity()));
        completed(&fixture, key("done"), 404).await;
        fixture.claim(key("abandoned")).await;
        let mut speculative = request(key("speculative"));
        speculative.age.lookup = axum_idempotency::claim::ArchiveLookup::AllKeys;
        let _ = fixture.store.claim(speculative).await.expect("an answer");
        fixture.clock.advance(TTL);
        let expected = |expired: &[axum_idempotency::ExpiredRecord], name| {
            let found = expired.iter().find(|row| row.tombstone.key == key(name));
            found.expect("expired").clone()
        };
        let expired = fixture.store.expired(10).await.expect("an answer");
        assert_eq!(expired.len(), 3);
        assert!(expected(&expired, "speculative").speculative);

        let swept = fixture.store.sweep(Some(&archive), 10).await;
        assert_eq!(swept.expect("an answer"), 3);
        for (name, status) in [("done", 404), ("abandoned", Tombstone::UNKNOWN_OUTCOME)] {
            let row = archive.lookup(key(name), None).await.expect("an answer");
            let row = row.expect("a tombstone");
            assert_eq!(row, expected(&expired, name).tombstone);
            assert_eq!(row.status, status);
        }
        let ran_nothing = archive.lookup(key("speculative"), None).await;
        assert!(ran_nothing.expect("an answer").is_none());
        assert_eq!(fixture.raw().await.count("idempotency_keys").await, 0);
    }
}

#[tokio::test]
async fn a_live_lease_is_never_swept() {
    let fixture = Fixture::new().await;
    let (token, _) = fixture.claim(key("running")).await;
    fixture.clock.advance(LEASE / 2);
    let renewal = Renewal {
        key: key("running"),
        token,
        lease: 2 * TTL,
        confirmed: true,
    };
    let renewed = fixture.store.renew(&[renewal]).await.expect("an answer");
    assert!(matches!(renewed[..], [Renewed::Until(_)]));
    completed(&fixture, key("done"), 201).await;
    fixture.clock.advance(TTL + LEASE);
    let store = &fixture.store;
    assert_eq!(store.expired(10).await.expect("an answer").len(), 1);
    assert_eq!(store.sweep(None, 10).await.expect("an answer"), 1);
    assert_eq!(store.sweep(None, 10).await.expect("an answer"), 0);
    assert!(
        store
            .get(key("running"))
            .await
            .expect("an answer")
            .is_some()
    );
    fixture.clock.advance(TTL);
    assert_eq!(store.sweep(None, 10).await.expect("an answer"), 1);
}

#[tokio::test]
async fn a_large_backlog_goes_in_several_transactions() {
    let fixture = Fixture::new().await;
    completed(&fixture, key("pattern"), 201).await;
    let mut raw = fixture.raw().await;
    raw.run(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2499)
         INSERT INTO idempotency_keys
         SELECT 'idem:v1:' || format('%022d', i), fingerprint, token, attempt, created_at,
                expires_at, lease_until, speculative, status_code, resource_id, headers, body, completed_at
         FROM n, idempotency_keys",
    )
    .await;
    fixture.clock.advance(TTL);
    let archive = fixture.store.archive();
    let swept = fixture.store.sweep(Some(&archive), 2_200).await;
    assert_eq!(swept.expect("an answer"), 2_200);
    assert_eq!(raw.count("idempotency_key_archive").await, 2_200);
    let swept = fixture.store.sweep(Some(&archive), 10_000).await;
    assert_eq!(swept.expect("an answer"), 300);
    assert_eq!(raw.count("idempotency_keys").await, 0);
    assert_eq!(raw.count("idempotency_key_archive").await, 2_500);
}

#[tokio::test]
async fn long_bodies_make_short_transactions() {
    let fixture = Fixture::new().await;
    for n in 0..5 {
        let (token, _) = fixture.claim(key(n)).await;
        let completion = Completion {
            response: Some(response(&[], &vec![b'x'; 9 << 20])),
            ..completion(200)
        };
        let done = fixture.store.complete(key(n), token, completion);
        let _ = done.await.expect("an answer");
    }
    fixture.clock.advance(TTL);
    // A trigger counts the transactions' batches: rows that go together see
    // the same number of rows in the archive before them.
    let mut raw = fixture.raw().await;
    raw.run("CREATE TABLE seen (rows INTEGER)").await;
    raw.run(
        "CREATE TRIGGER deleted BEFORE DELETE ON idempotency_keys
         BEGIN INSERT INTO seen SELECT count(*) FROM idempotency_key_archive; END",
    )
    .await;
    let swept = fixture
        .store
        .sweep(Some(&fixture.store.archive()), 10)
        .await;
    assert_eq!(swept.expect("an answer"), 5);
    let seen: Vec<i64> = raw
        .rows("SELECT rows FROM seen ORDER BY rowid")
        .await
        .iter()
        .map(|row| sqlx::Row::get(row, 0))
        .collect();
    assert_eq!(seen, [2, 2, 4, 4, 5]);
}

#[tokio::test]
async fn a_sweep_that_died_between_two_databases_is_taken_up_again() {
    let fixture = Fixture::new().await;
    let dir = TempDir::new().expect("a directory");
    let archive = SqliteArchive::open(&url(&dir)).await.expect("an archive");
    let token = completed(&fixture, key("done"), 201).await;
    fixture.claim(key("late")).await;
    fixture.clock.advance(TTL);
    let expired = fixture.store.expired(10).await.expect("an answer");
    let tombstones: Vec<_> = expired.iter().map(|row| row.tombstone.clone()).collect();
    archive.insert(&tombstones).await.expect("archived");

    // In between, an operator learns how one of them ended.
    let amended = fixture.store.amend(key("late"), completion(202)).await;
    assert!(amended.expect("an answer"));
    let removed = fixture.store.remove(&expired).await.expect("an answer");
    assert_eq!(
        removed, 1,
        "the amended row is no longer the one that was read"
    );
    let store: &dyn axum_idempotency::store::Store = &fixture.store;
    let moved = move_in_two_phases(store, Some(&archive), 10).await;
    assert_eq!(moved.expect("an answer"), 1);
    let row = archive.lookup(key("late"), None).await.expect("an answer");
    assert_eq!(row.expect("a tombstone").status, 202);

    let gone = fixture.store.complete(key("done"), token, completion(201));
    assert_eq!(
        gone.await.expect("an answer"),
        axum_idempotency::store::Fenced::Stale
    );
}

#[tokio::test]
async fn a_failing_sweep_moves_nothing() {
    let fixture = Fixture::new().await;
    completed(&fixture, key("a"), 201).await;
    completed(&fixture, key("b"), 201).await;
    fixture.clock.advance(TTL);
    let mut raw = fixture.raw().await;
    raw.run(&format!(
        "CREATE TRIGGER refusing BEFORE DELETE ON idempotency_keys
         WHEN old.scoped_key = '{}' BEGIN SELECT RAISE(ABORT, 'refused'); END",
        key("b")
    ))
    .await;
    let archive = fixture.store.archive();
    fixture
        .store
        .sweep(Some(&archive), 10)
        .await
        .expect_err("refused");
    assert_eq!(raw.count("idempotency_key_archive").await, 0);
    assert_eq!(raw.count("idempotency_keys").await, 2);
    raw.run("DROP TRIGGER refusing").await;
    let swept = fixture.store.sweep(Some(&archive), 10).await;
    assert_eq!(swept.expect("an answer"), 2);
}
