//! The conformance suite on SQLite: on file and in memory, with the archive in
//! the same database and in another.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum_idempotency::{
    ManualClock,
    archive::{Archive, SqliteArchive},
    conformance::Fixture,
    conformance_tests,
    store::{Store, sqlite::SqliteStore},
};
use tempfile::TempDir;

conformance_tests!(one_file, Sqlite::one_file().await);
conformance_tests!(two_files, Sqlite::two_files().await);
conformance_tests!(in_memory, Sqlite::in_memory().await);

struct Sqlite {
    dir: TempDir,
    url: String,
    clock: ManualClock,
    store: SqliteStore,
    archive: SqliteArchive,
}

impl Sqlite {
    async fn one_file() -> Self {
        let dir = TempDir::new().expect("a directory");
        let url = super::url(&dir);
        let (clock, store) = Self::open(&url).await;
        let archive = store.archive();
        Self {
            dir,
            url,
            clock,
            store,
            archive,
        }
    }

    async fn two_files() -> Self {
        let one = Self::one_file().await;
        let url = format!("sqlite:{}", one.dir.path().join("archive.db").display());
        let archive = SqliteArchive::open(&url).await.expect("an archive");
        Self { archive, ..one }
    }

    /// Named, so that it can be opened twice.
    async fn in_memory() -> Self {
        let dir = TempDir::new().expect("a directory");
        let name = dir.path().file_name().expect("a name").display();
        let url = format!("sqlite:file:{name}?mode=memory&cache=shared");
        let (clock, store) = Self::open(&url).await;
        let archive = store.archive();
        Self {
            dir,
            url,
            clock,
            store,
            archive,
        }
    }

    async fn open(url: &str) -> (ManualClock, SqliteStore) {
        let clock = ManualClock::default();
        let store = super::open(url, &clock).await;
        (clock, store)
    }
}

#[async_trait]
impl Fixture for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        Arc::new(super::open(&self.url, &self.clock).await)
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
