//! What is counted and timed, through the [`metrics`](https://docs.rs/metrics)
//! facade: install a recorder of your choice, such as that of
//! `metrics-exporter-prometheus`, and they are there. Without a recorder, and
//! without the feature `metrics`, they cost next to nothing.
//!
//! No label holds a key or a principal: each has a few values that are known
//! beforehand.
//!
//! | name | kind | unit | labels | what |
//! | --- | --- | --- | --- | --- |
//! | `idempotency_requests_total` | counter | requests | `outcome` | Requests that a policy covers, by their [outcome](crate::RequestOutcome). |
//! | `idempotency_in_flight` | gauge | requests | | Attempts of this process that own a record now: handlers that run, and outcomes on their way to the store. |
//! | `idempotency_store_call_duration_ms` | histogram | milliseconds | `call`, `result` | Calls of the live store, by the name of the method; `result` is `ok`, `error`, or `given_up` where the caller had no more patience. |
//! | `idempotency_batch_rows` | histogram | rows | `statement` | Rows of one group-committed batch: claims, completions, renewals or releases in PostgreSQL (`claim`, `complete`, `renew`, `release`), a transaction of them in SQLite (`transaction`), an insertion of outcomes into the archive beside Redis (`archive`). |
//! | `idempotency_lease_renewals_late_total` | counter | leases | | Leases that were renewed only after two thirds of them were over, or not at all: the store is slow, or the process is short of time. |
//! | `idempotency_fenced_completions_total` | counter | attempts | | Attempts whose outcome was not recorded because another one had taken over, or the record had expired. Each may have had its effect twice. |
//! | `idempotency_expired_replay_total` | counter | requests | | Late retries that were answered `idempotency_key_expired`. |
//! | `idempotency_archive_lookup_duration_ms` | histogram | milliseconds | `result` | Point lookups in the archive, on the way of a fresh key; `result` is `hit`, `miss` or `error`. |
//! | `idempotency_archived_total` | counter | rows | | Rows that sweeps moved out of the live store, and outcomes that were archived as they were recorded, beside Redis. |
//! | `idempotency_sweep_errors_total` | counter | sweeps | | Sweeps that ended in an error. |
//! | `idempotency_expired_backlog` | gauge | rows | | Live rows past their expiry, which wait for a sweep. |
//! | `idempotency_archive_rows` | gauge | rows | | Rows of the archive; of a large one an estimate. |
//! | `idempotency_archive_bytes` | gauge | bytes | | What they take up with their indexes. |
//! | `idempotency_archive_newest_partition_days` | gauge | days | | Days until the newest partition ends, by the store's clock. |
//!
//! The last four are measured by a [`Sweeper`](crate::Sweeper) in the background:
//! the backlog every 30 s, those of the archive every 15 min and after it was given
//! new partitions. A gauge that its store or archive cannot tell is not there. Each
//! process measures for itself, so that of several the largest counts, not the sum.

#[cfg(feature = "metrics")]
mod catalogue;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod recorders;

#[cfg(feature = "metrics")]
pub use self::catalogue::{CATALOGUE, Kind, LATENCY_BUCKETS_MS, Metric, ROW_BUCKETS, describe};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::off::*;
#[cfg(feature = "metrics")]
pub(crate) use self::recorders::*;
