//! What is special to the PostgreSQL store and archive.

use std::{future::Future, time::Duration};

use axum_idempotency::{
    OwnerToken, ScopedKey,
    claim::ClaimRequest,
    store::{
        Store as _,
        postgres::{PostgresStore, PostgresStoreBuilder},
    },
};
use futures_util::future::join_all;
use sqlx::{
    AssertSqlSafe, Connection as _, Decode, PgConnection, Postgres, Type, query, query_scalar,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    PATIENCE,
    attempt::{LEASE, TTL, completion, fingerprint, key, leased, request, response},
    in_time,
    postgres::Schema,
};

mod archive;
mod batches;
mod commits;
#[cfg(feature = "conformance")]
mod conformance;
mod indeterminate;
mod inspect;
mod locks;
mod migrations;
#[cfg(feature = "conformance")]
mod pairs;
mod partitions;
mod place;
mod plans;
mod retirement;
mod runbook;
mod sessions;
mod setup;
mod sweep;
mod timeouts;

/// A store in a schema of its own, on the server's clock.
struct Fixture {
    store: PostgresStore,
    /// Last, as its end is that of every connection.
    schema: Schema,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(change: impl FnOnce(PostgresStoreBuilder) -> PostgresStoreBuilder) -> Self {
        let schema = Schema::new();
        let store = change(PostgresStore::builder().url(schema.url()));
        Self {
            store: store.open().await.expect("a store"),
            schema,
        }
    }

    /// Another handle, as another process would have it.
    async fn other(&self) -> PostgresStore {
        let store = PostgresStore::open(&self.schema.url()).await;
        store.expect("a store")
    }

    /// A connection beside the store.
    async fn raw(&self) -> Raw {
        Raw::connect(&self.schema.url()).await
    }

    async fn claim(&self, key: ScopedKey) -> OwnerToken {
        claim(&self.store, request(key)).await
    }

    /// So many claims, with their tokens.
    async fn claims(&self, count: usize) -> Vec<(ScopedKey, OwnerToken)> {
        let claims = (0..count).map(|n| async move {
            let key = key(n);
            (key, self.claim(key).await)
        });
        join_all(claims).await
    }
}

async fn claim(store: &PostgresStore, request: ClaimRequest) -> OwnerToken {
    let token = request.token;
    leased(store.claim(request).await.expect("an answer"));
    token
}

/// A connection of the test's own.
struct Raw(PgConnection);

impl Raw {
    async fn connect(url: &str) -> Self {
        Self(PgConnection::connect(url).await.expect("a connection"))
    }

    async fn run(&mut self, sql: &str) -> u64 {
        let done = query(AssertSqlSafe(sql)).execute(&mut self.0).await;
        done.expect(sql).rows_affected()
    }

    /// Several statements, without parameters.
    async fn script(&mut self, sql: &str) {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.0).await;
        done.expect(sql);
    }

    async fn get<T>(&mut self, sql: &str) -> T
    where
        T: Send + Unpin + Type<Postgres> + for<'r> Decode<'r, Postgres>,
    {
        let value = query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut self.0)
            .await;
        value.expect(sql)
    }

    /// Asks again and again, until the answer is true.
    async fn until(&mut self, sql: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.get::<bool>(sql).await {
            assert!(Instant::now() < deadline, "still not so: {sql}");
            sleep(Duration::from_millis(2)).await;
            // Else a transaction sees others as they were when it first looked.
            self.run("SELECT pg_stat_clear_snapshot()").await;
        }
    }

    /// Until so many others of this schema wait for a lock.
    async fn until_waiting(&mut self, count: usize) {
        self.until(&format!(
            "SELECT count(*) >= {count} FROM pg_stat_activity \
             WHERE application_name = current_setting('application_name') \
               AND wait_event_type = 'Lock'"
        ))
        .await;
    }
}

/// What nobody's lock may delay. Far below the patience of a store.
async fn promptly<T>(what: &str, calls: impl Future<Output = T>) -> T {
    let answers = timeout(Duration::from_secs(2), calls).await;
    answers.unwrap_or_else(|_| panic!("delayed: {what}"))
}
