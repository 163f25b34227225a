//! The conformance suite on a store and an archive that are in two databases, of
//! which at least one is in PostgreSQL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum_idempotency::{
    ManualClock,
    archive::{Archive, PostgresArchive, SqliteArchive},
    conformance::Fixture,
    conformance_tests,
    store::{Store, postgres::PostgresStore, sqlite::SqliteStore},
};
use tempfile::TempDir;

use crate::support::postgres::Schema;

conformance_tests!(in_two_databases, Pair::in_two_databases().await);
conformance_tests!(out_of_sqlite, Pair::out_of_sqlite().await);
conformance_tests!(into_sqlite, Pair::into_sqlite().await);

/// A store and an archive, each with its place.
struct Pair {
    clock: ManualClock,
    store: Arc<dyn Store>,
    archive: Kept,
    of_store: Place,
    _of_archive: Place,
}

enum Place {
    Schema(Schema),
    Dir(TempDir),
}

enum Kept {
    Postgres(PostgresArchive),
    Sqlite(SqliteArchive),
}

impl Pair {
    async fn in_two_databases() -> Self {
        let (schema, clock) = (Schema::new(), ManualClock::default());
        let (archive, of_archive) = postgres_archive(&clock).await;
        Self {
            store: Arc::new(postgres(&schema, &clock).await),
            clock,
            archive,
            of_store: Place::Schema(schema),
            _of_archive: of_archive,
        }
    }

    async fn out_of_sqlite() -> Self {
        let dir = TempDir::new().expect("a directory");
        let clock = ManualClock::default();
        let (archive, of_archive) = postgres_archive(&clock).await;
        Self {
            store: Arc::new(sqlite(&dir, &clock).await),
            clock,
            archive,
            of_store: Place::Dir(dir),
            _of_archive: of_archive,
        }
    }

    async fn into_sqlite() -> Self {
        let (schema, clock) = (Schema::new(), ManualClock::default());
        let dir = TempDir::new().expect("a directory");
        let archive = SqliteArchive::open(&url(&dir)).await;
        Self {
            store: Arc::new(postgres(&schema, &clock).await),
            clock,
            archive: Kept::Sqlite(archive.expect("an archive")),
            of_store: Place::Schema(schema),
            _of_archive: Place::Dir(dir),
        }
    }
}

async fn postgres(schema: &Schema, clock: &ManualClock) -> PostgresStore {
    let builder = PostgresStore::builder()
        .url(schema.url())
        .clock(clock.clone());
    builder.open().await.expect("a store")
}

async fn postgres_archive(clock: &ManualClock) -> (Kept, Place) {
    let schema = Schema::new();
    let builder = PostgresArchive::builder()
        .url(schema.url())
        .clock(clock.clone());
    let archive = builder.open().await.expect("an archive");
    (Kept::Postgres(archive), Place::Schema(schema))
}

async fn sqlite(dir: &TempDir, clock: &ManualClock) -> SqliteStore {
    let builder = SqliteStore::builder().url(url(dir)).clock(clock.clone());
    builder.open().await.expect("a store")
}

fn url(dir: &TempDir) -> String {
    format!("sqlite:{}", dir.path().join("a.db").display())
}

#[async_trait]
impl Fixture for Pair {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn elsewhere(&self) -> Arc<dyn Store> {
        match &self.of_store {
            Place::Schema(schema) => Arc::new(postgres(schema, &self.clock).await),
            Place::Dir(dir) => Arc::new(sqlite(dir, &self.clock).await),
        }
    }

    fn archive(&self) -> Option<Arc<dyn Archive>> {
        Some(match &self.archive {
            Kept::Postgres(archive) => Arc::new(archive.clone()),
            Kept::Sqlite(archive) => Arc::new(archive.clone()),
        })
    }

    async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
        Some(match &self.archive {
            Kept::Postgres(archive) => Arc::new(archive.clone().with_retention(retention)),
            Kept::Sqlite(archive) => Arc::new(archive.clone().with_retention(retention)),
        })
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}
