//! Everything that the layers of one process share for one store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicU64},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use crate::{
    flights::Flights,
    in_force::{Known, TtlsInForce},
    leases::Leases,
    pending::PendingCalls,
    store::{Store, StoreError, StoreIdentity},
    ttl::Ttl,
};

/// One store as this process uses it.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) pending: Arc<PendingCalls>,
    pub(crate) ttls: Arc<TtlsInForce>,
    pub(crate) tasks: TaskTracker,
    /// How many requests have run without protection.
    pub(crate) unprotected: AtomicU64,
}

/// Handles in use, so that two layers over one store find each other.
static HANDLES: Mutex<Option<HashMap<StoreIdentity, Weak<StoreHandle>>>> = Mutex::new(None);

impl StoreHandle {
    /// The handle that this process has for `store`, or a new one.
    pub(crate) fn of(store: Arc<dyn Store>) -> Arc<Self> {
        let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = handles.get_or_insert_default();
        handles.retain(|_, handle| handle.strong_count() > 0);
        let identity = store.identity();
        if let Some(handle) = handles.get(&identity).and_then(Weak::upgrade) {
            return handle;
        }
        #[cfg(feature = "metrics")]
        let store: Arc<dyn Store> = Arc::new(crate::metered::Metered(store));
        let tasks = TaskTracker::new();
        let handle = Arc::new(Self {
            flights: Arc::new(Flights::new()),
            leases: Arc::new(Leases::new(Arc::clone(&store))),
            pending: Arc::new(PendingCalls::new(Arc::clone(&store), tasks.clone())),
            ttls: Arc::new(TtlsInForce::new()),
            unprotected: AtomicU64::new(0),
            tasks,
            store,
        });
        handles.insert(identity, Arc::downgrade(&handle));
        handle
    }

    /// The smallest TTL in force over policies, processes and deploys. Asks the
    /// store before the first request and now and then.
    pub(crate) async fn smallest_ttl(&self) -> Result<Duration, StoreError> {
        match self.ttls.known() {
            Known::Fresh(smallest) => Ok(smallest),
            Known::Ageing(smallest) => {
                if let Some(refresh) = self.ttls.begin_refresh() {
                    let store = Arc::clone(&self.store);
                    self.tasks
                        .spawn(async move { refresh.publish(&*store).await });
                }
                Ok(smallest)
            }
            Known::No => self.ttls.publish(&*self.store).await,
        }
    }

    /// Waits for handlers and for what the store still has to hear, then closes
    /// the store. False when `deadline` came first.
    pub(crate) async fn shut_down(&self, deadline: Duration) -> bool {
        let until = Instant::now() + deadline.min(Ttl::MAX.get());
        self.tasks.close();
        let ended = timeout_at(until, self.tasks.wait()).await.is_ok();
        let closed = timeout_at(until, self.store.close()).await.is_ok();
        ended && closed
    }
}
