//! What a running sweeper counts, and measures beside its sweeps.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum_idempotency::{
    ResourceId, ScopedKey, Sweeper, Tombstone,
    archive::{Archive, MemoryArchive},
    inspect::{ArchiveCensus, ArchiveGauges, InspectArchive, OpenQuery, OpenRecord, PerMinute},
    store::{StoreError, StoreIdentity},
};
use jiff::Timestamp;
use tokio::time::sleep;

use super::{KEY, Measured, PRINCIPAL, archived};
use crate::support::{Backend, Fault, Shop, Verb, on_every_backend, on_tokio_time};

on_every_backend!(what_store_and_archive_hold_is_measured_at_the_start,);

on_tokio_time!(
    a_stuck_sweep_does_not_stop_the_gauges,
    a_sweep_that_fails_is_counted_and_its_backlog_is_seen,
    days_until_the_newest_partition_ends_are_told_soon_after_it_was_made,
    an_archive_without_partitions_has_no_newest_one,
);

pub(super) const BACKLOG: &str = "idempotency_expired_backlog";
pub(super) const ARCHIVED: &str = "idempotency_archived_total";
pub(super) const ERRORS: &str = "idempotency_sweep_errors_total";
pub(super) const ROWS: &str = "idempotency_archive_rows";
const BYTES: &str = "idempotency_archive_bytes";
const DAYS: &str = "idempotency_archive_newest_partition_days";

const DAY: Duration = Duration::from_hours(24);

pub(super) async fn runs(shop: &Shop, key: &str) {
    let answer = shop.post("/charges").from(PRINCIPAL).key(key).send().await;
    assert_eq!(answer.status, 201);
}

/// One row is archived already, and one waits, when a sweeper starts; it has
/// nothing to do with what it measures first.
async fn what_store_and_archive_hold_is_measured_at_the_start(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().open().await;
    runs(&shop, KEY).await;
    backend.clock.advance(2 * DAY);
    backend.sweep().await;
    let archive = backend.archive();
    let inspected = archive.inspect().expect("an archive that can tell");
    let gauges = inspected.gauges().await.expect("the archive answers");
    let is_partitioned = gauges.newest_partition_until.is_some();

    let sweeper = Sweeper::new(backend.process()).archive(archive.clone());
    let running = sweeper.start();
    let last = if is_partitioned { DAYS } else { ROWS };
    while measured.scrape().value(last, &[]).is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    let scrape = measured.scrape();
    scrape.has(ROWS, &[], 1.0);
    scrape.has(BACKLOG, &[], 0.0);
    scrape.has(ARCHIVED, &[], archived(&backend));
    let bytes = scrape.value(BYTES, &[]);
    assert_eq!(bytes.is_some(), gauges.bytes.is_some(), "{scrape:?}");
    assert!(bytes.is_none_or(|bytes| bytes > 0.0), "{scrape:?}");
    if let Some(until) = gauges.newest_partition_until {
        let left = until.duration_since(axum_idempotency::Clock::now(&backend.clock));
        let days = left.as_secs_f64() / 86_400.0;
        let told = scrape.value(DAYS, &[]).expect("the archive has partitions");
        assert!((told - days).abs() < 0.01, "{told} days, not {days}");
        assert!(
            told > 62.0,
            "sweeps make partitions two months ahead: {told}"
        );
    }
    running.stop().await;
}

/// 1. The archive does not answer, and the sweep waits for it.
/// 2. More expires: the backlog is seen to grow.
/// 3. The archive is back: all of it is moved, and nothing waits.
async fn a_stuck_sweep_does_not_stop_the_gauges(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().in_memory();
    let archive = backend.archive();
    archive.always(Verb::Insert, Fault::Hangs);
    runs(&shop, KEY).await;
    runs(&shop, "second").await;
    backend.clock.advance(2 * DAY);
    let sweeper = Sweeper::new(backend.process()).archive(archive.clone());
    let running = sweeper.start();
    archive.begun(Verb::Insert, 1).await;
    sleep(Duration::from_secs(1)).await;
    measured.scrape().has(BACKLOG, &[], 2.0);

    runs(&shop, "third").await;
    backend.clock.advance(2 * DAY);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(archive.calls(Verb::Insert), 1, "the sweep is not stuck");
    let scrape = measured.scrape();
    scrape.has(BACKLOG, &[], 3.0);
    scrape.has(ARCHIVED, &[], 0.0);
    scrape.has(ERRORS, &[], 0.0);

    archive.heal(Verb::Insert);
    sleep(Duration::from_mins(2)).await;
    let scrape = measured.scrape();
    scrape.has(BACKLOG, &[], 0.0);
    scrape.has(ARCHIVED, &[], 3.0);
    scrape.has(ERRORS, &[], 1.0);
    running.stop().await;

    // A sweeper that was stopped measures nothing more.
    runs(&shop, "fourth").await;
    backend.clock.advance(2 * DAY);
    sleep(Duration::from_hours(1)).await;
    measured.scrape().has(BACKLOG, &[], 0.0);
}

