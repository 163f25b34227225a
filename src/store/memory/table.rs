//! All shards, their bounds and their clock.

use std::{
    collections::BinaryHeap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::yield_now;

use super::{
    room::Room,
    row::{Micros, PackedCompletion, Row},
    shard::{Expiry, NoRoom, Shard},
};
use crate::{
    claim::{Claim, ClaimOutcome, ClaimRequest},
    clock::{Clock, from_micros},
    inspect::LiveRecord,
    record::{Completion, ExpiredRecord, OwnerToken, Record, RecordState},
    scope::ScopedKey,
    store::{Fenced, Renewal, Renewed, StoreError},
};

pub(super) struct Table {
    shards: Box<[Slot]>,
    pub(super) room: Room,
    clock: Arc<dyn Clock>,
}

/// On a cache line of its own, so that neighbours do not slow each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(Mutex<Shard>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        // Only the clock can panic under the lock, before anything is written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    pub(super) fn new(room: Room, clock: Arc<dyn Clock>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Slot::default()).collect(),
            room,
            clock,
        }
    }

    pub(super) fn now(&self) -> Micros {
        self.clock.now().as_microsecond()
    }

    pub(super) fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        loop {
            let mut shard = self.lock(&request.key);
            let now = self.now();
            let answer = shard.claim(request, now, &self.room);
            drop(shard);
            match answer {
                Ok((outcome, packed)) => {
                    return Ok(Claim {
                        now: from_micros(now),
                        outcome: with_response(outcome, packed)?,
                    });
                }
                // With an archive an expired record is still owed to it.
                Err(NoRoom) if request.age.lookup_after.is_some() || !self.make_room(now) => {
                    return Err(StoreError::full("every record is inside its window"));
                }
                Err(NoRoom) => {}
            }
        }
    }

    pub(super) fn complete(
        &self,
        key: &ScopedKey,
        token: OwnerToken,
        completion: &Completion,
    ) -> Fenced {
        let done = PackedCompletion::pack(completion);
        let mut shard = self.lock(key);
        let now = self.now();
        shard.complete(key, token, done, now, &self.room)
    }

    pub(super) fn release(&self, key: &ScopedKey, token: OwnerToken) -> Fenced {
        let mut shard = self.lock(key);
        let now = self.now();
        shard.release(key, token, now, &self.room)
    }

    pub(super) fn renew(&self, renewal: &Renewal) -> Renewed {
        let mut shard = self.lock(&renewal.key);
        let now = self.now();
        shard.renew(renewal, now)
    }

    pub(super) fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        let found = self.lock(&key).get(key);
        let Some((mut record, packed)) = found else {
            return Ok(None);
        };
        if let (RecordState::Completed(done), Some(packed)) = (&mut record.state, packed) {
            done.response = packed.response()?;
        }
        Ok(Some(record))
    }

    pub(super) fn amend(&self, key: &ScopedKey, completion: &Completion) -> bool {
        let done = PackedCompletion::pack(completion);
        let mut shard = self.lock(key);
        let now = self.now();
        shard.amend(key, done, now, &self.room)
    }

    pub(super) fn expired(&self, limit: usize) -> Vec<ExpiredRecord> {
        let now = self.now();
        let oldest = self.oldest_expired(now, limit).into_iter();
        oldest
            .filter_map(|(_, key)| self.lock(&key).expired(key, now))
            .collect()
    }

    pub(super) fn remove(&self, records: &[ExpiredRecord]) -> u64 {
        let now = self.now();
        let mut removed = 0;
        for record in records {
            let mut shard = self.lock(&record.tombstone.key);
            removed += u64::from(shard.remove(record, now, &self.room));
        }
        removed
    }

    /// Shows every row. One shard is locked at a time, and not for long; whoever
    /// waits runs in between.
    pub(super) async fn for_each(&self, mut at: impl FnMut(ScopedKey, &Row)) {
        for slot in &self.shards {
            let mut from = None;
            loop {
                from = slot.lock().look(from, &mut at);
                if from.is_none() {
                    break;
                }
            }
            yield_now().await;
        }
    }

    /// How many records are expired, of which those are looked at that are past
    /// their time.
    pub(super) fn count_expired(&self, now: Micros) -> u64 {
        let mut expired = 0;
        for slot in &self.shards {
            let mut from = None;
            loop {
                let (found, next) = slot.lock().oldest_expired(from, None, now);
                expired += found.len() as u64;
                if next.is_none() {
                    break;
                }
                from = next;
            }
        }
        expired
    }

    pub(super) fn live(&self, key: ScopedKey) -> Option<LiveRecord> {
        self.lock(&key).live(key)
    }

    pub(super) fn erase_response(&self, key: &ScopedKey) -> bool {
        self.lock(key).erase_response(key, &self.room)
    }

    /// Drops the oldest expired records. False when there are none.
    fn make_room(&self, now: Micros) -> bool {
        let oldest = self.oldest_expired(now, DROPPED_AT_ONCE);
        for (_, key) in &oldest {
            self.lock(key).evict(key, now, &self.room);
        }
        !oldest.is_empty()
    }

    /// The names of up to `limit` expired records, oldest first. One shard is
    /// locked at a time, and not for long.
    fn oldest_expired(&self, now: Micros, limit: usize) -> Vec<Expiry> {
        let mut oldest = BinaryHeap::new();
        for slot in &self.shards {
            let mut from = None;
            loop {
                // Once there are enough, only what is older than the youngest
                // of them matters.
                let until = oldest.peek().filter(|_| oldest.len() == limit).copied();
                let (found, next) = slot.lock().oldest_expired(from, until, now);
                for expiry in found {
                    oldest.push(expiry);
                    if oldest.len() > limit {
                        oldest.pop();
                    }
                }
                if next.is_none() {
                    break;
                }
                from = next;
            }
        }
        oldest.into_sorted_vec()
    }

    fn lock(&self, key: &ScopedKey) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(key.digest()[0]) % SHARDS].lock()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("room", &self.room)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

fn with_response(
    mut outcome: ClaimOutcome,
    packed: Option<PackedCompletion>,
) -> Result<ClaimOutcome, StoreError> {
    if let (ClaimOutcome::Completed(record), Some(packed)) = (&mut outcome, packed) {
        record.completion.response = packed.response()?;
    }
    Ok(outcome)
}

/// A power of two, at most 256: a byte of the digest chooses.
const SHARDS: usize = 64;

/// How many expired records a claim drops that finds the store full: enough
/// that the next ones need not look.
const DROPPED_AT_ONCE: usize = 64;
