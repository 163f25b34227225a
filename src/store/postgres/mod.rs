//! The PostgreSQL store: live records in one table, for production. PostgreSQL
//! 13 or later.
//!
//! 1. **Group commit.** Claims, completions, renewals and releases that arrive
//!    together ride in one statement of many rows: one round trip, one sync of
//!    the disk. A lone one goes at once.
//! 2. **A row that somebody's transaction holds locked delays no other key.**
//!    Rows are read first and locked with `SKIP LOCKED`. To a claim a locked row
//!    is in flight; completions and releases come back to it; its lease is
//!    renewed when it is free.
//! 3. **The clock is the server's**, `clock_timestamp()` as the row is written.
//! 4. **Connections of its own** ([`PostgresStore::open`]) cost one round trip a
//!    statement. On a pool of yours ([`PostgresStoreBuilder::pool`]), and behind
//!    a proxy, each statement is run in a transaction that brings its settings.
//! 5. **Behind a proxy that pools transactions**, such as PgBouncer: set
//!    [`named_statements(false)`](PostgresStoreBuilder::named_statements).
//!    Migrations are run under a transaction-level lock, and need no session.
//! 6. **TLS** takes a feature of sqlx: add `sqlx` to your `Cargo.toml` with
//!    `tls-rustls` or `tls-native-tls`.
//! 7. The schema is recorded in `_axum_idempotency_migrations`, beside your own
//!    tables and migrations, or in a schema of its own
//!    ([`PostgresStoreBuilder::schema`]).
//! 8. `synchronous_commit` has to be on (the default): what is answered is on the
//!    disk. With asynchronous replication a failover may lose the last moments,
//!    as it may lose the effects.
//!
//! ```no_run
//! # async fn open() -> Result<(), axum_idempotency::store::StoreError> {
//! use axum_idempotency::store::postgres::PostgresStore;
//!
//! let store = PostgresStore::open("postgres://shop:secret@localhost/shop").await?;
//! # Ok(()) }
//! ```
//!
//! In a schema of its own, behind a proxy:
//!
//! ```no_run
//! # async fn open() -> Result<(), axum_idempotency::store::StoreError> {
//! use axum_idempotency::store::postgres::PostgresStore;
//!
//! let store = PostgresStore::builder()
//!     .url("postgres://shop:secret@pgbouncer:6432/shop")
//!     .schema("idempotency")
//!     .named_statements(false)
//!     .open()
//!     .await?;
//! # Ok(()) }
//! ```

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::join_all;
use jiff::Timestamp;

use self::{
    lane::Lanes,
    outcomes::{Complete, Release},
    upkeep::{Amend, Expired, Get, Now, Remove, Sweep},
};
use super::{
    Fenced, Renewal, Renewed, Store, StoreError, StoreIdentity, TtlNotice, move_in_two_phases,
    renewed_each,
};
use crate::{
    archive::{Archive, PostgresArchive},
    claim::{Claim, ClaimRequest},
    inspect::InspectStore,
    record::{Completion, ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
};

mod batch;
mod builder;
mod claims;
mod database;
mod error;
mod inspect;
mod lane;
mod options;
mod outcomes;
mod partition;
mod partitions;
mod row;
mod schema;
mod sql;
mod time;
mod upkeep;
mod work;

pub use self::{
    builder::{PostgresArchiveBuilder, PostgresBuilder, PostgresStoreBuilder},
    schema::migrator,
};
pub(crate) use self::{
    database::{Database, Operation},
    error::Failure,
    inspect::{LONGEST_QUESTION, Minutes, Rows, read_whole_tables},
    partition::archive_of,
    partitions::{
        IntoArchive, list, measure, newest, prepare, prepare_ahead, retire, run_with_room,
    },
    row::{status_code, tombstone, tombstone_of},
    time::Time,
};

#[cfg(doc)]
use super::StoreErrorKind;

/// Live records in a PostgreSQL database. Clones are handles to one store.
///
/// The store closes when its last handle is dropped; [`Store::close`] does it in
/// order. It lives on the runtime that opened it.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    db: Arc<Database>,
    lanes: Arc<Lanes>,
}

impl PostgresStore {
    /// Connects to `postgres://USER:PASSWORD@HOST:PORT/DATABASE` with a pool of
    /// its own, and runs the migrations.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Setup`] with the remedy, for a URL, a user, a database,
    /// a permission or a schema that cannot be used.
    /// [`StoreErrorKind::Unavailable`] when the server cannot be reached.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::builder().url(url).open().await
    }

    /// A store with other settings than those of [`PostgresStore::open`].
    pub fn builder() -> PostgresStoreBuilder {
        PostgresBuilder::new()
    }

    /// Runs the migrations that are missing. Opening has done so already,
    /// unless it was told not to.
    ///
    /// # Errors
    ///
    /// As for [`PostgresStore::open`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.db.migrate().await
    }

    /// The archive in this database, which keeps its rows for ever: a sweep
    /// into it is a single transaction.
    pub fn archive(&self) -> PostgresArchive {
        PostgresArchive::within_store(Arc::clone(&self.db))
    }

    /// The archive in this database, which drops a month when all its rows
    /// expired so long ago.
    pub fn archive_with_retention(&self, retention: Duration) -> PostgresArchive {
        self.archive().with_retention(retention)
    }
}

impl PostgresBuilder<PostgresStore> {
    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As for [`PostgresStore::open`].
    pub async fn open(self) -> Result<PostgresStore, StoreError> {
        let db = Database::open(&self.settings).await?;
        let lanes = Arc::new(Lanes::spawn(&db));
        Ok(PostgresStore { db, lanes })
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn identity(&self) -> StoreIdentity {
        self.db.identity()
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        self.lanes.ask(request, self.db.patience()).await
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
        self.lanes.ask(complete, self.db.patience()).await
    }

    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError> {
        let release = Release { key, token };
        self.lanes.ask(release, self.db.patience()).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        self.db.check_open("renewing leases")?;
        let patience = self.db.patience();
        let ask = |renewal: &Renewal| self.lanes.ask(*renewal, patience);
        let answers = join_all(renewals.iter().map(ask)).await;
        renewed_each(answers)
    }

    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        self.db.run(&Get(key)).await
    }

    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError> {
        self.db.run(&Amend { key, completion }).await
    }

    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError> {
        let into_archive = match archive.map(Archive::within) {
            None => false,
            Some(store) if store == Some(self.identity()) => true,
            Some(_) => return move_in_two_phases(self, archive, limit).await,
        };
        let sweep = Sweep {
            rows: limit,
            into_archive,
        };
        run_with_room(&self.db, &sweep).await
    }

    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError> {
        self.db.run(&Expired(limit)).await
    }

    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError> {
        self.db.run(&Remove(records)).await
    }

    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError> {
        self.db.run(&notice).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.db.run(&Now).await
    }

    async fn close(&self) {
        self.db.close().await;
    }

    fn inspect(&self) -> Option<&dyn InspectStore> {
        Some(self)
    }
}
