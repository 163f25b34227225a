//! The sweep of a runbook that many services run, beside ours: each of its
//! faults, and that ours has it not.

use axum_idempotency::{
    Clock as _, Completion, KeptResponse, ResourceId,
    archive::Archive as _,
    store::{Store as _, postgres::PostgresStore},
};

use super::{
    Raw, TTL, in_time, key,
    place::{Place, at, tombstone},
};

/// Its statement, on our tables. The resource id is that of the row here.
const ARCHIVE_SQL: &str = "
WITH expired AS (
    SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expires_at
      FROM idempotency_keys
     WHERE expires_at < '2026-12-01 00:00:00+00'
     ORDER BY expires_at
     LIMIT 10000
     FOR UPDATE SKIP LOCKED
), archived AS (
    INSERT INTO idempotency_key_archive
        (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
    SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expires_at
      FROM expired
    ON CONFLICT (scoped_key, expired_at) DO NOTHING
    RETURNING scoped_key
), deleted AS (
    DELETE FROM idempotency_keys k USING archived a WHERE k.scoped_key = a.scoped_key RETURNING 1
)
SELECT count(*) FROM deleted";

/// When the keys of these tests are claimed: they expire a day later, a day
/// before the present.
const CLAIMED: &str = "2026-11-29T00:00:00Z";
const EXPIRED: &str = "2026-11-30T00:00:00Z";

async fn place() -> Place {
    let place = Place::new().await;
    let expired = at(EXPIRED);
    let prepared = place.store.archive().prepare(expired, expired).await;
    prepared.expect("prepared");
    place
}

async fn sweep(store: &PostgresStore) -> u64 {
    let archive = store.archive();
    store.sweep(Some(&archive), 10_000).await.expect("a sweep")
}

async fn backlog(beside: &mut Raw) -> i64 {
    beside.count("idempotency_keys").await
}

#[tokio::test]
async fn a_request_in_flight_does_not_stop_the_whole_batch() {
    in_time(async {
        let place = place().await;
        place.abandon("in flight", at(CLAIMED)).await;
        place.complete("completed", at(CLAIMED), 201).await;
        let mut beside = place.beside().await;
        for _ in 0..2 {
            let stopped = beside.try_script(ARCHIVE_SQL).await;
            let error = stopped.expect_err("a row in flight has no status");
            assert!(error.to_string().contains("null value"), "{error}");
            assert_eq!(backlog(&mut beside).await, 2, "and nothing is ever moved");
        }
        assert_eq!(sweep(&place.store).await, 2);
        assert_eq!(backlog(&mut beside).await, 0);
        let archive = place.store.archive();
        for (name, status) in [("in flight", 0), ("completed", 201)] {
            let found = archive.lookup(key(name), None).await.expect("an answer");
            assert_eq!(found.expect("a tombstone").status, status, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_row_that_is_archived_already_leaves_the_live_table() {
    in_time(async {
        let place = place().await;
        place.complete("k", at(CLAIMED), 201).await;
        let archive = place.store.archive();
        let there = tombstone("k", 201, at(EXPIRED));
        archive.insert(&[there]).await.expect("inserted");
        let mut beside = place.beside().await;
        for _ in 0..2 {
            let moved: i64 = beside.get(ARCHIVE_SQL).await;
            assert_eq!(moved, 0, "which the runbook takes for done");
            assert_eq!(backlog(&mut beside).await, 1, "with a backlog");
        }
        assert_eq!(sweep(&place.store).await, 1);
        assert_eq!(backlog(&mut beside).await, 0);
        assert_eq!(beside.count("idempotency_key_archive").await, 1);
    })
    .await;
}

#[tokio::test]
async fn the_resource_is_known_whatever_the_response_looks_like() {
    in_time(async {
        let place = place().await;
        let mut beside = place.beside().await;
        // An envelope, a list, a text: the expression finds nothing in them.
        for response in [
            r#"{"data":{"id":"ch_1"}}"#,
            r#"[{"id":"ch_1"}]"#,
            r#""ch_1""#,
        ] {
            let found: Option<String> = beside
                .get(&format!("SELECT '{response}'::jsonb ->> 'id'"))
                .await;
            assert_eq!(found, None, "the id in {response}");
        }
        // And what is no JSON cannot be kept at all.
        let form = beside.try_script("SELECT 'id=ch_1'::jsonb ->> 'id'").await;
        form.expect_err("a form is no JSON");

        let present = place.clock.now();
        for (name, body) in [
            ("envelope", &br#"{"data":{"id":"ch_1"}}"#[..]),
            ("form", b"id=ch_1"),
            ("bytes", &[0, 0xff, 0x00]),
        ] {
            let token = place.abandon(name, at(CLAIMED)).await;
            place.clock.set(at(CLAIMED));
            // The layer has taken it from the handler, the body or Location.
            let completion = Completion {
                status: 201,
                resource_id: ResourceId::new("ch_1"),
                response: Some(KeptResponse {
                    headers: Vec::new(),
                    body: body.to_vec().into(),
                }),
            };
            let done = place.store.complete(key(name), token, completion).await;
            let _owner = done.expect("an answer");
        }
        place.clock.set(present);
        assert_eq!(at(CLAIMED) + TTL, at(EXPIRED));
        assert_eq!(sweep(&place.store).await, 3);
        for name in ["envelope", "form", "bytes"] {
            let found = place.store.archive().lookup(key(name), None).await;
            let found = found.expect("an answer").expect("a tombstone");
            assert_eq!(found.resource_id, ResourceId::new("ch_1"), "{name}");
        }
    })
    .await;
}
