//! Calls whose answer is lost, and servers that go and come back.

use std::{future::Future, time::Duration};

use axum_idempotency::{
    OwnerToken, ScopedKey,
    store::{
        Fenced, Renewal, Renewed, Store as _, StoreErrorKind,
        postgres::{PostgresStore, PostgresStoreBuilder},
    },
};
use sqlx::PgPool;
use tokio::time::Instant;

use super::{Fixture, LEASE, Raw, claim, completion, in_time, key, leased, promptly, request};
use crate::support::postgres::{Cluster, Proxy, Schema};

/// Which answer is lost.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// That to the statement, on a connection of the store's own.
    Statement,
    /// That to the end of its transaction, on a pool of the user's.
    Commit,
}

/// A store by way of a proxy, which has one connection, and a witness who looks
/// at the server itself.
struct Scene {
    cut: Cut,
    store: PostgresStore,
    proxy: Proxy,
    witness: Raw,
    _schema: Schema,
}

impl Scene {
    async fn set(cut: Cut) -> Self {
        Self::with(cut, |builder| builder).await
    }

    async fn with(
        cut: Cut,
        change: impl FnOnce(PostgresStoreBuilder) -> PostgresStoreBuilder,
    ) -> Self {
        let schema = Schema::new();
        let proxy = Proxy::before(&schema.url());
        let builder = match cut {
            Cut::Statement => PostgresStore::builder().url(proxy.url()),
            Cut::Commit => {
                let pool = PgPool::connect(&proxy.url()).await.expect("a pool");
                PostgresStore::builder().pool(pool)
            }
        };
        Self {
            cut,
            store: change(builder).open().await.expect("a store"),
            proxy,
            witness: Raw::connect(&schema.url()).await,
            _schema: schema,
        }
    }

    /// From here on the next answer about the key is lost.
    fn lose_the_answer_about(&self, key: ScopedKey) {
        match self.cut {
            Cut::Statement => self.proxy.cut_answer_to(key.to_string()),
            Cut::Commit => self.proxy.cut_answer_to("COMMIT"),
        }
    }

    async fn claim(&self, name: &str) -> OwnerToken {
        claim(&self.store, request(key(name))).await
    }

    async fn records(&mut self) -> i64 {
        self.witness
            .get("SELECT count(*) FROM idempotency_keys")
            .await
    }
}

