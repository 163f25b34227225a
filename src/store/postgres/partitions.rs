//! The partitions of the archive, made before they are needed and retired when
//! all their rows are past the retention.
//!
//! 1. **Made apart, then attached; detached, then dropped**: neither locks the
//!    archive for longer than a change of the catalogue takes.
//! 2. **A step is a short transaction of its own**, never that of a sweep. It
//!    gives up its place in the queue for a lock after 40 ms, since a lookup
//!    that comes later waits behind it, and tries again after a pause.
//! 3. **One process at a time**, under a transaction-level advisory lock. Each
//!    step looks at what is there and does what is next, so that it goes on
//!    from where another run was interrupted.
//! 4. **Nothing of others is touched.** A detached table is dropped if its
//!    comment says that this module retired it.

use std::{collections::BTreeSet, future::Future, time::Duration};

use jiff::Timestamp;
use tokio::time::sleep;

use super::{
    database::{Database, Operation},
    error::Failure,
    partition::{Detach, DropRetired, List, Made, Make, Measure, Newest},
    upkeep::Now,
};
use crate::{
    clock::after,
    inspect::PartitionCensus,
    partition::{Month, Partition},
    record::Tombstone,
    store::StoreError,
};

/// All there are, oldest first.
pub(crate) async fn list(db: &Database) -> Result<Vec<Partition>, StoreError> {
    let attached = patiently(db, &List).await?;
    Ok(attached.into_iter().map(|one| one.partition).collect())
}

/// The rows and the size of all there are, oldest first.
pub(crate) async fn measure(db: &Database) -> Result<Vec<PartitionCensus>, StoreError> {
    patiently(db, &Measure).await
}

/// The archived row that expired last.
pub(crate) async fn newest(db: &Database) -> Result<Option<Tombstone>, StoreError> {
    patiently(db, &Newest).await
}

/// Makes what is missing for the months from `from` through `until`.
pub(crate) async fn prepare(
    db: &Database,
    from: Timestamp,
    until: Timestamp,
) -> Result<(), StoreError> {
    drop_retired(db).await?;
    for month in missing(db, Month::span(from, until).rev().take(MOST_MONTHS)).await? {
        make(db, month).await?;
    }
    Ok(())
}

/// The same for what is written in the next two months.
pub(crate) async fn prepare_ahead(db: &Database) -> Result<(), StoreError> {
    let now = db.run(&Now).await?;
    prepare(db, now, after(now, TWO_MONTHS)).await
}

/// Retires partitions all of whose rows expired before `expired_by`, oldest
/// first, until so many rows are gone. How many those were.
pub(crate) async fn retire(
    db: &Database,
    expired_by: Timestamp,
    rows: u32,
) -> Result<u64, StoreError> {
    let mut retired = 0;
    while retired < u64::from(rows) {
        let Some(detached) = patiently(db, &Detach { expired_by }).await? else {
            break;
        };
        retired += detached.rows;
        drop_retired(db).await?;
        tracing::info!(
            partition = detached.name,
            rows = detached.rows,
            "a partition of the archive is past the retention: it was dropped"
        );
    }
    Ok(retired)
}

/// What writes into the archive.
pub(crate) trait IntoArchive: Operation {
    /// The months in which its rows expired.
    fn months(
        &self,
        db: &Database,
    ) -> impl Future<Output = Result<BTreeSet<Month>, StoreError>> + Send;
}

/// Runs `operation`. Where a partition is missing, it is made, and the operation
/// run again: it was undone as a whole, so that nothing is lost.
pub(crate) async fn run_with_room<O: IntoArchive>(
    db: &Database,
    operation: &O,
) -> Result<O::Answer, StoreError> {
    db.check_open(O::WHAT)?;
    let mut tries = 0;
    loop {
        match db.run_on(&mut None, operation).await {
            // More rows may expire meanwhile.
            Err(failure) if failure.is_missing_partition() && tries < MOST_TRIES => tries += 1,
            ran => return ran.map_err(|failure| failure.into_store_error(O::WHAT)),
        }
        for month in missing(db, operation.months(db).await?).await? {
            tracing::error!(
                partition = month.table(),
                "the archive had no partition for rows of this month: it is made now. Does a \
                 sweeper run all the time, and may it make partitions?"
            );
            make(db, month).await?;
        }
    }
}

/// Those of `months` that have no partition, or not all of one.
async fn missing(
    db: &Database,
    months: impl IntoIterator<Item = Month>,
) -> Result<Vec<Month>, StoreError> {
    let there = list(db).await?;
    let is_missing = |month: &Month| !month.is_within(&there);
    Ok(months.into_iter().filter(is_missing).collect())
}

async fn make(db: &Database, month: Month) -> Result<(), StoreError> {
    while patiently(db, &Make(month)).await? == Made::ToBeContinued {}
    Ok(())
}

/// Among what is dropped is what an interrupted run left.
async fn drop_retired(db: &Database) -> Result<(), StoreError> {
    while patiently(db, &DropRetired).await? {}
    Ok(())
}

/// Runs a step, again for as long as somebody holds what it would lock.
async fn patiently<O: Operation>(db: &Database, step: &O) -> Result<O::Answer, StoreError> {
    db.check_open(O::WHAT)?;
    let mut pause = FIRST_PAUSE;
    for _ in 1..MOST_ATTEMPTS {
        match db.run_on(&mut None, step).await {
            Err(failure) if failure.is_locked() => sleep(pause).await,
            ran => return ran.map_err(|failure| refused(failure, O::WHAT)),
        }
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
    let last = db.run_on(&mut None, step).await;
    last.map_err(|failure| refused(failure, O::WHAT))
}

fn refused(failure: Failure, what: &'static str) -> StoreError {
    let remedy = match failure.code().as_deref() {
        Some("42501") => {
            "a permission is missing: let this role own the table idempotency_key_archive and \
             create in its schema, or make the partitions ahead of time as its owner"
        }
        // Another kind of object, other columns, other bounds, other rows.
        Some("42P07" | "42809" | "42804" | "42P16" | "42P17" | "23514") => {
            "something is in the way of a partition of idempotency_key_archive: rename or remove \
             what has its name, its months or its rows"
        }
        _ => return failure.into_store_error(what),
    };
    StoreError::setup(remedy, failure.into_store_error(what))
}

/// However long the months are.
const TWO_MONTHS: Duration = Duration::from_hours(24 * 62);

/// Of one preparation: twenty years. A row from before is made room for when it
/// is moved.
const MOST_MONTHS: usize = 240;

const MOST_TRIES: u32 = 3;

/// Ten attempts and their pauses come to about six seconds.
const MOST_ATTEMPTS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
