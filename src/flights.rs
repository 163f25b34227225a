//! The requests in flight in this process: a duplicate is answered from here,
//! so that a storm on one key costs the store nothing.
//!
//! The first request of a key leads: it asks the store. Those that arrive
//! while it is at work follow. Nothing outlives the flight, so this is no
//! cache of completed records.

use std::{
    collections::{HashMap, hash_map},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use jiff::Timestamp;
use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    claim::CompletedRecord, fingerprint::Fingerprint, record::Completion, scope::ScopedKey,
};

/// All flights of one store handle.
#[derive(Debug)]
pub(crate) struct Flights {
    // Sharded by digest, so that unrelated keys rarely meet on a lock.
    shards: Vec<Mutex<Shard>>,
    waiters: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    flights: HashMap<ScopedKey, Arc<Flight>>,
    /// How many wait for a key, wherever its first request runs.
    waiters: HashMap<ScopedKey, usize>,
}

/// One key at work.
#[derive(Debug)]
pub(crate) struct Flight {
    fingerprint: Fingerprint,
    stage: Mutex<Stage>,
    changed: Notify,
    /// Fires when nobody is to follow any more.
    lost: OnceLock<CancellationToken>,
}

/// How far a flight has come.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The store has not answered yet.
    Claiming,
    /// The leader owns the record.
    Running {
        /// The archive has not answered yet: nothing may be concluded from the
        /// leader's fingerprint.
        speculative: bool,
        /// When the claim was won.
        since: Instant,
    },
    /// It is over.
    Ended(Ending),
}

/// How a flight ended.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The record has an outcome.
    Completed(Arc<CompletedRecord>),
    /// It ran without a record, and this was its outcome.
    Unrecorded(Arc<Completion>),
    /// It ran, and its outcome is not known.
    Unknown { created_at: Option<Timestamp> },
    /// The store did not answer the claim: nothing ran.
    StoreUnavailable,
    /// Nothing to share: ask the store.
    Gone,
}

/// The part a request plays in the flight of its key.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Leader),
    Follower(Arc<Flight>),
}

impl Flights {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            waiters: AtomicUsize::new(0),
        }
    }

    /// Joins the flight of `key`, or starts it.
    pub(crate) fn join(self: &Arc<Self>, key: ScopedKey, fingerprint: &Fingerprint) -> Role {
        let mut shard = self.shard(key);
        if let Some(flight) = shard.flights.get(&key)
            && !flight.is_lost()
        {
            return Role::Follower(Arc::clone(flight));
        }
        let flight = Arc::new(Flight {
            fingerprint: fingerprint.clone(),
            stage: Mutex::new(Stage::Claiming),
            changed: Notify::new(),
            lost: OnceLock::new(),
        });
        shard.flights.insert(key, Arc::clone(&flight));
        Role::Leader(Leader {
            flights: Arc::clone(self),
            key,
            flight,
            ended: false,
        })
    }

    fn shard(&self, key: ScopedKey) -> MutexGuard<'_, Shard> {
        let shard = usize::from(key.digest()[0]) % self.shards.len();
        // A map is whole after every single call on it.
        self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to steer a flight. Dropped before its end, the flight is gone.
#[derive(Debug)]
pub(crate) struct Leader {
    flights: Arc<Flights>,
    key: ScopedKey,
    flight: Arc<Flight>,
    ended: bool,
}

impl Leader {
    /// The claim is won; called again once the archive has answered.
    pub(crate) fn running(&self, speculative: bool) {
        let mut stage = self.flight.lock();
        let since = match *stage {
            Stage::Running { since, .. } => since,
            _ => Instant::now(),
        };
        *stage = Stage::Running { speculative, since };
        drop(stage);
        self.flight.changed.notify_waiters();
    }

    /// From the loss of its lease on nobody follows: the store is asked, though
    /// the attempt has not come to its end, and perhaps never does.
    pub(crate) fn leads_until(&self, lost: CancellationToken) {
        let _set_once = self.flight.lost.set(lost);
    }

    /// Shares the ending with those who followed.
    pub(crate) fn end(mut self, ending: Ending) {
        self.close(ending);
    }

    fn close(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // Whoever joins from here on starts a flight of its own.
        if let hash_map::Entry::Occupied(entry) =
            self.flights.shard(self.key).flights.entry(self.key)
            && Arc::ptr_eq(entry.get(), &self.flight)
        {
            entry.remove();
        }
        *self.flight.lock() = Stage::Ended(ending);
        self.flight.changed.notify_waiters();
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.close(Ending::Gone);
    }
}

impl Flight {
    /// The leader's request.
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    pub(crate) fn stage(&self) -> Stage {
        self.lock().clone()
    }

    fn is_lost(&self) -> bool {
        self.lost.get().is_some_and(CancellationToken::is_cancelled)
    }

    /// Completes with the next change of stage after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many duplicates may wait at a time; past it they are rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterCaps {
    pub(crate) per_key: usize,
    pub(crate) total: usize,
}

/// A place among those who wait for one key.
#[derive(Debug)]
pub(crate) struct Waiter {
    flights: Arc<Flights>,
    key: ScopedKey,
}

impl Waiter {
    /// Takes a place, if there is one.
    pub(crate) fn admit(flights: &Arc<Flights>, key: ScopedKey, caps: WaiterCaps) -> Option<Self> {
        take(&flights.waiters, caps.total)?;
        let mut shard = flights.shard(key);
        let of_key = shard.waiters.get(&key).copied().unwrap_or_default();
        if of_key >= caps.per_key {
            flights.waiters.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        shard.waiters.insert(key, of_key + 1);
        drop(shard);
        Some(Self {
            flights: Arc::clone(flights),
            key,
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.flights.waiters.fetch_sub(1, Ordering::Relaxed);
        let mut shard = self.flights.shard(self.key);
        if let hash_map::Entry::Occupied(mut of_key) = shard.waiters.entry(self.key) {
            *of_key.get_mut() -= 1;
            if *of_key.get() == 0 {
                of_key.remove();
            }
        }
    }
}

fn take(places: &AtomicUsize, cap: usize) -> Option<()> {
    places
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < cap).then_some(taken + 1)
        })
        .ok()
        .map(|_| ())
}

const SHARDS: usize = 16;
