//! Moves expired records into the archive, in the background.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "metrics")]
use crate::gauges::Gauges;
use crate::{
    archive::Archive,
    clock::after,
    metrics,
    store::{Store, StoreError},
};

/// Sweeps one store into one archive: bounded batches, each its own
/// transaction, oldest first, with a pause between, so that requests are never
/// kept waiting for long. Any number of sweepers may run over one store.
///
/// ```
/// use axum_idempotency::{Sweeper, archive::MemoryArchive, store::MemoryStore};
///
/// # async fn example() {
/// let store = MemoryStore::new();
/// let archive = MemoryArchive::new();
/// let sweeper = Sweeper::new(store).archive(archive).start();
/// // … serve …
/// sweeper.stop().await;
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Sweeper {
    store: Arc<dyn Store>,
    archive: Option<Arc<dyn Archive>>,
    every: Duration,
    pause: Duration,
    batch: u32,
    longest_ttl: Duration,
    preparation: Preparation,
}

impl Sweeper {
    /// A sweeper over `store`. Without an archive expired records are deleted.
    pub fn new(store: impl Store) -> Self {
        Self::new_dyn(Arc::new(store))
    }

    /// The same for a store that is chosen at run time.
    pub fn new_dyn(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            archive: None,
            every: DEFAULT_EVERY,
            pause: DEFAULT_PAUSE,
            batch: DEFAULT_BATCH,
            longest_ttl: DEFAULT_LONGEST_TTL,
            preparation: Preparation::default(),
        }
    }

    /// Where expired records go.
    pub fn archive(self, archive: impl Archive) -> Self {
        self.archive_dyn(Arc::new(archive))
    }

    /// The same for an archive that is chosen at run time.
    pub fn archive_dyn(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self.preparation = Preparation::default();
        self
    }

    /// How long to rest when nothing is left; 10 ms at least. Default: 1 min.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(SHORTEST_REST);
        self
    }

    /// How long to rest between two batches. Default: 200 ms.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The most records that one batch moves. Default: 10,000; a store may
    /// move fewer at a time.
    pub fn batch(mut self, records: u32) -> Self {
        self.batch = records.max(1);
        self
    }

    /// The longest TTL in use over the store. An archive is prepared for what
    /// expires that much later, and for two months more. Default: 31 days;
    /// [`IdempotencyLayer::sweeper`](crate::IdempotencyLayer::sweeper) sets what
    /// the layers over its store use.
    pub fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = ttl;
        self
    }

    /// Prepares the archive when that was not done for a day, sweeps until
    /// nothing is left, then prunes what is past the archive's retention.
    ///
    /// # Errors
    ///
    /// The first that the store or the archive reports; what was moved stays
    /// moved.
    pub async fn sweep_once(&self) -> Result<Swept, StoreError> {
        // Whoever asks for a sweep, its errors count as what it moves does.
        self.prepare_and_sweep()
            .await
            .inspect_err(|_| metrics::sweep_error())
    }

    async fn prepare_and_sweep(&self) -> Result<Swept, StoreError> {
        self.prepare_when_due().await;
        let archived = self
            .until_none_left(
                || self.store.sweep(self.archive.as_deref(), self.batch),
                metrics::archived,
            )
            .await?;
        let pruned = match &self.archive {
            Some(archive) if archive.retention().is_some() => {
                let now = self.store.now().await?;
                self.until_none_left(|| archive.prune(now, self.batch), |_| {})
                    .await?
            }
            _ => 0,
        };
        Ok(Swept { archived, pruned })
    }

    /// What goes wrong keeps nothing from being swept: what there is no room for
    /// comes up again when it is moved.
    async fn prepare_when_due(&self) {
        let Some(archive) = &self.archive else {
            return;
        };
        if !self.preparation.is_due() {
            return;
        }
        let failed = match timeout(LONGEST_PREPARATION, self.prepare(&**archive)).await {
            Ok(Ok(())) => return self.preparation.succeeded(),
            Ok(Err(error)) => error.causes().to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        tracing::error!(error = %failed, "the archive could not be prepared for what expires next: it is tried again");
    }

    async fn prepare(&self, archive: &dyn Archive) -> Result<(), StoreError> {
        let now = self.store.now().await?;
        let oldest = self.store.expired(1).await?;
        let oldest = oldest.first().map(|record| record.tombstone.expired_at);
        let until = after(now, self.longest_ttl.saturating_add(TWO_MONTHS));
        archive.prepare(oldest.unwrap_or(now), until).await
    }

    async fn until_none_left<F>(
        &self,
        mut batch: impl FnMut() -> F,
        told: impl Fn(u64),
    ) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<u64, StoreError>>,
    {
        let mut total = 0;
        loop {
            // A database that never answers must not end the sweeps for ever.
            let moved = timeout(LONGEST_BATCH, batch()).await;
            let too_slow = |elapsed| Err(StoreError::unavailable("sweeping a batch", elapsed));
            match moved.unwrap_or_else(too_slow)? {
                0 => return Ok(total),
                moved => {
                    total += moved;
                    told(moved);
                }
            }
            tokio::time::sleep(self.pause).await;
        }
    }

    /// Sweeps in the background until it is stopped. An error never ends it:
    /// it is logged, and the next sweep begins after at most 10 s. With the feature
    /// `metrics` the gauges of store and archive are measured meanwhile.
    pub fn start(self) -> RunningSweeper {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        #[cfg(feature = "metrics")]
        let gauges = self.measure_until(stop.clone());
        let sweeps = tokio::spawn(async move {
            stopped.run_until_cancelled(self.sweep_for_ever()).await;
        });
        RunningSweeper {
            stop,
            sweeps,
            #[cfg(feature = "metrics")]
            gauges,
        }
    }

    /// In a task of its own: a sweep that is stuck must not stop the gauges.
    #[cfg(feature = "metrics")]
    fn measure_until(&self, stopped: CancellationToken) -> JoinHandle<()> {
        let gauges = Gauges::new(Arc::clone(&self.store), self.archive.clone());
        let preparation = self.preparation.clone();
        tokio::spawn(async move {
            let measured = gauges.measure_for_ever(|| *preparation.done());
            stopped.run_until_cancelled(measured).await;
        })
    }

    async fn sweep_for_ever(self) {
        loop {
            let begun = Instant::now();
            let rest = match self.sweep_once().await {
                Ok(swept) => {
                    if swept != Swept::default() {
                        tracing::info!(archived = swept.archived, pruned = swept.pruned, took = ?begun.elapsed(), "swept");
                    }
                    self.every
                }
                Err(error) => {
                    tracing::error!(error = %error.causes(), "sweep failed: it is tried again");
                    self.every.min(LONGEST_REST_AFTER_ERROR)
                }
            };
            tokio::time::sleep(rest).await;
        }
    }
}

