//! Past its time limits a call is unavailable, and nothing hangs.

use std::time::Duration;

use axum_idempotency::store::{
    Fenced, Renewal, Renewed, Store as _, StoreError, StoreErrorKind, postgres::PostgresStore,
};
use futures_util::future::join_all;
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::time::Instant;

use super::{Fixture, LEASE, Raw, claim, completion, in_time, key, leased, promptly, request};
use crate::support::postgres::{Cluster, Schema};

const ACQUIRE: Duration = Duration::from_millis(600);
const STATEMENT: Duration = Duration::from_millis(800);

/// What a slow machine may add.
const A_LITTLE: Duration = Duration::from_millis(900);

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.expect_err("nobody is there to answer");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
}

/// The first bar of the record by name: `renew` of one.
async fn renew(store: &PostgresStore) -> Result<Vec<Renewed>, StoreError> {
    let renewal = Renewal {
        key: key("held"),
        token: axum_idempotency::OwnerToken::random(),
        lease: LEASE,
        confirmed: false,
    };
    store.renew(&[renewal]).await
}

/// Many calls of every kind at once, none of which can be answered.
async fn all_are_unavailable(store: &PostgresStore, limit: Duration) {
    let begun = Instant::now();
    let token = axum_idempotency::OwnerToken::random();
    let claims = join_all((0..900).map(|n| async move {
        assert_unavailable(store.claim(request(key(n))).await);
    }));
    let completions = join_all((0..900).map(|n| async move {
        assert_unavailable(store.complete(key(n), token, completion(201)).await);
    }));
    let releases = join_all((0..900).map(|n| async move {
        assert_unavailable(store.release(key(n), token).await);
    }));
    let reads = join_all((0..20).map(|n| async move {
        assert_unavailable(store.get(key(n)).await);
    }));
    let renewals = async { assert_unavailable(renew(store).await) };
    tokio::join!(claims, completions, releases, reads, renewals);
    let took = begun.elapsed();
    assert!(
        took <= limit + A_LITTLE,
        "{took:?}, where {limit:?} are allowed"
    );
}

#[tokio::test]
async fn a_server_that_stops_answering_fails_every_call_in_time() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let store = PostgresStore::builder()
            .url(cluster.url())
            .acquire_timeout(ACQUIRE)
            .statement_timeout(STATEMENT);
        let store = store.open().await.expect("a store");
        let token = claim(&store, request(key("before"))).await;
        cluster.pause().await;
        all_are_unavailable(&store, ACQUIRE + STATEMENT).await;
        // Also where no connection is left that was there before.
        all_are_unavailable(&store, ACQUIRE + STATEMENT).await;
        cluster.resume();
        let done = store.complete(key("before"), token, completion(201)).await;
        assert_eq!(done.expect("an answer"), Fenced::Owner);
        claim(&store, request(key("after"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_table_that_is_locked_fails_every_call_in_time() {
    in_time(async {
        let fixture = Fixture::with(|builder| {
            builder
                .acquire_timeout(ACQUIRE)
                .statement_timeout(STATEMENT)
        })
        .await;
        let token = fixture.claim(key("before")).await;
        let mut raw = fixture.raw().await;
        raw.run("BEGIN").await;
        raw.run("LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE")
            .await;
        all_are_unavailable(&fixture.store, ACQUIRE + STATEMENT).await;
        raw.run("ROLLBACK").await;
        let done = fixture
            .store
            .complete(key("before"), token, completion(201));
        assert_eq!(done.await.expect("an answer"), Fenced::Owner);
        claim(&fixture.store, request(key("after"))).await;
    })
    .await;
}

async fn shared(schema: &Schema, acquire: Duration) -> (PgPool, PostgresStore) {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(acquire)
        .connect(&schema.url())
        .await
        .expect("a pool");
    let store = PostgresStore::builder()
        .pool(pool.clone())
        .statement_timeout(STATEMENT);
    (pool, store.open().await.expect("a store"))
}

#[tokio::test]
async fn a_shared_pool_that_has_no_connection_left_fails_every_call_in_time() {
    in_time(async {
        let schema = Schema::new();
        let (pool, store) = shared(&schema, ACQUIRE).await;
        let taken = pool.acquire().await.expect("the only connection");
        all_are_unavailable(&store, ACQUIRE + STATEMENT).await;
        drop(taken);
        claim(&store, request(key("after"))).await;
    })
    .await;
}

/// Longer than the store itself would.
#[tokio::test]
async fn a_connection_of_a_shared_pool_is_waited_for_as_long_as_the_pool_says() {
    in_time(async {
        let schema = Schema::new();
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(20))
            .connect(&schema.url())
            .await
            .expect("a pool");
        let store = PostgresStore::builder()
            .pool(pool.clone())
            .acquire_timeout(Duration::from_micros(1))
            .statement_timeout(STATEMENT);
        let store = store.open().await;
        let Ok(store) = store else {
            panic!("{store:?}: the pool's own limit counts");
        };
        let taken = pool.acquire().await.expect("the only connection");
        let claims = [1, 2].map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(request(key(n))).await })
        });
        let longer = tokio::time::timeout(STATEMENT + A_LITTLE * 2, std::future::pending::<()>());
        longer.await.expect_err("it waits");
        drop(taken);
        for claim in claims {
            leased(claim.await.expect("no panic").expect("an answer"));
        }
    })
    .await;
}

#[tokio::test]
async fn one_connection_is_enough_for_everything_at_once() {
    in_time(async {
        let fixture = Fixture::with(|builder| builder.max_connections(1)).await;
        everything_at_once(&fixture.store).await;
        let schema = Schema::new();
        let (pool, store) = shared(&schema, Duration::from_secs(5)).await;
        everything_at_once(&store).await;
        let raw = pool.acquire();
        promptly("the user's own work", raw)
            .await
            .expect("a connection");
    })
    .await;
}

async fn everything_at_once(store: &PostgresStore) {
    for round in 0..5 {
        let attempts = join_all((0..100).map(|n| async move {
            let request = request(key(round * 1_000 + n));
            let (key, token) = (request.key, request.token);
            leased(store.claim(request).await.expect("an answer"));
            let renewal = Renewal {
                key,
                token,
                lease: LEASE,
                confirmed: true,
            };
            let renewed = store.renew(&[renewal]).await.expect("an answer");
            assert!(matches!(renewed[..], [Renewed::Until(_)]));
            store.get(key).await.expect("an answer").expect("a record");
            let ended = if n % 2 == 0 {
                store.complete(key, token, completion(201)).await
            } else {
                store.release(key, token).await
            };
            assert_eq!(ended.expect("an answer"), Fenced::Owner);
        }));
        let sweep = async { store.sweep(None, 10).await.expect("an answer") };
        let both = async { tokio::join!(attempts, sweep) };
        promptly("a lane", both).await;
    }
}

#[tokio::test]
async fn an_idle_store_keeps_no_transaction_open() {
    in_time(async {
        let fixture = Fixture::new().await;
        everything_at_once(&fixture.store).await;
        let mut raw = Raw::connect(&fixture.schema.url()).await;
        raw.until(
            "SELECT count(*) = 0 FROM pg_stat_activity \
             WHERE application_name = current_setting('application_name') \
               AND pid <> pg_backend_pid() AND state <> 'idle'",
        )
        .await;
    })
    .await;
}
