//! The SQLite store: live records in one file beside the process, the embedded
//! default.
//!
//! 1. **What is answered is on the disk**: write-ahead log,
//!    `synchronous=FULL`. Claims and completions that arrive together share one
//!    transaction and so one sync; a lone one goes at once.
//! 2. **One connection writes**, in a task of the runtime that opened the
//!    store; others read beside it. When that runtime ends, so does the store.
//! 3. **Several processes** may use one file on a local disk; they take turns.
//!    A write that waits more than two seconds for another process is
//!    [`StoreErrorKind::Unavailable`]. Network file systems are not supported.
//! 4. **The clock** is that of the process. Processes that share a file share a
//!    machine, and so a clock.
//! 5. The schema is recorded in `_axum_idempotency_migrations`, so that a
//!    database may hold the user's own tables and their migrations too.
//!
//! ```
//! # async fn open() -> Result<(), axum_idempotency::store::StoreError> {
//! use axum_idempotency::store::sqlite::SqliteStore;
//!
//! let store = SqliteStore::open("sqlite::memory:").await?;
//! let archive = store.archive();
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(open()).unwrap();
//! ```
//!
//! With a clock that a test moves, and rows that leave the archive after seven
//! years:
//!
//! ```
//! # async fn open() -> Result<(), axum_idempotency::store::StoreError> {
//! use std::time::Duration;
//! use axum_idempotency::{ManualClock, store::sqlite::SqliteStore};
//!
//! let clock = ManualClock::default();
//! let store = SqliteStore::builder()
//!     .url("sqlite::memory:")
//!     .clock(clock.clone())
//!     .open()
//!     .await?;
//! let archive = store.archive_with_retention(7 * Duration::from_secs(366 * 86_400));
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(open()).unwrap();
//! ```

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;

use self::{
    claims::{Amend, Complete, Get, Release, Renew},
    database::ROWS_AT_ONCE,
    upkeep::{Expired, Remove, Sweep},
};
use super::{
    Fenced, Renewal, Renewed, Store, StoreError, StoreIdentity, TtlNotice, move_in_two_phases,
};
use crate::{
    archive::{Archive, SqliteArchive},
    claim::{Claim, ClaimRequest},
    clock::{Clock, SystemClock},
    inspect::InspectStore,
    record::{Completion, ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
};

mod claims;
mod database;
mod error;
mod inspect;
mod options;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod upkeep;
mod work;
mod writer;

pub use self::schema::migrator;
pub(crate) use self::{
    database::{Database, Settings},
    error::Failure,
    inspect::{Minutes, Rows, bytes_of},
    row::{tombstone, tombstone_of},
    upkeep::micros,
    writer::Operation,
};

#[cfg(doc)]
use super::StoreErrorKind;

/// Live records in a SQLite database. Clones are handles to one store.
///
/// The store closes when its last handle, and the last of its archives, is
/// dropped; [`Store::close`] does it in order.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    db: Arc<Database>,
}

impl SqliteStore {
    /// Opens `sqlite:FILE`, making the file if there is none, and runs the
    /// migrations; or `sqlite::memory:`, a database of this handle alone that
    /// ends with it.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Setup`] with the remedy, for a URL, a file, a
    /// directory or a schema that cannot be used.
    /// [`StoreErrorKind::Unavailable`] when another process holds the database
    /// for too long.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::builder().url(url).open().await
    }

    /// A store with other settings than those of [`SqliteStore::open`].
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder {
            settings: Settings {
                url: String::new(),
                clock: Arc::new(SystemClock),
                readers: SqliteStoreBuilder::DEFAULT_READERS,
                migrate: true,
            },
        }
    }

    /// Runs the migrations that are missing. Opening has done so already,
    /// unless the file was replaced since.
    ///
    /// # Errors
    ///
    /// As for [`SqliteStore::open`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.db.migrate().await
    }

    /// The archive in this database, which keeps its rows for ever: a sweep
    /// into it is a single transaction.
    pub fn archive(&self) -> SqliteArchive {
        SqliteArchive::within_store(Arc::clone(&self.db))
    }

    /// The archive in this database, whose rows may be pruned so long after
    /// they expired.
    pub fn archive_with_retention(&self, retention: Duration) -> SqliteArchive {
        self.archive().with_retention(retention)
    }
}

/// Builds a [`SqliteStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SqliteStoreBuilder {
    settings: Settings,
}

impl SqliteStoreBuilder {
    /// How many connections read beside the writing one.
    pub const DEFAULT_READERS: u32 = 4;

    /// The database: `sqlite:FILE` or `sqlite::memory:`. There is no default.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.settings.url = url.into();
        self
    }

    /// The store's clock. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// How many connections may read beside the writing one, each opened when
    /// it is needed. Default: 4. With 0, and in memory, reads wait in line
    /// with the writes.
    pub fn readers(mut self, connections: u32) -> Self {
        self.settings.readers = connections;
        self
    }

    /// Whether opening runs the migrations that are missing. Default: true.
    /// Otherwise opening fails when one is.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.settings.migrate = migrate;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As for [`SqliteStore::open`].
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        let db = Database::open(self.settings).await?;
        Ok(SqliteStore { db })
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn identity(&self) -> StoreIdentity {
        self.db.identity()
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        self.db.write(request).await
    }

    async fn complete(
        &self,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        let complete = Complete {
            key,
            token,
            completion,
        };
        self.db.write(complete).await
    }

    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError> {
        self.db.write(Release { key, token }).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        if renewals.is_empty() {
            return self.db.check_open(Renew::WHAT).map(|()| Vec::new());
        }
        self.db.write(Renew(renewals.to_vec())).await
    }

    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        self.db.read(Get(key)).await
    }

    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError> {
        self.db.write(Amend { key, completion }).await
    }

    /// Rows go in transactions of 1,000 or fewer, so that claims need not wait
    /// for a large `limit`.
    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError> {
        let within = archive.map(Archive::within);
        let into_archive = match within {
            None => false,
            Some(store) if store == Some(self.identity()) => true,
            Some(_) => return move_in_two_phases(self, archive, limit).await,
        };
        let sweep = |rows| Sweep { rows, into_archive };
        self.db.write_in_steps(limit, sweep).await
    }

    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError> {
        self.db.read(Expired(limit)).await
    }

    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError> {
        let mut removed = 0;
        for some in records.chunks(ROWS_AT_ONCE) {
            removed += self.db.write(Remove(some.to_vec())).await?;
        }
        Ok(removed)
    }

    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError> {
        self.db.write(notice).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.db.check_open("reading the clock")?;
        Ok(self.db.clock.now())
    }

    async fn close(&self) {
        self.db.close().await;
    }

    fn inspect(&self) -> Option<&dyn InspectStore> {
        Some(self)
    }
}