/// When the archive was last prepared. Clones of a sweeper share it.
#[derive(Clone, Debug, Default)]
struct Preparation(Arc<Mutex<Option<Instant>>>);

impl Preparation {
    fn is_due(&self) -> bool {
        let done = *self.done();
        done.is_none_or(|done| done.elapsed() >= PREPARE_EVERY)
    }

    fn succeeded(&self) {
        *self.done() = Some(Instant::now());
    }

    fn done(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a sweep moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records that left the live store.
    pub archived: u64,
    /// Tombstones deleted because they were past the archive's retention; see
    /// [`Archive::prune`].
    pub pruned: u64,
}

/// A sweeper in the background. Dropped, it goes on until its runtime ends.
pub struct RunningSweeper {
    stop: CancellationToken,
    sweeps: JoinHandle<()>,
    #[cfg(feature = "metrics")]
    gauges: JoinHandle<()>,
}

impl RunningSweeper {
    /// Stops between two steps: a batch under way is finished by the store or
    /// left undone, never half done. After that neither store nor archive is
    /// asked anything more: their connections can be closed.
    pub async fn stop(self) {
        self.stop.cancel();
        // A task that panicked has stopped too.
        let _ = self.sweeps.await;
        #[cfg(feature = "metrics")]
        let _ = self.gauges.await;
    }
}

impl fmt::Debug for RunningSweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSweeper")
            .field("finished", &self.sweeps.is_finished())
            .finish_non_exhaustive()
    }
}

const DEFAULT_EVERY: Duration = Duration::from_mins(1);
const SHORTEST_REST: Duration = Duration::from_millis(10);
const DEFAULT_PAUSE: Duration = Duration::from_millis(200);
const DEFAULT_BATCH: u32 = 10_000;
const DEFAULT_LONGEST_TTL: Duration = Duration::from_hours(24 * 31);
const PREPARE_EVERY: Duration = Duration::from_hours(24);
/// However long the months are.
const TWO_MONTHS: Duration = Duration::from_hours(24 * 62);
const LONGEST_PREPARATION: Duration = Duration::from_mins(1);
const LONGEST_REST_AFTER_ERROR: Duration = Duration::from_secs(10);
const LONGEST_BATCH: Duration = Duration::from_mins(1);
