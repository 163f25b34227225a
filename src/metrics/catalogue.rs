//! The metrics as data: for a recorder's descriptions, and for the tests that
//! hold documents, rules and code to one list.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

/// Their names.
pub(crate) mod names {
    pub(crate) const REQUESTS: &str = "idempotency_requests_total";
    pub(crate) const IN_FLIGHT: &str = "idempotency_in_flight";
    pub(crate) const STORE_CALL_DURATION: &str = "idempotency_store_call_duration_ms";
    pub(crate) const BATCH_ROWS: &str = "idempotency_batch_rows";
    pub(crate) const LEASE_RENEWALS_LATE: &str = "idempotency_lease_renewals_late_total";
    pub(crate) const FENCED_COMPLETIONS: &str = "idempotency_fenced_completions_total";
    pub(crate) const EXPIRED_REPLAY: &str = "idempotency_expired_replay_total";
    pub(crate) const ARCHIVE_LOOKUP_DURATION: &str = "idempotency_archive_lookup_duration_ms";
    pub(crate) const ARCHIVED: &str = "idempotency_archived_total";
    pub(crate) const SWEEP_ERRORS: &str = "idempotency_sweep_errors_total";
    pub(crate) const EXPIRED_BACKLOG: &str = "idempotency_expired_backlog";
    pub(crate) const ARCHIVE_ROWS: &str = "idempotency_archive_rows";
    pub(crate) const ARCHIVE_BYTES: &str = "idempotency_archive_bytes";
    pub(crate) const ARCHIVE_NEWEST_PARTITION_DAYS: &str =
        "idempotency_archive_newest_partition_days";
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it counts or measures.
    pub unit: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub help: &'static str,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It is what it is now.
    Gauge,
    /// It is many values, in [`LATENCY_BUCKETS_MS`] or [`ROW_BUCKETS`].
    Histogram,
}

/// Every metric of this crate.
pub const CATALOGUE: &[Metric] = &[
    Metric {
        name: names::REQUESTS,
        kind: Kind::Counter,
        unit: "requests",
        labels: &["outcome"],
        help: "Requests that a policy covers, by their outcome.",
    },
    Metric {
        name: names::IN_FLIGHT,
        kind: Kind::Gauge,
        unit: "requests",
        labels: &[],
        help: "Attempts of this process that own a record now.",
    },
    Metric {
        name: names::STORE_CALL_DURATION,
        kind: Kind::Histogram,
        unit: "milliseconds",
        labels: &["call", "result"],
        help: "Calls of the live store.",
    },
    Metric {
        name: names::BATCH_ROWS,
        kind: Kind::Histogram,
        unit: "rows",
        labels: &["statement"],
        help: "Rows of one group-committed batch.",
    },
    Metric {
        name: names::LEASE_RENEWALS_LATE,
        kind: Kind::Counter,
        unit: "leases",
        labels: &[],
        help: "Leases renewed only after two thirds of them were over, or not at all.",
    },
    Metric {
        name: names::FENCED_COMPLETIONS,
        kind: Kind::Counter,
        unit: "attempts",
        labels: &[],
        help: "Attempts whose outcome was not recorded: another one had taken over, or the record had expired.",
    },
    Metric {
        name: names::EXPIRED_REPLAY,
        kind: Kind::Counter,
        unit: "requests",
        labels: &[],
        help: "Late retries that were answered idempotency_key_expired.",
    },
    Metric {
        name: names::ARCHIVE_LOOKUP_DURATION,
        kind: Kind::Histogram,
        unit: "milliseconds",
        labels: &["result"],
        help: "Point lookups in the archive, on the way of a fresh key.",
    },
    Metric {
        name: names::ARCHIVED,
        kind: Kind::Counter,
        unit: "rows",
        labels: &[],
        help: "Rows that sweeps moved out of the live store, and outcomes archived as they were recorded.",
    },
    Metric {
        name: names::SWEEP_ERRORS,
        kind: Kind::Counter,
        unit: "sweeps",
        labels: &[],
        help: "Sweeps that ended in an error.",
    },
    Metric {
        name: names::EXPIRED_BACKLOG,
        kind: Kind::Gauge,
        unit: "rows",
        labels: &[],
        help: "Live rows past their expiry, which wait for a sweep.",
    },
    Metric {
        name: names::ARCHIVE_ROWS,
        kind: Kind::Gauge,
        unit: "rows",
        labels: &[],
        help: "Rows of the archive; of a large one an estimate.",
    },
    Metric {
        name: names::ARCHIVE_BYTES,
        kind: Kind::Gauge,
        unit: "bytes",
        labels: &[],
        help: "What the archive takes up with its indexes.",
    },
    Metric {
        name: names::ARCHIVE_NEWEST_PARTITION_DAYS,
        kind: Kind::Gauge,
        unit: "days",
        labels: &[],
        help: "Days until the archive's newest partition ends.",
    },
];

/// Bounds for histograms of durations, so that the p99 of a lookup can be told
/// from 5 ms, its limit. In milliseconds.
pub const LATENCY_BUCKETS_MS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0,
    2_500.0, 5_000.0,
];

/// Bounds for `idempotency_batch_rows`. In rows.
pub const ROW_BUCKETS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0,
];

/// Tells the installed recorder what each metric is, and begins the counters
/// without labels at 0, so that their first increment is seen as one. Call it once
/// a recorder is installed.
pub fn describe() {
    for metric in CATALOGUE {
        let unit = match metric.unit {
            "milliseconds" => Unit::Milliseconds,
            "bytes" => Unit::Bytes,
            _ => Unit::Count,
        };
        match metric.kind {
            Kind::Counter => {
                describe_counter!(metric.name, unit, metric.help);
                if metric.labels.is_empty() {
                    counter!(metric.name).increment(0);
                }
            }
            Kind::Gauge => describe_gauge!(metric.name, unit, metric.help),
            Kind::Histogram => describe_histogram!(metric.name, unit, metric.help),
        }
    }
}
