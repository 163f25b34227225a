//! How much the store may hold, and holds.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts records and kept bytes over all shards. A count is changed under the
/// lock of the shard that holds the record.
#[derive(Debug)]
pub(super) struct Room {
    capacity: usize,
    max_bytes: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
}

impl Room {
    pub(super) fn new(capacity: usize, max_bytes: usize) -> Self {
        Self {
            capacity,
            max_bytes,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Counts one record more, unless there is no room for it.
    pub(super) fn admit(&self) -> bool {
        let admitted = |records| (records < self.capacity).then_some(records + 1);
        self.bytes() < self.max_bytes
            && self
                .records
                .fetch_update(Relaxed, Relaxed, admitted)
                .is_ok()
    }

    /// Counts what an admitted record keeps: always accepted, since the
    /// handler has run.
    pub(super) fn keep(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts what a record no longer keeps.
    pub(super) fn drop_kept(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts one record less.
    pub(super) fn leave(&self) {
        self.records.fetch_sub(1, Relaxed);
    }

    pub(super) fn records(&self) -> usize {
        self.records.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}
