//! The scanning sweep: what it looks at, and what it leaves alone.

use std::time::Duration;

use axum_idempotency::{
    archive::{Archive as _, MemoryArchive},
    claim::ClaimRequest,
    store::{Fenced, Store as _, StoreErrorKind, redis::RedisStore},
};

use super::{open, open_with_prefix};
use crate::support::{
    attempt::{completion, key, leased, request},
    in_time,
    redis::{Cluster, Server, prefix, server_url},
};

/// A request whose record expires at once.
fn brief(name: u32) -> ClaimRequest {
    ClaimRequest {
        lease: Duration::from_millis(1),
        ttl: Duration::from_millis(1),
        ..request(key(name))
    }
}

/// By the server's own clock.
async fn sweep_until(store: &RedisStore, archive: &MemoryArchive, count: u64) {
    let mut swept = 0;
    while swept < count {
        let moved = store.sweep(Some(archive), 1_000).await;
        swept += moved.expect("a sweep");
        tokio::task::yield_now().await;
    }
    assert_eq!(swept, count);
}

#[tokio::test]
async fn what_was_left_in_progress_is_archived_with_status_0() {
    in_time(async {
        let store = open_with_prefix(&server_url(), &prefix()).await;
        let archive = MemoryArchive::new();
        leased(store.claim(brief(1)).await.expect("an answer"));
        sweep_until(&store, &archive, 1).await;
        assert_eq!(store.get(key(1)).await.expect("an answer"), None);
        let row = archive.lookup(key(1), None).await.expect("an answer");
        assert!(!row.expect("a tombstone").has_outcome());
    })
    .await;
}

/// Completed records are in the archive and leave by themselves: a sweep does
/// not even read them.
#[tokio::test]
async fn a_sweep_reads_only_what_is_in_progress() {
    in_time(async {
        let server = Server::start().await;
        let store = open(&server.url()).await;
        for name in 0..300 {
            let done = request(key(name));
            leased(store.claim(done.clone()).await.expect("an answer"));
            let completed = store.complete(done.key, done.token, completion(201));
            assert_eq!(completed.await.expect("an answer"), Fenced::Owner);
        }
        for name in 300..303 {
            leased(store.claim(request(key(name))).await.expect("an answer"));
        }
        // The first loads the script.
        store.expired(10).await.expect("an answer");
        let before = server.calls("evalsha").await;
        let expired = store.expired(10).await.expect("an answer");
        assert_eq!(expired, []);
        assert_eq!(server.calls("evalsha").await - before, 3, "records read");
    })
    .await;
}

#[tokio::test]
async fn a_sweep_looks_at_every_master_of_a_cluster() {
    in_time(async {
        let cluster = Cluster::start().await;
        let store = open(&cluster.url()).await;
        let archive = MemoryArchive::new();
        for name in 0..60 {
            leased(store.claim(brief(name)).await.expect("an answer"));
        }
        for master in cluster.masters().await {
            let keys = cluster.node(master).cli(&["DBSIZE"]).await;
            assert_ne!(keys, "0", "a master without a record");
        }
        sweep_until(&store, &archive, 60).await;
    })
    .await;
}

/// What a pattern would take for more than itself.
#[tokio::test]
async fn a_sweep_stays_within_its_prefix() {
    in_time(async {
        let (place, archive) = (prefix(), MemoryArchive::new());
        let mine = format!("{place}[a-c]*?\\^");
        let others = ["b", "bxx\\", "[a-c]*?", "", "[a-c]*?\\^deeper:"];
        let store = open_with_prefix(&server_url(), &mine).await;
        leased(store.claim(brief(1)).await.expect("an answer"));
        let mut neighbours = Vec::new();
        for other in others {
            let neighbour = open_with_prefix(&server_url(), &format!("{place}{other}")).await;
            leased(neighbour.claim(brief(1)).await.expect("an answer"));
            neighbours.push(neighbour);
        }
        sweep_until(&store, &archive, 1).await;
        for neighbour in neighbours {
            let found = neighbour.get(key(1)).await.expect("an answer");
            assert!(found.is_some(), "{neighbour:?} was swept");
        }
    })
    .await;
}

/// 1. Something else wrote under names of records.
/// 2. Calls about them fail, and say that it is no record. What is written there
///    stays.
/// 3. A sweep moves the others.
#[tokio::test]
async fn what_is_no_record_is_told_and_keeps_nothing_from_being_swept() {
    in_time(async {
        let server = Server::start().await;
        let store = open(&server.url()).await;
        let name = |number: u32| key(number).to_string();
        let complete = [
            "HSET",
            "token",
            "0123456789abcdef",
            "attempt",
            "1",
            "created_at",
            "1",
            "expires_at",
            "2",
            "fingerprint",
            "f",
            "lease_until",
            "3",
            "speculative",
            "0",
        ];
        for (number, garbage) in [
            vec!["SET", "text"],
            vec!["SET", ""],
            vec!["LPUSH", "a"],
            vec!["HSET", "token", "0123456789abcdef"],
            [&complete[..], &["attempt", "many"]].concat(),
            [&complete[..], &["token", "short"]].concat(),
            [&complete[..], &["fingerprint", ""]].concat(),
        ]
        .into_iter()
        .enumerate()
        {
            let number = u32::try_from(number).expect("a few");
            let name = name(number);
            let command = [&[garbage[0], &*name], &garbage[1..]].concat();
            server.cli(&command).await;
            let before = server.cli(&["OBJECT", "ENCODING", &name]).await;
            let error = store.get(key(number)).await.expect_err("no record");
            assert_eq!(
                error.kind(),
                StoreErrorKind::Corrupt,
                "{garbage:?}: {error:?}"
            );
            let claimed = store.claim(request(key(number))).await;
            let error = claimed.expect_err("nothing to judge");
            assert_eq!(
                error.kind(),
                StoreErrorKind::Corrupt,
                "{garbage:?}: {error:?}"
            );
            assert_eq!(server.cli(&["OBJECT", "ENCODING", &name]).await, before);
        }
        leased(store.claim(brief(100)).await.expect("an answer"));
        sweep_until(&store, &MemoryArchive::new(), 1).await;
    })
    .await;
}
