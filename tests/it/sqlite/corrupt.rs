//! Rows changed by hand, of every kind.

use axum_idempotency::{
    Completion, Record, RecordState, Tombstone,
    archive::{Archive as _, SqliteArchive},
    claim::ClaimOutcome,
    store::{Store as _, StoreError, StoreErrorKind},
};
use futures_util::future::join;
use tempfile::TempDir;

use super::{Fixture, Raw, TTL, completion, key, leased, request, response};

/// A store with one completed and one running record, the first changed by
/// `change`.
async fn changed(change: &str) -> (Fixture, Raw) {
    let fixture = Fixture::new().await;
    let (token, _) = fixture.claim(key("done")).await;
    let done = fixture.store.complete(key("done"), token, completion(201));
    let _ = done.await.expect("an answer");
    fixture.claim(key("running")).await;
    let mut raw = fixture.raw().await;
    raw.run("PRAGMA ignore_check_constraints = ON").await;
    let done = key("done");
    let change = format!("UPDATE idempotency_keys SET {change} WHERE scoped_key = '{done}'");
    assert_eq!(raw.run(&change).await, 1);
    (fixture, raw)
}

async fn replay(fixture: &Fixture) -> Result<ClaimOutcome, StoreError> {
    let claim = fixture.store.claim(request(key("done"))).await?;
    Ok(claim.outcome)
}

#[tokio::test]
async fn without_its_essentials_a_row_is_corrupt_and_harms_no_other() {
    for change in [
        "fingerprint = x''",
        "token = x'00'",
        "token = zeroblob(17)",
        "attempt = -1",
        "attempt = 4294967296",
        "created_at = 9223372036854775807",
        "expires_at = 9223372036854775807",
        "created_at = -9223372036854775808",
        "status_code = -1",
        "status_code = 65536",
        "status_code = NULL",
        "status_code = NULL, lease_until = 9223372036854775807",
    ] {
        let (fixture, _raw) = changed(change).await;
        let neighbour = fixture.store.claim(request(key("new")));
        let (corrupt, neighbour) = join(replay(&fixture), neighbour).await;
        let error = corrupt.expect_err(change);
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{change}");
        leased(neighbour.expect("an answer"));

        let read = fixture.store.get(key("done")).await.expect_err(change);
        assert_eq!(read.kind(), StoreErrorKind::Corrupt, "{change}");
        let running = fixture.store.get(key("running")).await;
        assert!(running.expect("an answer").is_some());
    }
}

#[tokio::test]
async fn a_response_that_cannot_be_read_is_one_that_was_not_kept() {
    for change in [
        "headers = x''",
        "headers = x'02'",
        "headers = x'0101'",
        "headers = x'0100ff'",
        "headers = NULL",
        "body = NULL",
    ] {
        let (fixture, _raw) = changed(change).await;
        let outcome = replay(&fixture).await.expect(change);
        let ClaimOutcome::Completed(record) = outcome else {
            panic!("{change}: {outcome:?}");
        };
        let expected = Completion {
            response: None,
            ..completion(201)
        };
        assert_eq!(record.completion, expected, "{change}");
    }
}

#[tokio::test]
async fn a_resource_id_that_cannot_be_read_is_unknown() {
    for change in [
        "resource_id = ''",
        "resource_id = 'two words'",
        "resource_id = CAST(x'ff' AS TEXT)",
    ] {
        let (fixture, _raw) = changed(change).await;
        let record = fixture.store.get(key("done")).await.expect(change);
        let expected = Completion {
            resource_id: None,
            ..completion(201)
        };
        let state = record.map(|record| record.state);
        assert_eq!(state, Some(RecordState::Completed(expected)), "{change}");
    }
}

