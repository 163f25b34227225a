//! A store and its archive under a clock that the test moves, and what a
//! connection beside them sees.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, ManualClock, OwnerToken, ResourceId, Tombstone,
    archive::PostgresArchive,
    store::{Store as _, postgres::PostgresStore},
};
use jiff::Timestamp;
use sqlx::{
    AssertSqlSafe, Decode, Postgres, Row as _, Type, postgres::PgPoolOptions, query_scalar, raw_sql,
};

use super::Raw;
use crate::support::{
    attempt::{TTL, completion, fingerprint, key, leased, request},
    postgres::Schema,
};

pub(super) const DAY: Duration = Duration::from_hours(24);

/// The present is 2026-12-01T00:00:00Z until the test moves it.
pub(super) struct Place {
    pub(super) clock: ManualClock,
    pub(super) store: PostgresStore,
    /// Last, as its end is that of every connection.
    pub(super) schema: Schema,
}

impl Place {
    pub(super) async fn new() -> Self {
        let (schema, clock) = (Schema::new(), ManualClock::default());
        let store = open(&schema, &clock).await;
        Self {
            clock,
            store,
            schema,
        }
    }

    /// The store as another process sees it.
    pub(super) async fn other(&self) -> PostgresStore {
        open(&self.schema, &self.clock).await
    }

    /// The archive by way of a pool of the user's, whose sessions are as the
    /// user wants them.
    pub(super) async fn archive_over_sessions_with(
        &self,
        settings: &'static str,
    ) -> PostgresArchive {
        let pool = PgPoolOptions::new().max_connections(4);
        let pool = pool.after_connect(move |conn, _| {
            Box::pin(async move { raw_sql(settings).execute(conn).await.map(drop) })
        });
        let pool = pool.connect_lazy(&self.schema.url());
        let archive = PostgresArchive::builder()
            .pool(pool.expect("a URL"))
            .schema(self.schema.name())
            .clock(self.clock.clone())
            .migrate(false);
        archive.open().await.expect("an archive")
    }

    /// A connection beside the store, as an operator has one.
    pub(super) async fn beside(&self) -> Raw {
        Raw::connect(&self.schema.url()).await
    }

    /// A key that was claimed then and never completed.
    pub(super) async fn abandon(&self, name: &str, then: Timestamp) -> OwnerToken {
        let present = self.clock.now();
        self.clock.set(then);
        let request = request(key(name));
        let token = request.token;
        leased(self.store.claim(request).await.expect("an answer"));
        self.clock.set(present);
        token
    }

    /// A key that was claimed then, and completed in the same moment.
    pub(super) async fn complete(&self, name: &str, then: Timestamp, status: u16) {
        let token = self.abandon(name, then).await;
        let present = self.clock.now();
        self.clock.set(then);
        let done = self.store.complete(key(name), token, completion(status));
        let _owner = done.await.expect("an answer");
        self.clock.set(present);
    }
}

async fn open(schema: &Schema, clock: &ManualClock) -> PostgresStore {
    let builder = PostgresStore::builder().url(schema.url());
    let store = builder.clock(clock.clone()).max_connections(4).open().await;
    store.expect("a store")
}

impl Raw {
    pub(super) async fn try_script(&mut self, sql: &str) -> sqlx::Result<()> {
        let run = raw_sql(AssertSqlSafe(sql)).execute(&mut self.0);
        run.await.map(drop)
    }

    /// The first column of every row.
    pub(super) async fn all<T>(&mut self, sql: &str) -> Vec<T>
    where
        T: Send + Unpin + Type<Postgres> + for<'r> Decode<'r, Postgres>,
    {
        let asked = query_scalar(AssertSqlSafe(sql)).fetch_all(&mut self.0);
        asked.await.expect(sql)
    }

    pub(super) async fn count(&mut self, from: &str) -> i64 {
        self.get(&format!("SELECT count(*) FROM {from}")).await
    }

    /// The lines of a plan.
    pub(super) async fn plan_of(&mut self, execute: &str) -> String {
        let explain = format!("EXPLAIN (COSTS OFF) {execute}");
        let explained = raw_sql(AssertSqlSafe(explain)).fetch_all(&mut self.0).await;
        let lines = explained.expect(execute);
        let lines = lines.iter().map(|row| row.get::<String, _>(0));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The months that have a partition, such as `2026_12`.
    pub(super) async fn months(&mut self) -> Vec<String> {
        self.all(
            "SELECT substr(c.relname::text, 25) FROM pg_inherits i \
             JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = 'idempotency_key_archive'::regclass ORDER BY 1",
        )
        .await
    }
}

pub(super) fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

pub(super) fn tombstone(name: &str, status: u16, expired_at: Timestamp) -> Tombstone {
    Tombstone {
        key: key(name),
        fingerprint: fingerprint(1),
        status,
        resource_id: (status != 0).then(|| ResourceId::new("ch_1")).flatten(),
        created_at: expired_at - TTL,
        expired_at,
    }
}
