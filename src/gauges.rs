//! What is measured of a store and its archive now and then, beside the sweeps:
//! a sweep that is stuck must not stop the gauges, which is when they matter.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use crate::{
    archive::Archive,
    metrics,
    store::{Store, StoreError},
};

/// Measures one store and its archive.
#[derive(Debug)]
pub(crate) struct Gauges {
    store: Arc<dyn Store>,
    archive: Option<Arc<dyn Archive>>,
    /// When the sizes were last asked for: an archive may read all it has.
    asked: Option<Instant>,
    /// Whether they were told then.
    is_sized: bool,
    /// The end of the newest partition, as it was then.
    partitioned_until: Option<Timestamp>,
    /// Whether the last round failed, and was told.
    has_failed: bool,
}

impl Gauges {
    pub(crate) fn new(store: Arc<dyn Store>, archive: Option<Arc<dyn Archive>>) -> Self {
        Self {
            store,
            archive,
            asked: None,
            is_sized: false,
            partitioned_until: None,
            has_failed: false,
        }
    }

    /// Measures again and again. `prepared` tells when the archive was last given
    /// new partitions.
    pub(crate) async fn measure_for_ever(mut self, prepared: impl Fn() -> Option<Instant>) {
        loop {
            self.measure_once(prepared()).await;
            tokio::time::sleep(MEASURE_EVERY).await;
        }
    }

    /// Measures what is due. What cannot be told keeps its last value, and keeps
    /// nothing else from being told.
    async fn measure_once(&mut self, prepared: Option<Instant>) {
        let backlog = in_time(self.backlog()).await;
        let archive = in_time(self.archive(prepared)).await;
        let measured = backlog.and(archive);
        if let Err(error) = &measured
            && !self.has_failed
        {
            tracing::warn!(error = %error.causes(), "the gauges could not be measured: they keep their values");
        }
        self.has_failed = measured.is_err();
    }

    async fn backlog(&self) -> Result<(), StoreError> {
        if let Some(store) = self.store.inspect() {
            metrics::expired_backlog(store.backlog().await?);
        }
        Ok(())
    }

    async fn archive(&mut self, prepared: Option<Instant>) -> Result<(), StoreError> {
        if self.is_size_due(prepared)
            && let Some(archive) = self.archive.as_deref().and_then(Archive::inspect)
        {
            self.asked = Some(Instant::now());
            self.is_sized = false;
            let gauges = archive.gauges().await?;
            metrics::archive_size(gauges.rows, gauges.bytes);
            self.partitioned_until = gauges.newest_partition_until;
            self.is_sized = true;
        }
        if let Some(until) = self.partitioned_until {
            metrics::archive_partitioned_for(until.duration_since(self.store.now().await?));
        }
        Ok(())
    }

    /// Sizes that were not told are asked for sooner; and so is what partitions
    /// there are, where there are new ones: the first round finds those of before
    /// the process, or none.
    fn is_size_due(&self, prepared: Option<Instant>) -> bool {
        let Some(asked) = self.asked else {
            return true;
        };
        let every = if self.is_sized {
            SIZE_EVERY
        } else {
            SIZE_AGAIN
        };
        asked.elapsed() >= every || prepared.is_some_and(|prepared| prepared > asked)
    }
}

async fn in_time(
    measuring: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), StoreError> {
    let too_slow = |elapsed| Err(StoreError::unavailable("measuring", elapsed));
    let measured = timeout(PATIENCE, measuring).await;
    measured.unwrap_or_else(too_slow)
}

const MEASURE_EVERY: Duration = Duration::from_secs(30);
const SIZE_EVERY: Duration = Duration::from_mins(15);
const SIZE_AGAIN: Duration = Duration::from_mins(2);
/// A count of what a database holds may take a while.
const PATIENCE: Duration = Duration::from_mins(1);
