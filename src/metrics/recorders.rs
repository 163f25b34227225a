//! One typed function for each thing that is counted. See `off` for what stands
//! in for them without the feature.

use std::time::Duration;

use jiff::SignedDuration;
use metrics::{Gauge, counter, gauge, histogram};

use super::catalogue::names;

/// A request that a policy covers has its outcome.
pub(crate) fn request(outcome: &'static str) {
    counter!(names::REQUESTS, "outcome" => outcome).increment(1);
}

/// A late retry was refused.
pub(crate) fn expired_replay() {
    counter!(names::EXPIRED_REPLAY).increment(1);
}

/// The archive was asked about a key. `found` is `None` where it did not answer.
pub(crate) fn archive_lookup(took: Duration, found: Option<bool>) {
    let result = match found {
        Some(true) => "hit",
        Some(false) => "miss",
        None => "error",
    };
    histogram!(names::ARCHIVE_LOOKUP_DURATION, "result" => result).record(millis(took));
}

/// The store was called.
pub(crate) fn store_call(call: &'static str, took: Duration, result: &'static str) {
    histogram!(names::STORE_CALL_DURATION, "call" => call, "result" => result).record(millis(took));
}

/// A group of calls went together.
pub(crate) fn batch(statement: &'static str, rows: usize) {
    histogram!(names::BATCH_ROWS, "statement" => statement).record(count(rows as u64));
}

/// Leases were renewed late, or not at all.
pub(crate) fn late_renewals(leases: u64) {
    counter!(names::LEASE_RENEWALS_LATE).increment(leases);
}

/// An outcome was not recorded, since its attempt owned the record no longer.
pub(crate) fn fenced_completion() {
    counter!(names::FENCED_COMPLETIONS).increment(1);
}

/// Rows went from the live store to the archive.
pub(crate) fn archived(rows: u64) {
    counter!(names::ARCHIVED).increment(rows);
}

/// A sweep ended in an error.
pub(crate) fn sweep_error() {
    counter!(names::SWEEP_ERRORS).increment(1);
}

/// So many rows wait for a sweep.
pub(crate) fn expired_backlog(rows: u64) {
    gauge!(names::EXPIRED_BACKLOG).set(count(rows));
}

/// An archive holds so much.
pub(crate) fn archive_size(rows: u64, bytes: Option<u64>) {
    gauge!(names::ARCHIVE_ROWS).set(count(rows));
    if let Some(bytes) = bytes {
        gauge!(names::ARCHIVE_BYTES).set(count(bytes));
    }
}

/// The newest partition of an archive ends after this time.
pub(crate) fn archive_partitioned_for(time: SignedDuration) {
    let days = time.as_secs_f64() / 86_400.0;
    gauge!(names::ARCHIVE_NEWEST_PARTITION_DAYS).set(days);
}

/// An attempt owns a record for as long as this lives.
pub(crate) struct InFlight(Gauge);

impl InFlight {
    pub(crate) fn begin() -> Self {
        let gauge = gauge!(names::IN_FLIGHT);
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InFlight")
    }
}

/// Exact up to 2^53, which is more than there is of anything.
#[expect(clippy::cast_precision_loss)]
fn count(things: u64) -> f64 {
    things as f64
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
