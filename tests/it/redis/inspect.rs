//! What is special to Redis of what an operator asks.

use std::time::Duration;

use axum_idempotency::{
    claim::ClaimRequest,
    inspect::{InspectStore, OpenQuery},
    store::{Fenced, Store as _, redis::RedisStore},
};
use redis::AsyncCommands as _;

use super::{open, open_with_prefix};
use crate::support::{
    attempt::{completion, key, leased, request},
    in_time,
    redis::{Cluster, prefix, server_url},
};

fn asked(store: &RedisStore) -> &dyn InspectStore {
    store.inspect().expect("a store that can be inspected")
}

async fn run(store: &RedisStore, attempt: ClaimRequest) {
    let (key, token) = (attempt.key, attempt.token);
    leased(store.claim(attempt).await.expect("an answer"));
    let done = store.complete(key, token, completion(201)).await;
    assert_eq!(done.expect("an answer"), Fenced::Owner);
}

async fn counts(store: &RedisStore) -> [u64; 4] {
    let census = asked(store).census().await.expect("a census");
    [
        census.running,
        census.lapsed,
        census.completed,
        census.expired,
    ]
}

#[tokio::test]
async fn an_erasure_keeps_the_time_for_which_redis_keeps_the_record() {
    in_time(async {
        let prefix = prefix();
        let store = open_with_prefix(&server_url(), &prefix).await;
        run(&store, request(key("k"))).await;
        let client = redis::Client::open(server_url()).expect("a URL");
        let mut raw = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        let name = format!("{prefix}{}", key("k"));
        let before: i64 = raw.pttl(&name).await.expect("an answer");
        let erased = asked(&store).erase_response(key("k")).await;
        assert!(erased.expect("an answer"));
        let after: i64 = raw.pttl(&name).await.expect("an answer");
        assert!(0 < after && after <= before, "{before} ms and then {after}");
        let kept: Vec<u8> = raw.get(&name).await.expect("an answer");
        let etag = b"etag";
        assert!(!kept.windows(etag.len()).any(|part| part == etag));
    })
    .await;
}

/// Under the server's clock: no sweep sees them go.
#[tokio::test]
async fn completed_records_past_their_time_are_no_backlog() {
    in_time(async {
        let store = open_with_prefix(&server_url(), &prefix()).await;
        let brief = |name| ClaimRequest {
            ttl: Duration::from_millis(1),
            ..request(key(name))
        };
        run(&store, brief("completed")).await;
        let lapsed = ClaimRequest {
            lease: Duration::from_millis(1),
            ..brief("lapsed")
        };
        leased(store.claim(lapsed).await.expect("an answer"));
        run(&store, request(key("inside its window"))).await;
        while asked(&store).backlog().await.expect("an answer") == 0 {
            tokio::task::yield_now().await;
        }
        let expired = store.expired(10).await.expect("an answer");
        assert_eq!(expired.len(), 1);
        assert_eq!(asked(&store).backlog().await.expect("an answer"), 1);
        assert_eq!(counts(&store).await, [0, 0, 1, 1]);
    })
    .await;
}

#[tokio::test]
async fn every_master_of_a_cluster_is_asked() {
    in_time(async {
        let cluster = Cluster::start().await;
        let store = open(&cluster.url()).await;
        for name in 0..40 {
            run(&store, request(key(name))).await;
        }
        for name in 40..60 {
            let claimed = store.claim(request(key(name))).await;
            leased(claimed.expect("an answer"));
        }
        for master in cluster.masters().await {
            let keys = cluster.node(master).cli(&["DBSIZE"]).await;
            assert_ne!(keys, "0", "a master without a record");
        }
        assert_eq!(counts(&store).await, [20, 0, 40, 0]);
        let query = OpenQuery {
            at: store.now().await.expect("the time"),
            within: Duration::ZERO,
            limit: 100,
        };
        let open = asked(&store).open_at(&query).await.expect("an answer");
        assert_eq!(open.len(), 20);
    })
    .await;
}

#[tokio::test]
async fn only_the_records_of_the_prefix_are_told() {
    in_time(async {
        let place = prefix();
        let mine = open_with_prefix(&server_url(), &format!("{place}a")).await;
        let theirs = open_with_prefix(&server_url(), &format!("{place}ab")).await;
        run(&mine, request(key("mine"))).await;
        for name in ["one", "two"] {
            run(&theirs, request(key(name))).await;
        }
        assert_eq!(counts(&mine).await, [0, 0, 1, 0]);
        assert_eq!(counts(&theirs).await, [0, 0, 2, 0]);
    })
    .await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    in_time(async {
        let prefix = prefix();
        let store = open_with_prefix(&server_url(), &prefix).await;
        run(&store, request(key("readable"))).await;
        let client = redis::Client::open(server_url()).expect("a URL");
        let mut raw = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        let name = format!("{prefix}{}", key("unreadable"));
        let () = raw.set(name, "nothing of ours").await.expect("an answer");
        assert_eq!(counts(&store).await, [0, 0, 1, 0]);
        let record = asked(&store).record(key("unreadable")).await;
        record.expect_err("a record that cannot be read");
    })
    .await;
}
