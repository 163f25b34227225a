//! Many requests at once: none waits so long that it fails.

use axum_idempotency::archive::{MemoryArchive, PostgresArchive};
use futures_util::future::join_all;

use super::{open, open_with_prefix};
use crate::support::{
    Backend, in_time,
    postgres::Schema,
    redis::{Server, prefix, shared_cluster_url},
};

const CROWD: usize = 256;

/// Each asks for a key of its own, and then for it again.
async fn everybody_is_served(backend: &Backend) {
    let shop = backend.shop().open().await;
    let all = (0..CROWD).map(|number| {
        let shop = &shop;
        async move {
            let key = format!("order-{number}");
            let first = shop.post("/charges").key(&key).send().await;
            assert_eq!(first.status, 201, "{:?}", first.json());
            let repeat = shop.post("/charges").key(&key).send().await;
            repeat.expect_replay_of(&first);
        }
    });
    join_all(all).await;
    assert_eq!(shop.work.runs(), CROWD);
}

#[tokio::test]
async fn a_crowd_on_one_server_is_served() {
    in_time(async {
        let server = Server::start().await;
        let store = open(&server.url()).await;
        everybody_is_served(&Backend::over(store, MemoryArchive::new(), ())).await;
        // All calls of a process share one connection; what opened it has gone.
        let clients = server.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]).await;
        let ours = clients.lines().filter(|line| line.contains("cmd=evalsha"));
        assert_eq!(ours.count(), 1, "{clients}");
    })
    .await;
}

#[tokio::test]
async fn a_crowd_on_a_cluster_is_served() {
    in_time(async {
        let store = open_with_prefix(&shared_cluster_url().await, &prefix()).await;
        everybody_is_served(&Backend::over(store, MemoryArchive::new(), ())).await;
    })
    .await;
}

/// Every outcome waits for one of two connections.
#[tokio::test]
async fn a_crowd_before_a_small_pool_of_the_archive_is_served() {
    in_time(async {
        let (server, schema) = (Server::start().await, Schema::new());
        let builder = PostgresArchive::builder().url(schema.url());
        let archive = builder.max_connections(2).open().await.expect("an archive");
        let store = open(&server.url()).await;
        everybody_is_served(&Backend::over(store, archive, schema)).await;
    })
    .await;
}
