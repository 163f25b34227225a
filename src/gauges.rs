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
    /// When the sizes were measured: for them an archive may read all it has.
    sized: Option<Instant>,
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
            sized: None,
            partitioned_until: None,
            has_failed: false,
        }
    }

    /// Measures again and again.
    pub(crate) async fn measure_for_ever(mut self) {
        loop {
            self.measure_once().await;
            tokio::time::sleep(MEASURE_EVERY).await;
        }
    }

    /// Measures what is due. What cannot be told keeps its last value.
    pub(crate) async fn measure_once(&mut self) {
        let measured = timeout(PATIENCE, self.measured()).await;
        let too_slow = |elapsed| Err(StoreError::unavailable("measuring", elapsed));
        let measured = measured.unwrap_or_else(too_slow);
        if let Err(error) = &measured
            && !self.has_failed
        {
            tracing::warn!(error = %error.causes(), "the gauges could not be measured: they keep their values");
        }
        self.has_failed = measured.is_err();
    }

    async fn measured(&mut self) -> Result<(), StoreError> {
        if let Some(store) = self.store.inspect() {
            metrics::expired_backlog(store.backlog().await?);
        }
        let is_young = |sized: Instant| sized.elapsed() < SIZE_EVERY;
        if let Some(archive) = self.archive.as_deref().and_then(Archive::inspect)
            && !self.sized.is_some_and(is_young)
        {
            let gauges = archive.gauges().await?;
            metrics::archive_size(gauges.rows, gauges.bytes);
            self.partitioned_until = gauges.newest_partition_until;
            self.sized = Some(Instant::now());
        }
        if let Some(until) = self.partitioned_until {
            metrics::archive_partitioned_for(until.duration_since(self.store.now().await?));
        }
        Ok(())
    }
}

const MEASURE_EVERY: Duration = Duration::from_secs(30);
const SIZE_EVERY: Duration = Duration::from_mins(15);
/// A count of what a database holds may take a while.
const PATIENCE: Duration = Duration::from_mins(1);
