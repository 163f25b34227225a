//! The smallest TTL in force: from which age on a record may already have been
//! archived, whichever policy, process or deploy recorded it.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    store::{Store, StoreError, TtlNotice},
    ttl::Ttl,
};

/// The TTLs that this process uses with one store, and what others published.
#[derive(Debug)]
pub(crate) struct TtlsInForce {
    process: Uuid,
    state: Mutex<State>,
    publishing: tokio::sync::Mutex<()>,
    refreshing: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct State {
    own: Option<(Duration, Duration)>,
    /// What the store answered, to which own TTLs, and when.
    published: Option<(Duration, (Duration, Duration), Instant)>,
}

/// What is known without asking the store.
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
            state: Mutex::new(State {
                own: None,
                published: None,
            }),
            publishing: tokio::sync::Mutex::default(),
            refreshing: AtomicBool::new(false),
        }
    }

    /// A policy with this TTL shares the store from now on.
    pub(crate) fn add(&self, ttl: Ttl) {
        let mut state = self.lock();
        let ttl = ttl.get();
        let (smallest, largest) = state.own.unwrap_or((ttl, ttl));
        state.own = Some((smallest.min(ttl), largest.max(ttl)));
    }

    pub(crate) fn known(&self) -> Known {
        let state = self.lock();
        match state.published {
            Some((smallest, own, when)) if Some(own) == state.own => match when.elapsed() {
                age if age < REREAD_AFTER => Known::Fresh(smallest),
                age if age < STALE_AFTER => Known::Ageing(smallest),
                _ => Known::No,
            },
            _ => Known::No,
        }
    }

    /// Publishes the TTLs of this process and returns the smallest in force.
    pub(crate) async fn publish(&self, store: &dyn Store) -> Result<Duration, StoreError> {
        let _one_at_a_time = self.publishing.lock().await;
        if let Known::Fresh(smallest) = self.known() {
            return Ok(smallest);
        }
        let asked = Instant::now();
        let own = self
            .lock()
            .own
            .unwrap_or((Ttl::DEFAULT.get(), Ttl::DEFAULT.get()));
        let notice = TtlNotice {
            process: self.process,
            smallest: own.0,
            largest: own.1,
        };
        let smallest = store.publish_ttl(notice).await?.min(own.0);
        self.lock().published = Some((smallest, own, asked));
        Ok(smallest)
    }

    /// True for the one caller who is to publish in the background.
    pub(crate) fn begin_refresh(&self) -> bool {
        !self.refreshing.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_refresh(&self) {
        self.refreshing.store(false, Ordering::Release);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From then on the next request rereads in the background.
const REREAD_AFTER: Duration = Duration::from_secs(15);
/// From then on no request is judged by what was read.
const STALE_AFTER: Duration = Duration::from_secs(120);
