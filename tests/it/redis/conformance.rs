//! The conformance suite on Redis: on one server, on a cluster, and beside
//! archives in memory, SQLite and PostgreSQL.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum_idempotency::{
    ManualClock,
    archive::{Archive, MemoryArchive},
    conformance::{Fixture, run_all},
    conformance_tests,
    store::{Store, redis::RedisStore},
};

use crate::support::redis::{Server, prefix, server_url, shared_cluster_url};

conformance_tests!(one_server, Redis::over(server_url()).await);
conformance_tests!(a_cluster, Redis::over(shared_cluster_url().await).await);

/// Where it is installed.
#[tokio::test(flavor = "multi_thread")]
async fn valkey_conforms_too() {
    let Some(server) = Server::valkey().await else {
        println!("Valkey is not installed");
        return;
    };
    run_all(async || Redis::over(server.url()).await).await;
}

struct Redis {
    url: String,
    prefix: String,
    clock: ManualClock,
    store: RedisStore,
    archive: Arc<dyn Archive>,
    _held: Box<dyn Any + Send + Sync>,
}

impl Redis {
    async fn over(url: String) -> Self {
        let (clock, prefix) = (ManualClock::default(), prefix());
        Self {
            store: open(&url, &prefix, &clock).await,
            archive: Arc::new(MemoryArchive::new()),
            url,
            prefix,
            clock,
            _held: Box::new(()),
        }
    }
}

async fn open(url: &str, prefix: &str, clock: &ManualClock) -> RedisStore {
    let builder = RedisStore::builder().url(url).prefix(prefix);
    let store = builder.clock(clock.clone()).open().await;
    store.expect("the server is there")
}

#[async_trait]
impl Fixture for Redis {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        Arc::new(open(&self.url, &self.prefix, &self.clock).await)
    }

    fn archive(&self) -> Option<Arc<dyn Archive>> {
        Some(Arc::clone(&self.archive))
    }

    async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
        Some(Arc::new(MemoryArchive::new().with_retention(retention)))
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}
