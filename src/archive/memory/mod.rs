//! Tombstones in the memory of one process.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::Archive;
use crate::{
    clock::after,
    inspect::InspectArchive,
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
    store::{StoreError, StoreIdentity},
};

mod inspect;

/// An archive in the memory of this process, beside a
/// [`MemoryStore`](crate::store::MemoryStore) or in a test. It grows until it
/// is pruned, and ends with the process.
///
/// Clones share their rows. `Debug` shows how many those are, never what they
/// hold.
///
/// ```
/// use std::time::Duration;
/// use axum_idempotency::archive::MemoryArchive;
///
/// let for_ever = MemoryArchive::new();
///
/// let a_year = Duration::from_secs(365 * 86_400);
/// let pruned = MemoryArchive::new().with_retention(a_year);
/// ```
#[derive(Clone, Default)]
pub struct MemoryArchive {
    rows: Arc<Mutex<Rows>>,
    retention: Option<Duration>,
}

#[derive(Default)]
struct Rows {
    by_name: BTreeMap<(ScopedKey, Timestamp), Tombstone>,
    by_expiry: BTreeSet<(Timestamp, ScopedKey)>,
}

impl MemoryArchive {
    /// An empty archive that keeps its rows for ever.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long rows are kept after they expired, by this handle and its
    /// clones. Default: for ever.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // Nothing under the lock can panic halfway.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    fn insert(&mut self, row: &Tombstone) {
        match self.by_name.entry((row.key, row.expired_at)) {
            Entry::Vacant(vacant) => {
                vacant.insert(row.clone());
                self.by_expiry.insert((row.expired_at, row.key));
            }
            Entry::Occupied(mut occupied) => {
                let there = occupied.get_mut();
                if !there.has_outcome() && row.has_outcome() {
                    there.status = row.status;
                    there.resource_id.clone_from(&row.resource_id);
                }
            }
        }
    }

    fn prune(&mut self, retention: Duration, now: Timestamp, limit: u32) -> u64 {
        let mut pruned = 0;
        while pruned < u64::from(limit)
            && let Some(&(expired_at, key)) = self.by_expiry.first()
            && after(expired_at, retention) < now
        {
            self.by_expiry.pop_first();
            self.by_name.remove(&(key, expired_at));
            pruned += 1;
        }
        pruned
    }
}

impl fmt::Debug for MemoryArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryArchive")
            .field("rows", &self.rows().by_name.len())
            .field("retention", &self.retention)
            .finish()
    }
}

#[async_trait]
impl Archive for MemoryArchive {
    fn within(&self) -> Option<StoreIdentity> {
        None
    }

    fn retention(&self) -> Option<Duration> {
        self.retention
    }

    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        let rows = self.rows();
        let from = not_before.unwrap_or(Timestamp::MIN);
        let of_key = || {
            rows.by_name
                .range((key, from)..=(key, Timestamp::MAX))
                .rev()
        };
        let found = of_key().find(|(_, row)| row.has_outcome());
        let found = found.or_else(|| of_key().next());
        Ok(found.map(|(_, row)| row.clone()))
    }

    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError> {
        let mut there = self.rows();
        for row in rows {
            there.insert(row);
        }
        Ok(())
    }

    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows();
        let of_key = (key, Timestamp::MIN)..=(key, Timestamp::MAX);
        let mut newest_first = rows.by_name.range_mut(of_key).rev();
        let found = newest_first.find(|(_, row)| !row.has_outcome());
        let Some((_, row)) = found else {
            return Ok(false);
        };
        row.status = status;
        row.resource_id = resource_id;
        Ok(true)
    }

    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let Some(retention) = self.retention else {
            return Ok(0);
        };
        Ok(self.rows().prune(retention, now, limit))
    }

    fn inspect(&self) -> Option<&dyn InspectArchive> {
        Some(self)
    }
}
