//! A server at its memory limit: one that evicts, and one that does not.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{
    ArchiveLookup, Retry,
    archive::SqliteArchive,
    store::{Fenced, Renewal, Renewed, Store as _, StoreErrorKind},
};
use http::{StatusCode, header::LOCATION};
use tempfile::TempDir;

use super::{open, open_with_prefix};
use crate::support::{
    Backend, Work,
    attempt::{LEASE, completion, key, leased, request},
    in_time,
    redis::{Server, prefix},
    scoped,
};

/// Charges whose answers take so much room that a hundred are too many.
fn large() -> Work {
    Work::answering(async |seen| {
        let id = format!("/charges/ch_{}", seen.run);
        let body = "x".repeat(40 * 1024);
        (StatusCode::CREATED, [(LOCATION, id)], body).into_response()
    })
}

/// 1. Redis makes room: the first record goes, inside its window.
/// 2. Its retry is answered from the archive, and does not run.
#[tokio::test]
async fn an_evicted_record_is_answered_from_the_archive() {
    in_time(async {
        let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]).await;
        let dir = TempDir::new().expect("a directory for temporary files");
        let url = format!("sqlite:{}", dir.path().join("archive.db").display());
        let archive = SqliteArchive::open(&url).await.expect("an archive");
        let prefix = prefix();
        let store = open_with_prefix(&server.url(), &prefix).await;
        let backend = Backend::over(store, archive, dir);
        let shop = backend
            .shop()
            .work(large())
            .policy(|policy| policy.archive_lookup(ArchiveLookup::AllKeys))
            .open()
            .await;
        limit_to_what_is_used_and(&server, 2 << 20).await;
        // Young, by its own timestamp: that proves nothing here.
        let first = backend.ulid_made_before(Duration::ZERO);
        let answer = shop.post("/charges").key(&first).send().await;
        assert_eq!(answer.status, 201);
        let name = format!("{prefix}{}", scoped("alice", &first));
        let mut others = 0;
        while server.cli(&["EXISTS", &name]).await == "1" {
            others += 1;
            let answer = shop
                .post("/charges")
                .key(&format!("other-{others}"))
                .send()
                .await;
            assert_eq!(answer.status, 201, "a server that evicts takes new keys");
            assert!(others < 500, "nothing is evicted");
        }
        assert_ne!(server.info("stats").await["evicted_keys"], "0");
        let runs = shop.work.runs();
        let retry = shop.post("/charges").key(&first).send().await;
        retry.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
        let retry = retry.json();
        assert_eq!(retry["original_status"], 201);
        assert_eq!(retry["resource_id"], "ch_1");
        assert_eq!(retry["same_request"], true);
        assert_eq!(shop.work.runs(), runs, "it ran again");
    })
    .await;
}

/// With an archive a record in progress has no expiry of its own.
#[tokio::test]
async fn a_volatile_policy_evicts_no_record_in_progress() {
    in_time(async {
        let server = Server::with(&["--maxmemory-policy", "volatile-lru"]).await;
        let store = open(&server.url()).await;
        limit_to_what_is_used_and(&server, 1 << 20).await;
        let running = request(key("running"));
        leased(store.claim(running.clone()).await.expect("an answer"));
        let mut count = 0;
        while server.info("stats").await["evicted_keys"] == "0" {
            count += 1;
            complete_a_large_one(&store, count)
                .await
                .expect("it makes room");
            assert!(count < 500, "nothing is evicted");
        }
        let found = store.get(running.key).await.expect("an answer");
        assert_eq!(found.expect("it is in progress").token, running.token);
    })
    .await;
}

/// 1. A server that evicts nothing is full: new keys are refused, and nothing
///    has been written of them.
/// 2. What was claimed is renewed and completed all the same, what was completed
///    is replayed, and what is over is removed.
#[tokio::test]
async fn a_full_server_refuses_new_keys_and_finishes_what_runs() {
    in_time(async {
        let server = Server::start().await;
        let store = open(&server.url()).await;
        let (running, ending) = (request(key("running")), request(key("ending")));
        for request in [&running, &ending] {
            leased(store.claim(request.clone()).await.expect("an answer"));
        }
        limit_to_what_is_used_and(&server, 1 << 20).await;
        let mut count = 0;
        let refusal = loop {
            count += 1;
            if let Err(refusal) = complete_a_large_one(&store, count).await {
                break refusal;
            }
            assert!(count < 500, "the server takes no end of records");
        };
        assert_eq!(refusal.kind(), StoreErrorKind::Full, "{refusal:?}");
        assert_eq!(store.get(key(count)).await.expect("an answer"), None);

        let renewal = Renewal {
            key: running.key,
            token: running.token,
            lease: LEASE,
            confirmed: true,
        };
        let renewed = store.renew(&[renewal]).await.expect("an answer");
        assert!(matches!(renewed[..], [Renewed::Until(_)]), "{renewed:?}");
        let completed = store.complete(running.key, running.token, completion(201));
        assert_eq!(completed.await.expect("an answer"), Fenced::Owner);
        let again = store.claim(request(running.key)).await.expect("an answer");
        assert!(
            matches!(
                again.outcome,
                axum_idempotency::claim::ClaimOutcome::Completed(_)
            ),
            "{again:?}"
        );
        let released = store.release(ending.key, ending.token);
        assert_eq!(released.await.expect("an answer"), Fenced::Owner);

        server.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
        leased(store.claim(request(key(count))).await.expect("an answer"));
    })
    .await;
}

#[tokio::test]
async fn the_client_of_a_full_server_is_told_to_come_back() {
    in_time(async {
        let server = Server::start().await;
        let store = open(&server.url()).await;
        let backend = Backend::over(store, axum_idempotency::archive::MemoryArchive::new(), ());
        let shop = backend.shop().open().await;
        let first = shop.post("/charges").key("k").send().await;
        first.expect_run(1);
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let refused = shop.post("/charges").key("other").send().await;
        refused.expect_problem(503, "idempotency_store_full", Retry::SameKeyLater);
        assert_eq!(shop.work.runs(), 1);
        let repeat = shop.post("/charges").key("k").send().await;
        repeat.expect_replay_of(&first);
    })
    .await;
}

async fn limit_to_what_is_used_and(server: &Server, more: u64) {
    let used: u64 = server.info("memory").await["used_memory"]
        .parse()
        .expect("a number of bytes");
    let limit = (used + more).to_string();
    server.cli(&["CONFIG", "SET", "maxmemory", &limit]).await;
}

async fn complete_a_large_one(
    store: &axum_idempotency::store::redis::RedisStore,
    name: u32,
) -> Result<(), axum_idempotency::store::StoreError> {
    let request = request(key(name));
    leased(store.claim(request.clone()).await?);
    let mut completion = completion(201);
    let response = completion.response.as_mut().expect("a response");
    response.body = vec![b'x'; 40 * 1024].into();
    let completed = store
        .complete(request.key, request.token, completion)
        .await?;
    assert_eq!(completed, Fenced::Owner);
    // Let the server's clock go on, so that the least recently used is one.
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}
