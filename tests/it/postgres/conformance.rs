//! The conformance suite on PostgreSQL: on connections of the store's own, on a
//! pool that is shared, behind a proxy that pools transactions, and where the
//! database's defaults are not the usual ones.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum_idempotency::{
    ManualClock,
    archive::{Archive, PostgresArchive},
    conformance::Fixture,
    conformance_tests,
    store::{Store, postgres::PostgresStore},
};
use sqlx::postgres::PgPoolOptions;

use crate::support::postgres::{Database, PgBouncer, Schema, server_url};

conformance_tests!(own_connections, Postgres::on_own_connections().await);
conformance_tests!(a_schema_of_its_own, Postgres::in_a_schema().await);
conformance_tests!(a_shared_pool, Postgres::on_a_shared_pool().await);
conformance_tests!(behind_pgbouncer, Postgres::behind_pgbouncer().await);
conformance_tests!(
    at_repeatable_read,
    Postgres::where_the_default_is("default_transaction_isolation", "repeatable read").await
);
conformance_tests!(
    at_serializable,
    Postgres::where_the_default_is("default_transaction_isolation", "serializable").await
);

/// How a handle reaches the database.
#[derive(Clone, Debug)]
enum Way {
    Own,
    Schema(String),
    SharedPool,
    Proxy,
}

struct Postgres {
    url: String,
    way: Way,
    clock: ManualClock,
    store: PostgresStore,
    archive: PostgresArchive,
    /// Dropped last.
    _place: Box<dyn Any + Send + Sync>,
}

impl Postgres {
    async fn on_own_connections() -> Self {
        let schema = Schema::new();
        Self::over(schema.url(), Way::Own, schema).await
    }

    async fn in_a_schema() -> Self {
        // The search path leads elsewhere.
        let place = Schema::new();
        let way = Way::Schema(place.name().to_owned());
        Self::over(server_url(), way, place).await
    }

    async fn on_a_shared_pool() -> Self {
        let schema = Schema::new();
        Self::over(schema.url(), Way::SharedPool, schema).await
    }

    async fn behind_pgbouncer() -> Self {
        let database = Database::new();
        let bouncer = PgBouncer::before(&database.url(), 4).await;
        Self::over(bouncer.url(), Way::Proxy, (bouncer, database)).await
    }

    async fn where_the_default_is(parameter: &str, value: &str) -> Self {
        let database = Database::new()
            .with(parameter, value)
            .with("timezone", "Pacific/Apia");
        Self::over(database.url(), Way::SharedPool, database).await
    }

    async fn over(url: String, way: Way, place: impl Any + Send + Sync) -> Self {
        let clock = ManualClock::default();
        let store = open(&url, &way, &clock).await;
        Self {
            archive: store.archive(),
            store,
            url,
            way,
            clock,
            _place: Box::new(place),
        }
    }
}

async fn open(url: &str, way: &Way, clock: &ManualClock) -> PostgresStore {
    let builder = PostgresStore::builder().clock(clock.clone());
    let builder = match way {
        Way::Own => builder.url(url),
        Way::Schema(name) => builder.url(url).schema(name),
        Way::SharedPool => {
            let pool = PgPoolOptions::new()
                .max_connections(6)
                .after_connect(|connection, _| {
                    Box::pin(async move {
                        let far = "SET TIME ZONE 'Pacific/Apia'";
                        sqlx::query(far).execute(connection).await.map(drop)
                    })
                })
                .connect(url);
            builder.pool(pool.await.expect("a pool"))
        }
        Way::Proxy => builder.url(url).named_statements(false),
    };
    builder.open().await.expect("a store")
}

#[async_trait]
impl Fixture for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.url, &self.way, &self.clock).await)
    }

    fn archive(&self) -> Option<Arc<dyn Archive>> {
        Some(Arc::new(self.archive.clone()))
    }

    async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
        Some(Arc::new(self.store.archive_with_retention(retention)))
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}
