//! The smallest TTL in force: from which age on a record may already have been
//! archived, whichever policy, process or deploy recorded it.
//!
//! A process learns within [`STALE_AFTER`] that another has begun to use a
//! smaller TTL. Where processes differ, a TTL has to be longer than that.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::{
    store::{Store, StoreError, TtlNotice},
    ttl::Ttl,
};

/// The TTLs that this process uses with one store, and what others published.
#[derive(Debug)]
pub(crate) struct TtlsInForce {
    process: Uuid,
    /// Smallest and largest of this process's policies.
    own: Mutex<Option<(Duration, Duration)>>,
    publishing: tokio::sync::Mutex<()>,
    refreshing: AtomicBool,
    begun: Instant,
    /// The smallest TTL in force in microseconds, and for how long after
    /// `begun`, in milliseconds, that is known. Every request reads them.
    smallest: AtomicU64,
    known_at: AtomicU64,
}

/// What is known without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Fresh(Duration),
    /// Still right, but others may have published since.
    Ageing(Duration),
    No,
}

impl TtlsInForce {
    pub(crate) fn new() -> Self {
        Self {
            process: Uuid::new_v4(),
            own: Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            refreshing: AtomicBool::new(false),
            begun: Instant::now(),
            smallest: AtomicU64::new(0),
            known_at: AtomicU64::new(NEVER),
        }
    }

    /// A policy with this TTL shares the store from now on. What was published
    /// without it no longer counts.
    pub(crate) fn add(&self, ttl: Ttl) {
        let ttl = ttl.get();
        let mut own = self.own();
        let (smallest, largest) = own.unwrap_or((ttl, ttl));
        let with_it = Some((smallest.min(ttl), largest.max(ttl)));
        if *own != with_it {
            *own = with_it;
            self.known_at.store(NEVER, Ordering::Release);
        }
    }

    /// The largest TTL of this process's policies.
    pub(crate) fn largest(&self) -> Option<Duration> {
        self.own().map(|(_, largest)| largest)
    }

    pub(crate) fn known(&self) -> Known {
        let known_at = self.known_at.load(Ordering::Acquire);
        if known_at == NEVER {
            return Known::No;
        }
        let smallest = Duration::from_micros(self.smallest.load(Ordering::Acquire));
        match self.elapsed().saturating_sub(known_at) {
            age if age < REREAD_AFTER => Known::Fresh(smallest),
            age if age < STALE_AFTER => Known::Ageing(smallest),
            _ => Known::No,
        }
    }

    /// Publishes the TTLs of this process and returns the smallest in force.
    pub(crate) async fn publish(&self, store: &dyn Store) -> Result<Duration, StoreError> {
        let _one_at_a_time = self.publishing.lock().await;
        if let Known::Fresh(smallest) = self.known() {
            return Ok(smallest);
        }
        let asked = self.elapsed();
        let published = *self.own();
        let (smallest, largest) = published.unwrap_or((Ttl::DEFAULT.get(), Ttl::DEFAULT.get()));
        let notice = TtlNotice {
            process: self.process,
            smallest,
            largest,
        };
        let smallest = store.publish_ttl(notice).await?.min(smallest);
        let micros = u64::try_from(smallest.as_micros()).unwrap_or(u64::MAX);
        // A policy that was added meanwhile has to be published too.
        let own = self.own();
        if *own == published {
            self.smallest.store(micros, Ordering::Release);
            self.known_at.store(asked, Ordering::Release);
        }
        Ok(smallest)
    }

    /// For the one caller who is to publish in the background: the place is
    /// free again when the future ends, however it does.
    pub(crate) fn begin_refresh(self: &Arc<Self>) -> Option<Refresh> {
        let is_free = !self.refreshing.swap(true, Ordering::AcqRel);
        is_free.then(|| Refresh(Arc::clone(self)))
    }

    /// Milliseconds since this was made.
    fn elapsed(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(NEVER - 1)
    }

    fn own(&self) -> MutexGuard<'_, Option<(Duration, Duration)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to publish in the background.
#[derive(Debug)]
pub(crate) struct Refresh(Arc<TtlsInForce>);

impl Refresh {
    /// A store that never answers must not keep the next one from asking.
    pub(crate) async fn publish(self, store: &dyn Store) {
        let failed = match timeout(PATIENCE, self.0.publish(store)).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.causes().to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::warn!(error = %failed, "the TTLs in force could not be reread");
    }
}

impl Drop for Refresh {
    fn drop(&mut self) {
        self.0.refreshing.store(false, Ordering::Release);
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
const NEVER: u64 = u64::MAX;
/// From then on the next request rereads in the background (milliseconds).
const REREAD_AFTER: u64 = 10_000;
/// From then on no request is judged by what was read (milliseconds).
const STALE_AFTER: u64 = 30_000;
