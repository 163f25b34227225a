//! A sweeper tells its archive for which months it needs room, and a memory
//! archive keeps its rows to the moment.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum_idempotency::{
    Clock as _, ManualClock, ResourceId, ScopedKey, Sweeper, Tombstone,
    archive::{Archive, MemoryArchive},
    store::{MemoryStore, Store as _, StoreError, StoreIdentity},
};
use jiff::Timestamp;
use tokio::time::advance;

use crate::support::{
    Logs,
    attempt::{fingerprint, key, leased, request},
};

const DAY: Duration = Duration::from_hours(24);
const TWO_MONTHS: Duration = Duration::from_hours(24 * 62);

/// An archive that notes what it is asked to prepare for. Clones are one.
#[derive(Clone, Debug, Default)]
struct Noting {
    rows: MemoryArchive,
    spans: Arc<Mutex<Vec<(Timestamp, Timestamp)>>>,
    is_failing: Arc<AtomicBool>,
}

impl Noting {
    fn spans(&self) -> Vec<(Timestamp, Timestamp)> {
        self.spans.lock().expect("nothing panics here").clone()
    }
}

#[async_trait]
impl Archive for Noting {
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

    async fn prepare(&self, from: Timestamp, until: Timestamp) -> Result<(), StoreError> {
        let mut spans = self.spans.lock().expect("nothing panics here");
        spans.push((from, until));
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("making room", "as the test asked"));
        }
        Ok(())
    }
}

fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}

/// A key whose record expires a day from now.
async fn claim(store: &MemoryStore, name: &str) {
    let claimed = store.claim(request(key(name))).await;
    leased(claimed.expect("an answer"));
}

#[tokio::test(start_paused = true)]
async fn an_archive_is_prepared_first_and_then_once_a_day() {
    let (clock, archive) = (ManualClock::default(), Noting::default());
    let sweeper = Sweeper::new(store(&clock)).archive(archive.clone());
    let sweep = async || sweeper.sweep_once().await.expect("a sweep");
    for (hours, prepared) in [(0, 1), (1, 1), (22, 1), (1, 2), (23, 2), (1, 3)] {
        advance(Duration::from_hours(hours)).await;
        sweep().await;
        assert_eq!(archive.spans().len(), prepared, "{hours} hours later");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_prepared_from_the_oldest_expired_row_to_two_months_beyond_the_longest_ttl() {
    let (clock, archive) = (ManualClock::default(), Noting::default());
    let store = store(&clock);
    let sweeper = || Sweeper::new(store.clone()).archive(archive.clone());
    let begun = clock.now();
    sweeper().sweep_once().await.expect("a sweep");
    claim(&store, "first").await;
    clock.advance(DAY);
    claim(&store, "second").await;
    clock.advance(400 * DAY);
    let late = sweeper().longest_ttl(90 * DAY);
    late.sweep_once().await.expect("a sweep");
    let expected = [
        (begun, begun + 31 * DAY + TWO_MONTHS),
        (begun + DAY, clock.now() + 90 * DAY + TWO_MONTHS),
    ];
    assert_eq!(archive.spans(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_preparation_that_fails_is_reported_and_keeps_nothing_from_being_swept() {
    let (clock, archive) = (ManualClock::default(), Noting::default());
    let store = store(&clock);
    let logs = Logs::capture();
    archive.is_failing.store(true, Ordering::SeqCst);
    let sweeper = Sweeper::new(store.clone()).archive(archive.clone());
    claim(&store, "k").await;
    clock.advance(DAY);
    let swept = sweeper.sweep_once().await.expect("a sweep");
    assert_eq!(swept.archived, 1, "rows that were swept nevertheless");
    let text = logs.text();
    assert!(
        text.contains("ERROR") && text.contains("as the test asked"),
        "{text}"
    );

    // It is tried again with the next sweep, then not until a day later.
    archive.is_failing.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        sweeper.sweep_once().await.expect("a sweep");
    }
    assert_eq!(archive.spans().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_archive_is_prepared_anew() {
    let (clock, first, second) = (ManualClock::default(), Noting::default(), Noting::default());
    let sweeper = Sweeper::new(store(&clock)).archive(first.clone());
    sweeper.sweep_once().await.expect("a sweep");
    sweeper.clone().sweep_once().await.expect("a sweep");
    assert_eq!(first.spans().len(), 1, "clones share what was prepared");
    let other = sweeper.archive(second.clone());
    other.sweep_once().await.expect("a sweep");
    assert_eq!(second.spans().len(), 1);
}

#[tokio::test]
async fn a_memory_archive_keeps_its_rows_to_the_moment() {
    let archive = MemoryArchive::new().with_retention(365 * DAY);
    let now = ManualClock::default().now();
    let row = |name: &str, expired_at: Timestamp| Tombstone {
        key: key(name),
        fingerprint: fingerprint(1),
        status: 201,
        resource_id: None,
        created_at: expired_at - DAY,
        expired_at,
    };
    let moment = Duration::from_micros(1);
    let bound = now - 365 * DAY;
    let rows = [
        row("past", bound - moment),
        row("within", bound),
        row("young", now),
    ];
    archive.insert(&rows).await.expect("inserted");
    let prune = async |now| archive.prune(now, 10).await.expect("an answer");
    assert_eq!(prune(now).await, 1);
    assert_eq!(prune(now).await, 0);
    assert_eq!(prune(now + moment).await, 1);
    let found = archive.lookup(key("young"), None).await;
    assert!(found.expect("an answer").is_some());
}