async fn a_sweep_that_fails_is_counted_and_its_backlog_is_seen(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().in_memory();
    let archive = backend.archive();
    archive.always(Verb::Insert, Fault::DOWN);
    runs(&shop, KEY).await;
    backend.clock.advance(2 * DAY);
    let running = Sweeper::new(backend.process())
        .archive(archive.clone())
        .start();
    archive.answered(Verb::Insert, 3).await;
    sleep(Duration::from_secs(1)).await;
    let scrape = measured.scrape();
    scrape.has(ERRORS, &[], 3.0);
    scrape.has(BACKLOG, &[], 1.0);
    scrape.has(ARCHIVED, &[], 0.0);
    running.stop().await;
}

async fn days_until_the_newest_partition_ends_are_told_soon_after_it_was_made(backend: Backend) {
    let measured = Measured::begin();
    let archive = Partitioned::default();
    let sweeper = Sweeper::new(backend.process()).archive(archive.clone());
    let running = sweeper.longest_ttl(7 * DAY).start();
    sleep(Duration::from_secs(31)).await;
    let made = *archive.until.lock().expect("nothing panics here");
    assert!(made.is_some(), "the sweeper made no partition");
    let told = measured.scrape().value(DAYS, &[]);
    let told = told.expect("told at the next round");
    assert!((told - 69.0).abs() < 0.01, "TTL and two months, not {told}");

    // They become less without anybody asking the archive.
    backend.clock.advance(10 * DAY);
    sleep(Duration::from_secs(30)).await;
    let told = measured.scrape().value(DAYS, &[]);
    let told = told.expect("it was there before");
    assert!((told - 59.0).abs() < 0.01, "ten days later {told}");
    measured.scrape().has(BYTES, &[], 0.0);
    running.stop().await;
}

async fn an_archive_without_partitions_has_no_newest_one(backend: Backend) {
    let measured = Measured::begin();
    let sweeper = Sweeper::new(backend.process()).archive(backend.archive());
    let running = sweeper.start();
    sleep(Duration::from_hours(1)).await;
    let scrape = measured.scrape();
    scrape.has(ROWS, &[], 0.0);
    assert_eq!(scrape.value(DAYS, &[]), None);
    running.stop().await;
}

/// An archive in memory that has room until a time only. Clones are one.
#[derive(Clone, Debug, Default)]
struct Partitioned {
    rows: MemoryArchive,
    until: Arc<Mutex<Option<Timestamp>>>,
}

impl Partitioned {
    fn inspected(&self) -> &dyn InspectArchive {
        self.rows.inspect().expect("an archive that can tell")
    }
}

#[async_trait]
impl Archive for Partitioned {
    fn within(&self) -> Option<StoreIdentity> {
        self.rows.within()
    }

    fn retention(&self) -> Option<Duration> {
        self.rows.retention()
    }

    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        self.rows.lookup(key, not_before).await
    }

    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError> {
        self.rows.insert(rows).await
    }

    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        self.rows.amend(key, status, resource_id).await
    }

    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.rows.prune(now, limit).await
    }

    async fn prepare(&self, _from: Timestamp, until: Timestamp) -> Result<(), StoreError> {
        // As a database would, after the first round of the gauges.
        sleep(Duration::from_secs(1)).await;
        *self.until.lock().expect("nothing panics here") = Some(until);
        Ok(())
    }

    fn inspect(&self) -> Option<&dyn InspectArchive> {
        Some(self)
    }
}

#[async_trait]
impl InspectArchive for Partitioned {
    async fn gauges(&self) -> Result<ArchiveGauges, StoreError> {
        let gauges = self.inspected().gauges().await?;
        let until = *self.until.lock().expect("nothing panics here");
        Ok(ArchiveGauges {
            bytes: Some(0),
            newest_partition_until: until,
            ..gauges
        })
    }

    async fn census(&self) -> Result<ArchiveCensus, StoreError> {
        self.inspected().census().await
    }

    async fn history(&self, key: ScopedKey) -> Result<Vec<Tombstone>, StoreError> {
        self.inspected().history(key).await
    }

    async fn newest(&self) -> Result<Option<Tombstone>, StoreError> {
        self.inspected().newest().await
    }

    async fn expired_since(&self, from: Timestamp) -> Result<u64, StoreError> {
        self.inspected().expired_since(from).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        self.inspected().open_at(query).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        self.inspected().claimed_per_minute(from, until).await
    }
}
