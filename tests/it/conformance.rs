//! The conformance suite, mounted for every store of this crate.

use std::{future::ready, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum_idempotency::{
    ManualClock,
    archive::{Archive, MemoryArchive},
    conformance::{Fixture, run_all},
    conformance_tests,
    store::{MemoryStore, Store},
};

conformance_tests!(memory, Memory::new());
conformance_tests!(memory_without_archive, WithoutArchive(Memory::new()));
conformance_tests!(memory_in_one_arc, ready(InOneArc::new()).await);

/// A memory store and a memory archive, whose handles are clones.
struct Memory {
    clock: ManualClock,
    store: MemoryStore,
    archive: MemoryArchive,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            archive: MemoryArchive::new(),
            clock,
        }
    }
}

#[async_trait]
impl Fixture for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        self.store()
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

/// The same without an archive.
struct WithoutArchive(Memory);

#[async_trait]
impl Fixture for WithoutArchive {
    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        self.0.elsewhere().await
    }

    fn archive(&self) -> Option<Arc<dyn Archive>> {
        None
    }

    async fn archive_keeping(&self, _: Duration) -> Option<Arc<dyn Archive>> {
        None
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }
}

/// One `Arc` for all: what an application hands around.
struct InOneArc {
    memory: Memory,
    store: Arc<dyn Store>,
    archive: Arc<dyn Archive>,
}

impl InOneArc {
    fn new() -> Self {
        let memory = Memory::new();
        Self {
            store: Arc::new(memory.store.clone()),
            archive: Arc::new(memory.archive.clone()),
            memory,
        }
    }
}

#[async_trait]
impl Fixture for InOneArc {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn archive(&self) -> Option<Arc<dyn Archive>> {
        Some(self.archive.clone())
    }

    async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
        self.memory.archive_keeping(retention).await
    }

    async fn advance(&self, by: Duration) {
        self.memory.advance(by).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_in_one_call() {
    run_all(async || Memory::new()).await;
}
