//! The SQLite archive: in the store's own database, or in a file of its own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{SqliteConnection, query};

use super::Archive;
use crate::{
    clock::SystemClock,
    inspect::InspectArchive,
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
    store::{
        StoreError, StoreIdentity,
        sqlite::{Database, Failure, Operation, Settings, SqliteStoreBuilder, micros, tombstone},
    },
};

mod inspect;

/// Tombstones in a SQLite database. Clones are handles to one archive.
///
/// That of [`SqliteStore::archive`](crate::store::sqlite::SqliteStore::archive)
/// lives in the store's database and is closed with it.
#[derive(Clone, Debug)]
pub struct SqliteArchive {
    db: Arc<Database>,
    store: Option<StoreIdentity>,
    retention: Option<Duration>,
}

impl SqliteArchive {
    /// Opens an archive in a file of its own, `sqlite:FILE`, making the file if
    /// there is none, and runs the migrations. It keeps its rows for ever.
    ///
    /// # Errors
    ///
    /// As for [`SqliteStore::open`](crate::store::sqlite::SqliteStore::open).
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, true).await
    }

    /// The same, or without migrations an error where one is missing.
    pub(crate) async fn open_with(url: &str, migrate: bool) -> Result<Self, StoreError> {
        let db = Database::open(Settings {
            url: url.to_owned(),
            clock: Arc::new(SystemClock),
            readers: SqliteStoreBuilder::DEFAULT_READERS,
            migrate,
        });
        Ok(Self {
            db: db.await?,
            store: None,
            retention: None,
        })
    }

    /// Lets rows be pruned so long after they expired. Default: never.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Finishes what was accepted and closes the database, together with the
    /// store when it lives there. Later calls are
    /// [unavailable](crate::store::StoreErrorKind::Unavailable).
    pub async fn close(&self) {
        self.db.close().await;
    }

    pub(crate) fn within_store(db: Arc<Database>) -> Self {
        Self {
            store: Some(db.identity()),
            db,
            retention: None,
        }
    }
}

#[async_trait]
impl Archive for SqliteArchive {
    fn within(&self) -> Option<StoreIdentity> {
        self.store
    }

    fn retention(&self) -> Option<Duration> {
        self.retention
    }

    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        self.db.read(Lookup { key, not_before }).await
    }

    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return self.db.check_open(Insert::WHAT);
        }
        self.db.write(Insert(rows.to_vec())).await
    }

    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        let amend = Amend {
            key,
            status,
            resource_id,
        };
        self.db.write(amend).await
    }

    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let Some(retention) = self.retention else {
            return self.db.check_open(Prune::WHAT).map(|()| 0);
        };
        let expired_by = now.as_microsecond().saturating_sub(micros(retention));
        let prune = |rows| Prune { expired_by, rows };
        self.db.write_in_steps(limit, prune).await
    }

    fn inspect(&self) -> Option<&dyn InspectArchive> {
        Some(self)
    }
}

#[derive(Debug)]
struct Lookup {
    key: ScopedKey,
    not_before: Option<Timestamp>,
}

impl Operation for Lookup {
    const WHAT: &'static str = "looking up the archive";
    type Answer = Option<Tombstone>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Option<Tombstone>, Failure> {
        let not_before = self.not_before.map_or(i64::MIN, Timestamp::as_microsecond);
        let found = query(include_str!("../../store/sqlite/sql/archive_lookup.sql"))
            .bind(self.key.to_string())
            .bind(not_before)
            .fetch_optional(conn)
            .await?;
        Ok(found.map(|row| tombstone(self.key, &row)).transpose()?)
    }
}

#[derive(Debug)]
struct Insert(Vec<Tombstone>);

impl Operation for Insert {
    const WHAT: &'static str = "archiving";
    type Answer = ();

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<(), Failure> {
        for row in &self.0 {
            query(include_str!("../../store/sqlite/sql/archive_insert.sql"))
                .bind(row.key.to_string())
                .bind(row.fingerprint.as_bytes())
                .bind(row.status)
                .bind(row.resource_id.as_ref().map(ResourceId::as_str))
                .bind(row.created_at.as_microsecond())
                .bind(row.expired_at.as_microsecond())
                .execute(&mut *conn)
                .await?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Amend {
    key: ScopedKey,
    status: u16,
    resource_id: Option<ResourceId>,
}

impl Operation for Amend {
    const WHAT: &'static str = "amending an archived row";
    type Answer = bool;

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<bool, Failure> {
        let done = query(include_str!("../../store/sqlite/sql/archive_amend.sql"))
            .bind(self.key.to_string())
            .bind(self.status)
            .bind(self.resource_id.as_ref().map(ResourceId::as_str))
            .execute(conn)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

#[derive(Debug)]
struct Prune {
    /// In microseconds.
    expired_by: i64,
    rows: u32,
}

impl Operation for Prune {
    const WHAT: &'static str = "pruning the archive";
    type Answer = u64;

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<u64, Failure> {
        let done = query(include_str!("../../store/sqlite/sql/archive_prune.sql"))
            .bind(self.expired_by)
            .bind(self.rows)
            .execute(conn)
            .await?;
        Ok(done.rows_affected())
    }
}
