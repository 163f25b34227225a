//! The conformance suite on PostgreSQL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum_idempotency::{
    ManualClock,
    archive::{Archive, MemoryArchive},
    conformance::Fixture,
    conformance_tests,
    store::{Store, postgres::PostgresStore},
};

conformance_tests!(apart, Postgres::new().await);

struct Postgres {
    schema: String,
    clock: ManualClock,
    store: PostgresStore,
    archive: MemoryArchive,
}

impl Postgres {
    async fn new() -> Self {
        let schema = format!("s{}", uuid::Uuid::new_v4().simple());
        let clock = ManualClock::default();
        let store = open(&schema, &clock).await;
        Self {
            schema,
            clock,
            store,
            archive: MemoryArchive::new(),
        }
    }
}

async fn open(schema: &str, clock: &ManualClock) -> PostgresStore {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL");
    let store = PostgresStore::builder()
        .url(url)
        .schema(schema)
        .clock(clock.clone())
        .open()
        .await;
    store.expect("a store")
}

#[async_trait]
impl Fixture for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.schema, &self.clock).await)
    }

    fn archive(&self) -> Option<Arc<dyn Archive>> {
        Some(Arc::new(self.archive.clone()))
    }

    async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
        Some(Arc::new(MemoryArchive::new().with_retention(retention)))
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}