async fn on_both<F: Future<Output = ()>>(test: impl Fn(Cut) -> F) {
    for cut in [Cut::Statement, Cut::Commit] {
        in_time(test(cut)).await;
    }
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_claimed_once() {
    on_both(async |cut| {
        let mut scene = Scene::set(cut).await;
        for round in 1..4_u32 {
            let request = request(key(round));
            let token = request.token;
            scene.lose_the_answer_about(request.key);
            let claim = scene.store.claim(request).await.expect("it is repeated");
            assert_eq!(leased(claim).attempt, 1, "{cut:?}");
            let fired = usize::try_from(round).expect("few");
            scene.proxy.has_fired(fired).await;
            assert_eq!(scene.records().await, i64::from(round));
            let record = scene.store.get(key(round)).await.expect("an answer");
            assert_eq!(record.expect("a record").token, token);
        }
    })
    .await;
}

#[tokio::test]
async fn a_completion_whose_answer_is_lost_is_the_owners() {
    on_both(async |cut| {
        let scene = Scene::set(cut).await;
        let token = scene.claim("k").await;
        scene.lose_the_answer_about(key("k"));
        let done = scene.store.complete(key("k"), token, completion(201)).await;
        assert_eq!(done.expect("it is repeated"), Fenced::Owner, "{cut:?}");
        scene.proxy.has_fired(1).await;
    })
    .await;
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_is_repeated() {
    on_both(async |cut| {
        let scene = Scene::set(cut).await;
        let token = scene.claim("k").await;
        let renewal = Renewal {
            key: key("k"),
            token,
            lease: LEASE,
            confirmed: true,
        };
        scene.lose_the_answer_about(key("k"));
        let renewed = scene.store.renew(&[renewal]).await;
        let renewed = renewed.expect("it is repeated");
        assert!(matches!(renewed[..], [Renewed::Until(_)]), "{renewed:?}");
        scene.proxy.has_fired(1).await;
    })
    .await;
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_leaves_nothing() {
    on_both(async |cut| {
        let mut scene = Scene::set(cut).await;
        let token = scene.claim("k").await;
        scene.lose_the_answer_about(key("k"));
        let released = scene.store.release(key("k"), token).await;
        // The repetition finds nothing to release.
        let _either = released.expect("it is repeated");
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.records().await, 0);
        scene.claim("k").await;
    })
    .await;
}

/// Of several that ride together nobody is told something else.
#[tokio::test]
async fn a_batch_whose_answer_is_lost_is_claimed_once() {
    on_both(async |cut| {
        let mut scene = Scene::set(cut).await;
        scene.lose_the_answer_about(key(7));
        let claims = (0..40).map(|n| scene.store.claim(request(key(n))));
        for claim in futures_util::future::join_all(claims).await {
            assert_eq!(leased(claim.expect("it is repeated")).attempt, 1);
        }
        scene.proxy.has_fired(1).await;
        assert_eq!(scene.records().await, 40);
    })
    .await;
}

#[tokio::test]
async fn a_claim_of_unknown_result_is_released_by_its_token() {
    on_both(async |cut| {
        const LIMIT: Duration = Duration::from_millis(600);
        let limited =
            |builder: PostgresStoreBuilder| builder.acquire_timeout(LIMIT).statement_timeout(LIMIT);
        let mut scene = Scene::with(cut, limited).await;
        scene.claim("before").await;
        scene.proxy.refuse().await;
        let request = request(key("k"));
        let token = request.token;
        scene.lose_the_answer_about(key("k"));
        let begun = Instant::now();
        let lost = match cut {
            Cut::Statement => scene.store.claim(request).await,
            // The user's pool waits for longer than this test.
            Cut::Commit => {
                let claim = tokio::time::timeout(2 * LIMIT, scene.store.claim(request));
                let Ok(lost) = claim.await else {
                    scene.proxy.accept();
                    let released = scene.store.release(key("k"), token).await;
                    let _either = released.expect("an answer");
                    return;
                };
                lost
            }
        };
        let error = lost.expect_err("nobody is there");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(begun.elapsed() < 2 * LIMIT + Duration::from_secs(1));
        assert_eq!(scene.records().await, 2, "the server has done it");

        scene.proxy.accept();
        let released = scene.store.release(key("k"), token).await;
        assert_eq!(released.expect("an answer"), Fenced::Owner);
        assert_eq!(scene.records().await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_was_away_is_found_again() {
    in_time(async {
        let mut scene = Scene::set(Cut::Statement).await;
        let token = scene.claim("k").await;
        scene.proxy.refuse().await;
        scene.proxy.cut();
        let done = tokio::spawn({
            let store = scene.store.clone();
            async move { store.complete(key("k"), token, completion(201)).await }
        });
        scene.proxy.accept();
        let done = done.await.expect("no panic");
        assert_eq!(done.expect("within its patience"), Fenced::Owner);
    })
    .await;
}

/// Has the store open as many connections as it may, all idle afterwards.
async fn open_all_connections(cluster: &Cluster, store: &PostgresStore) {
    const CONNECTIONS: usize = PostgresStoreBuilder::DEFAULT_MAX_CONNECTIONS as usize;
    let mut raw = Raw::connect(&cluster.url()).await;
    raw.run("BEGIN").await;
    raw.run("LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE")
        .await;
    let reads: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.get(key(n)).await })
        })
        .collect();
    raw.until(&format!(
        "SELECT count(*) >= {CONNECTIONS} FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    ))
    .await;
    raw.run("ROLLBACK").await;
    for read in reads {
        read.await.expect("no panic").expect("an answer");
    }
}

#[tokio::test]
async fn after_a_restart_of_the_server_nobody_notices() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        for round in 0..3 {
            let store = PostgresStore::open(&cluster.url()).await.expect("a store");
            open_all_connections(&cluster, &store).await;
            let token = claim(&store, request(key(round))).await;
            cluster.kill().await;
            cluster.restart().await;
            match round {
                0 => {
                    let record = store.get(key(round)).await.expect("an answer");
                    assert_eq!(record.expect("a record").token, token);
                }
                1 => {
                    let done = store.complete(key(round), token, completion(201)).await;
                    assert_eq!(done.expect("an answer"), Fenced::Owner);
                }
                _ => {
                    store.now().await.expect("an answer");
                }
            }
            claim(&store, request(key(100 + round))).await;
        }
    })
    .await;
}

/// Where connections of a pool break while calls are under way, each finds
/// another.
#[tokio::test]
async fn connections_that_break_are_replaced_while_others_are_in_use() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        for round in 0..10 {
            let claims = (0..50).map(|n| fixture.store.claim(request(key(round * 100 + n))));
            let claims = futures_util::future::join_all(claims);
            let ended = raw.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = current_setting('application_name') \
                   AND pid <> pg_backend_pid()",
            );
            let (claims, _) = promptly("claims", async { tokio::join!(claims, ended) }).await;
            for claim in claims {
                assert_eq!(leased(claim.expect("it is repeated")).attempt, 1);
            }
        }
    })
    .await;
}
