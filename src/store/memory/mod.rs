//! Live records in the memory of one process.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::task::yield_now;

use self::{notices::Notices, room::Room, table::Table};
use super::{
    Fenced, Renewal, Renewed, Store, StoreError, StoreIdentity, TtlNotice, move_in_two_phases,
};
use crate::{
    archive::Archive,
    claim::{Claim, ClaimRequest},
    clock::{Clock, SystemClock, from_micros},
    inspect::InspectStore,
    record::{Completion, ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
};

mod inspect;
mod notices;
mod room;
mod row;
mod shard;
mod table;

/// A store in the memory of this process, for tests and for services of one
/// process. What it holds ends with the process: a request that is retried
/// across a restart runs again.
///
/// It is bounded, by records and by bytes, and never evicts a record inside its
/// window. When it is full, a claim of a new key is
/// [`StoreErrorKind::Full`](super::StoreErrorKind::Full); without an archive,
/// expired records make room first, oldest first. What was claimed can always
/// be completed, so the bytes may pass their bound by what runs at that time.
///
/// Clones share one store. `Debug` shows how much it holds, never what.
///
/// ```
/// use axum_idempotency::{ManualClock, store::MemoryStore};
///
/// let store = MemoryStore::new();
///
/// let clock = ManualClock::default();
/// let bounded = MemoryStore::builder()
///     .capacity(10_000)
///     .max_bytes(16 * 1024 * 1024)
///     .clock(clock.clone())
///     .build();
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    identity: StoreIdentity,
    table: Table,
    notices: Mutex<Notices>,
    is_closed: AtomicBool,
}

impl MemoryStore {
    /// An empty store with the defaults of [`MemoryStoreBuilder`].
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts a store with other bounds or another clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::default()
    }

    fn open(&self) -> Result<&Shared, StoreError> {
        if self.shared.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::unavailable("memory", "the store was closed"));
        }
        Ok(&self.shared)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("records", &self.shared.table.room.records())
            .field("bytes", &self.shared.table.room.bytes())
            .finish_non_exhaustive()
    }
}

/// The options of a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    max_bytes: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// How many records the store may hold, in any state. Default: 1,000,000.
    pub fn capacity(mut self, records: usize) -> Self {
        self.capacity = records;
        self
    }

    /// How many bytes of kept bodies and headers the store may hold before it
    /// takes no new keys. Default: 256 MiB.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The clock that decides about records. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The store, empty.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore {
            shared: Arc::new(Shared {
                identity: StoreIdentity::new(),
                table: Table::new(Room::new(self.capacity, self.max_bytes), self.clock),
                notices: Mutex::default(),
                is_closed: AtomicBool::new(false),
            }),
        }
    }
}

impl Default for MemoryStoreBuilder {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_CAPACITY,
            max_bytes: DEFAULT_MAX_BYTES,
            clock: Arc::new(SystemClock),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn identity(&self) -> StoreIdentity {
        self.shared.identity
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        self.open()?.table.claim(&request)
    }

    async fn complete(
        &self,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        Ok(self.open()?.table.complete(&key, token, &completion))
    }

    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError> {
        Ok(self.open()?.table.release(&key, token))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        let table = &self.open()?.table;
        Ok(renewals
            .iter()
            .map(|renewal| table.renew(renewal))
            .collect())
    }

    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        self.open()?.table.get(key)
    }

    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError> {
        Ok(self.open()?.table.amend(&key, &completion))
    }

    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError> {
        let mut moved = 0;
        while moved < u64::from(limit) {
            let rest = u64::from(limit) - moved;
            let batch = u32::try_from(rest).map_or(SWEPT_AT_ONCE, |rest| rest.min(SWEPT_AT_ONCE));
            match move_in_two_phases(self, archive, batch).await? {
                0 => break,
                batch => moved += batch,
            }
            yield_now().await;
        }
        Ok(moved)
    }

    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.open()?.table.expired(limit))
    }

    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError> {
        Ok(self.open()?.table.remove(records))
    }

    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError> {
        let shared = self.open()?;
        let notices = shared.notices.lock();
        let mut notices = notices.unwrap_or_else(PoisonError::into_inner);
        Ok(notices.publish(notice, from_micros(shared.table.now())))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(from_micros(self.open()?.table.now()))
    }

    async fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }

    fn inspect(&self) -> Option<&dyn InspectStore> {
        Some(self)
    }
}

/// How many records a sweep moves before it lets others run: nothing in here
/// waits, so that a large batch would hold up the thread.
const SWEPT_AT_ONCE: u32 = 256;

const DEFAULT_CAPACITY: usize = 1_000_000;
const DEFAULT_MAX_BYTES: usize = 256 * 1024 * 1024;
