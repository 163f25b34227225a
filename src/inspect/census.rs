//! Counts and sizes.

use std::time::Duration;

use jiff::Timestamp;

/// What there is in a live store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCensus {
    /// The store's clock as it was counted.
    pub now: Timestamp,
    /// Records under a live lease.
    pub running: u64,
    /// Records inside their window without an outcome and without a live lease:
    /// their attempt was cut off, or is about to be renewed.
    pub lapsed: u64,
    /// Records inside their window with an outcome.
    pub completed: u64,
    /// Records past their expiry, which wait for a sweep.
    pub expired: u64,
    /// When the oldest of those expired.
    pub oldest_expired: Option<Timestamp>,
    /// What the records take up with their indexes, where the store can tell.
    /// Of a [`MemoryStore`](crate::store::MemoryStore) the kept headers and
    /// bodies, as its bound counts them.
    pub bytes: Option<u64>,
    /// The TTLs that processes published, where any did.
    pub ttls: Option<PublishedTtls>,
}

impl StoreCensus {
    /// All records there are.
    pub fn records(&self) -> u64 {
        self.running + self.lapsed + self.completed + self.expired
    }
}

/// The TTLs that processes published in a store. See
/// [`Store::publish_ttl`](crate::store::Store::publish_ttl).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedTtls {
    /// The smallest.
    pub smallest: Duration,
    /// The largest.
    pub largest: Duration,
}

/// What of an archive may be asked each minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveGauges {
    /// Rows there are; of a large archive an estimate.
    pub rows: u64,
    /// What they take up with their indexes: the gauge
    /// `idempotency_archive_bytes`. `None` where the archive cannot tell.
    pub bytes: Option<u64>,
    /// The end of the newest partition: what expires later has no room yet.
    /// `None` for an archive without partitions.
    pub newest_partition_until: Option<Timestamp>,
}

/// What there is in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveCensus {
    /// Rows there are; of a large archive an estimate.
    pub rows: u64,
    /// What they take up with their indexes, where the archive can tell.
    pub bytes: Option<u64>,
    /// Its parts, the oldest first: partitions, or what expired in each calendar
    /// month (UTC) where there are none.
    pub months: Vec<PartitionCensus>,
    /// Whether [`months`](Self::months) are partitions, each a table of its own
    /// that has to be there before a row can be archived.
    pub is_partitioned: bool,
    /// The columns of a row, in their order: none may be able to hold a payload.
    /// Empty for an archive without columns.
    pub columns: Vec<Column>,
}

/// A partition of an archive, or a month of one that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCensus {
    /// The name of its table, or of the month: `2026-08`.
    pub name: String,
    /// The earliest expiry of a row that belongs in it.
    pub from: Timestamp,
    /// The earliest that does not any more.
    pub until: Timestamp,
    /// Rows there are; of a large partition an estimate.
    pub rows: u64,
    /// What they take up with their indexes, where the archive can tell.
    pub bytes: Option<u64>,
}

/// A column of the archive's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the database calls it.
    pub type_name: String,
}

/// How many keys were first claimed in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerMinute {
    /// When the minute began.
    pub minute: Timestamp,
    /// How many.
    pub keys: u64,
}