#[tokio::test]
async fn corrupt_rows_keep_no_other_from_the_archive() {
    for change in [
        "token = x'00'",
        "fingerprint = x''",
        "scoped_key = 'nonsense'",
    ] {
        let (fixture, mut raw) = changed(change).await;
        // The corrupt one is the oldest.
        raw.run(
            "UPDATE idempotency_keys SET expires_at = expires_at + 1 WHERE status_code IS NULL",
        )
        .await;
        fixture.clock.advance(2 * TTL);
        let expired = fixture.store.expired(1).await.expect(change);
        let keys: Vec<_> = expired.iter().map(|record| record.tombstone.key).collect();
        assert_eq!(keys, [key("running")], "{change}");

        let elsewhere = TempDir::new().expect("a directory");
        let elsewhere = SqliteArchive::open(&super::url(&elsewhere)).await;
        let elsewhere = elsewhere.expect("an archive");
        let moved = fixture.store.sweep(Some(&elsewhere), 10).await;
        assert_eq!(moved.expect("an answer"), 1, "{change}");
        assert_eq!(raw.count("idempotency_keys").await, 1);

        // Within one database, bytes are moved as they are.
        let moved = fixture
            .store
            .sweep(Some(&fixture.store.archive()), 10)
            .await;
        assert_eq!(moved.expect("an answer"), 1, "{change}");
        assert_eq!(raw.count("idempotency_key_archive").await, 1);
    }
}

#[tokio::test]
async fn a_corrupt_tombstone_is_told_from_an_absent_one() {
    for change in [
        "fingerprint = x''",
        "status_code = 70000",
        "created_at = 9223372036854775807",
    ] {
        let fixture = Fixture::new().await;
        let archive = fixture.store.archive();
        let now = fixture.store.now().await.expect("a time");
        let row = Tombstone {
            key: key("k"),
            fingerprint: super::fingerprint(1),
            status: 201,
            resource_id: None,
            created_at: now,
            expired_at: now,
        };
        archive
            .insert(std::slice::from_ref(&row))
            .await
            .expect("inserted");
        assert_eq!(
            archive.lookup(key("k"), None).await.expect("an answer"),
            Some(row)
        );
        let change = format!("UPDATE idempotency_key_archive SET {change}");
        fixture.raw().await.run(&change).await;
        let error = archive.lookup(key("k"), None).await.expect_err("corrupt");
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(
            archive
                .lookup(key("other"), None)
                .await
                .expect("an answer")
                .is_none()
        );
    }
}

#[tokio::test]
async fn what_the_schema_forbids_cannot_be_written_by_mistake() {
    let (_fixture, mut raw) = changed("attempt = 1").await;
    raw.run("PRAGMA ignore_check_constraints = OFF").await;
    for change in [
        "token = x'00'",
        "attempt = 0",
        "status_code = NULL",
        "lease_until = 1",
        "created_at = 'yesterday'",
        "fingerprint = NULL",
        "body = 'text'",
    ] {
        let change = format!("UPDATE idempotency_keys SET {change} WHERE status_code = 201");
        let change = sqlx::query(sqlx::AssertSqlSafe(change));
        change.execute(&mut raw.0).await.expect_err("forbidden");
    }
}

#[tokio::test]
async fn every_byte_of_an_answer_comes_back() {
    let all: Vec<u8> = (0..=255).collect();
    let long = vec![0xfe; 1 << 20];
    let kept = [
        Some(response(&[], b"")),
        Some(response(
            &[
                ("link", b"<a>"),
                ("x-raw", b"\xe9\xff"),
                ("link", b"<b>"),
                ("x-empty", b""),
            ],
            &all,
        )),
        Some(response(
            &[("content-type", b"application/octet-stream")],
            &long,
        )),
        None,
    ];
    let fixture = Fixture::new().await;
    for (n, response) in kept.into_iter().enumerate() {
        let (token, _) = fixture.claim(key(n)).await;
        let completion = Completion {
            response,
            ..completion(200)
        };
        let done = fixture.store.complete(key(n), token, completion.clone());
        let _ = done.await.expect("an answer");
        let record: Record = fixture
            .other()
            .await
            .get(key(n))
            .await
            .expect("an answer")
            .expect("a record");
        assert_eq!(record.state, RecordState::Completed(completion));
    }
}
