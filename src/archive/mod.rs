//! Where expired records go: years of tombstones without a payload, to answer
//! a late retry and the auditor.
//!
//! # The contract
//!
//! 1. A row is a [`Tombstone`], named by key and expiry. There is no column
//!    that could hold a request or a response.
//! 2. **Insert is idempotent.** A row that is there already stays, except that
//!    an archived status 0 (no outcome) takes a newer outcome.
//! 3. **Lookup** reads the primary, in a snapshot begun after the call. Of
//!    several rows of a key it prefers one with an outcome, then the latest.
//! 4. **Retention.** Rows are kept for the archive's retention, by default for
//!    ever. One that is divided into months may drop a month at once, when all
//!    its rows are past the retention, so that a row stays for up to 31 days
//!    longer.
//! 5. Every method is cancel-safe, and clones share state.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    inspect::InspectArchive,
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
    store::{StoreError, StoreIdentity},
};

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use self::memory::MemoryArchive;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresArchive;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteArchive;
#[cfg(feature = "postgres")]
pub use crate::partition::Partition;

/// Holds tombstones. See the [module](self) for the contract.
#[async_trait]
pub trait Archive: fmt::Debug + Send + Sync + 'static {
    /// The store whose database this archive lives in, where there is one:
    /// a sweep between the two is then a single transaction.
    fn within(&self) -> Option<StoreIdentity>;

    /// How long rows are kept after they expired; `None` for ever. A key that
    /// is provably older can no longer be judged.
    fn retention(&self) -> Option<Duration>;

    /// The row that answers for `key`, among those that expired at or after
    /// `not_before` (a key's own timestamp, which lets old partitions be left
    /// out).
    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError>;

    /// Adds rows, all or none.
    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError>;

    /// Gives the latest row of `key` that has no outcome the one that was
    /// learned later. False when there is no such row.
    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError>;

    /// Deletes up to `limit` rows that are past the retention at `now`, oldest
    /// first; or whole months of them, until `limit` rows or more are gone. How
    /// many those were, which for a large month may be an estimate: zero when
    /// nothing is left, and always without a retention.
    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Makes room for rows that expired, or will expire, from `from` through
    /// `until`. A [`Sweeper`](crate::Sweeper) calls it at its start and once a
    /// day. Default: nothing, for an archive that has room for any.
    async fn prepare(&self, from: Timestamp, until: Timestamp) -> Result<(), StoreError> {
        let _room_for_any = (from, until);
        Ok(())
    }

    /// What the archive can tell an operator. Default: nothing.
    fn inspect(&self) -> Option<&dyn InspectArchive> {
        None
    }
}
