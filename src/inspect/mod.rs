//! What an operator asks: what happened to this key, what was in flight at
//! 02:14, and how full is it? Stores and archives that can tell implement
//! [`InspectStore`] and [`InspectArchive`]; [`Inspector`] asks both and joins
//! the answers.
//!
//! Nothing in here holds a body, a header, a client's key or a principal: rows
//! are named by their [`ScopedKey`].
//!
//! These questions are rare and may read a whole table. They take no lock that
//! a request waits for, and a store bounds the time of each.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
    store::StoreError,
};

mod census;
mod gather;
mod inspector;
mod open;
#[cfg(any(feature = "cli", feature = "console"))]
mod sheet;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use self::gather::judged;
pub(crate) use self::gather::{Minutes, Oldest, count, month_of, uncounted};
pub use self::{
    census::{
        ArchiveCensus, ArchiveGauges, Column, PartitionCensus, PerMinute, PublishedTtls,
        StoreCensus,
    },
    inspector::{InFlightThen, Inspector, KeyHistory, Overview},
    open::{OpenOutcome, OpenQuery, OpenRecord},
};

/// What a store can tell an operator.
#[async_trait]
pub trait InspectStore: Send + Sync {
    /// How many records are past their expiry and wait for a sweep: the gauge
    /// `idempotency_expired_backlog`. By an index, so that it may be asked each
    /// minute.
    async fn backlog(&self) -> Result<u64, StoreError>;

    /// Counts by state, and sizes.
    async fn census(&self) -> Result<StoreCensus, StoreError>;

    /// The live record of a key without its answer; `None` when there is none.
    async fn record(&self, key: ScopedKey) -> Result<Option<LiveRecord>, StoreError>;

    /// The records that were open at a moment, as [`OpenQuery`] says, the oldest
    /// first. Speculative ones are left out: nothing ran under them.
    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError>;

    /// How many of the records that are there were first claimed in each minute
    /// from `from` until before `until`, the oldest minute first. Minutes of
    /// none may be left out.
    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError>;

    /// Erases the stored answer of a completed record, its headers and its body,
    /// and keeps all else: a repeat is told that the answer was not kept. False
    /// when there is no such answer. What is still running has none yet.
    async fn erase_response(&self, key: ScopedKey) -> Result<bool, StoreError>;
}

/// What an archive can tell an operator.
#[async_trait]
pub trait InspectArchive: Send + Sync {
    /// What may be asked each minute.
    async fn gauges(&self) -> Result<ArchiveGauges, StoreError>;

    /// Counts, sizes and partitions.
    async fn census(&self) -> Result<ArchiveCensus, StoreError>;

    /// Every archived row of a key, the oldest first: one for each window in
    /// which it was used.
    async fn history(&self, key: ScopedKey) -> Result<Vec<Tombstone>, StoreError>;

    /// The row that expired last; `None` when the archive is empty.
    async fn newest(&self) -> Result<Option<Tombstone>, StoreError>;

    /// How many rows expired at or after `from`.
    async fn expired_since(&self, from: Timestamp) -> Result<u64, StoreError>;

    /// As [`InspectStore::open_at`], of rows that were live then.
    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError>;

    /// As [`InspectStore::claimed_per_minute`].
    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError>;
}

/// A live record without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveRecord {
    /// Its name.
    pub key: ScopedKey,
    /// 1 for the first attempt, one more for every takeover.
    pub attempt: u32,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// How far it has come.
    pub state: LiveState,
}

/// How far a live record has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LiveState {
    /// Without an outcome: an attempt runs, or ran and lapsed.
    InProgress {
        /// Until when its owner has it, or had it.
        lease_until: Timestamp,
        /// Whether the archive has not been asked yet, so that nothing ran.
        speculative: bool,
    },
    /// The outcome is known.
    Completed {
        /// When it was recorded; `None` for a record of a version that did not
        /// write it down.
        completed_at: Option<Timestamp>,
        /// The status of the answer.
        status: u16,
        /// What the request made.
        resource_id: Option<ResourceId>,
        /// How many bytes of headers and body are kept; `None` where the answer
        /// was not kept or has been erased.
        kept_bytes: Option<u64>,
    },
}

impl LiveRecord {
    /// A record as a store has read it.
    pub fn new(
        key: ScopedKey,
        attempt: u32,
        created_at: Timestamp,
        expires_at: Timestamp,
        state: LiveState,
    ) -> Self {
        Self {
            key,
            attempt,
            created_at,
            expires_at,
            state,
        }
    }

    /// Whether an attempt owns the record at `now`.
    pub fn has_live_lease(&self, now: Timestamp) -> bool {
        matches!(self.state, LiveState::InProgress { lease_until, .. } if lease_until > now)
    }

    /// Whether the record is past its time at `now`. One with a live lease never
    /// is.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now && !self.has_live_lease(now)
    }
}
