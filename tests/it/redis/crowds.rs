//! Many requests at once: none waits so long that it fails.

use axum_idempotency::{
    archive::{MemoryArchive, PostgresArchive},
    store::StoreErrorKind,
};
use futures_util::future::join_all;

use super::{open, open_with_prefix};
use crate::support::{
    Answer, Backend, Fault, Shop, Verb, in_time,
    postgres::Schema,
    redis::{Server, prefix, shared_cluster_url},
};

const CROWD: usize = 256;

/// Each asks for a key of its own, and then for it again.
async fn everybody_is_served(backend: &Backend) {
    everybody_is_served_by(&backend.shop().open().await, CROWD).await;
}

async fn everybody_is_served_by(shop: &Shop, crowd: usize) {
    let all = (0..crowd).map(|number| {
        async move {
            let key = format!("order-{number}");
            let first = shop.post("/charges").key(&key).send().await;
            assert_eq!(first.status, 201, "{:?}", first.json());
            // What could not be recorded at once is in progress until it is.
            loop {
                let repeat = shop.post("/charges").key(&key).send().await;
                if repeat.status != 409 {
                    break repeat.expect_replay_of(&first);
                }
                tokio::task::yield_now().await;
            }
        }
    });
    join_all(all).await;
    assert_eq!(shop.work.runs(), crowd);
}

/// 1. Two inserts are under way, and the archive does not answer.
/// 2. Other outcomes gather behind them.
/// 3. The archive answers: what has gathered is one insert.
#[tokio::test]
async fn outcomes_that_arrive_together_are_archived_together() {
    in_time(async {
        let backend = Backend::redis().await;
        let (shop, _first) = gathered(&backend).await;
        // Two that were held, one for what had gathered, and those for what came
        // after.
        let inserts = shop.archive.calls(Verb::Insert);
        assert!(inserts < GATHERED / 2, "{inserts} inserts");
        for number in 0..GATHERED {
            let row = backend.tombstone(&format!("order-{number}")).await;
            assert!(row.is_some(), "order-{number} was not archived");
        }
    })
    .await;
}

/// One that cannot be added keeps no other out: they are tried one by one.
#[tokio::test]
async fn an_insert_that_fails_is_repeated_row_by_row() {
    in_time(async {
        let backend = Backend::redis().await;
        let shop = backend.shop().open().await;
        for _ in 0..3 {
            shop.archive
                .next(Verb::Insert, Fault::Fails(StoreErrorKind::Corrupt));
        }
        // Three that fail, alone or with others: each is repeated until it is in.
        everybody_is_served_by(&shop, GATHERED).await;
    })
    .await;
}

const GATHERED: usize = 20;

async fn gathered(backend: &Backend) -> (Shop, Vec<Answer>) {
    let shop = backend.shop().open().await;
    let held = [0, 1].map(|_| shop.archive.hold_before(Verb::Insert));
    let mut asked = Vec::new();
    for number in 0..GATHERED {
        asked.push(
            shop.post("/charges")
                .key(&format!("order-{number}"))
                .start(),
        );
        // The first two are held, each by itself.
        if let Some(held) = held.get(number) {
            held.reached().await;
        }
    }
    while shop.work.runs() < GATHERED {
        tokio::task::yield_now().await;
    }
    for held in &held {
        held.open();
    }
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.answer().await);
    }
    (shop, answers)
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
