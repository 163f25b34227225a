//! The overview.

use std::process::ExitCode;

use axum_idempotency::{
    connect::{Backend, Connection},
    inspect::{ArchiveCensus, PartitionCensus, StoreCensus},
};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Context,
    fault::Fault,
    output::{bytes, count, millis, moment, or_dash, span, table, time},
    time::{DAY, between},
};

/// The overview: counts and sizes.
///
/// Records by state, the backlog of the sweep, the published TTLs, the archive
/// and its newest partition.
///
/// It may read whole tables. Rows of a large archive are an estimate.
#[derive(Args, Debug)]
pub(crate) struct Stats {}

impl Stats {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let connection = context.open().await?;
        let inspector = connection.inspector();
        let now = inspector.now().await?;
        let overview = inspector.overview().await?;
        connection.close().await;
        let (store, archive) = (overview.store, overview.archive);
        let document = json!({
            "now": now.to_string(),
            "store_backend": connection.store_backend().as_str(),
            "store": store.as_ref().map(store_json),
            "archive_backend": connection.archive_backend().map(Backend::as_str),
            "archive": archive.as_ref().map(|archive| archive_json(archive, now)),
        });
        context.output.show(&document, || {
            let mut lines = store_lines(&connection, store.as_ref());
            lines.extend(archive_lines(&connection, archive.as_ref(), now));
            table(&lines)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn store_json(store: &StoreCensus) -> Value {
    let ttls = store.ttls;
    json!({
        "records": store.records(),
        "running": store.running,
        "lapsed": store.lapsed,
        "completed": store.completed,
        "expired": store.expired,
        "oldest_expired": time(store.oldest_expired),
        "bytes": store.bytes,
        "smallest_ttl_ms": ttls.map(|ttls| millis(ttls.smallest)),
        "largest_ttl_ms": ttls.map(|ttls| millis(ttls.largest)),
    })
}

fn archive_json(archive: &ArchiveCensus, now: Timestamp) -> Value {
    let newest = newest_partition(archive);
    json!({
        "rows": archive.rows,
        "bytes": archive.bytes,
        "bytes_per_row": bytes_per_row(archive),
        "is_partitioned": archive.is_partitioned,
        "newest_partition_until": time(newest.map(|newest| newest.until)),
        "newest_partition_days": newest.map(|newest| days(now, newest.until)),
        "months": archive.months.len(),
    })
}

fn store_lines(connection: &Connection, store: Option<&StoreCensus>) -> Vec<Vec<String>> {
    let backend = connection.store_backend().as_str();
    let mut lines = vec![pair("store", backend)];
    let Some(store) = store else {
        lines.push(pair("  records", "this store cannot tell"));
        return lines;
    };
    let waits = between(store.oldest_expired.unwrap_or(store.now), store.now);
    lines.extend([
        pair("  records", count(store.records())),
        pair("    running, under a live lease", count(store.running)),
        pair("    lapsed, without an outcome", count(store.lapsed)),
        pair("    completed", count(store.completed)),
        pair("    expired, wait for the sweep", count(store.expired)),
    ]);
    if let Some(oldest) = store.oldest_expired {
        let oldest = format!("{} ({} ago)", moment(oldest), span(waits));
        lines.push(pair("    the oldest of them since", oldest));
    }
    lines.push(pair("  size", or_dash(store.bytes.map(bytes))));
    let ttls = store.ttls.map(|ttls| match (ttls.smallest, ttls.largest) {
        (smallest, largest) if smallest == largest => span(largest),
        (smallest, largest) => format!("{} to {}", span(smallest), span(largest)),
    });
    lines.push(pair("  published TTLs", or_dash(ttls)));
    lines
}

fn archive_lines(
    connection: &Connection,
    archive: Option<&ArchiveCensus>,
    now: Timestamp,
) -> Vec<Vec<String>> {
    let Some(backend) = connection.archive_backend() else {
        return vec![pair("archive", "none")];
    };
    let mut lines = vec![pair("archive", backend.as_str())];
    let Some(archive) = archive else {
        lines.push(pair("  rows", "this archive cannot tell"));
        return lines;
    };
    lines.extend([
        pair("  rows", count(archive.rows)),
        pair("  size", or_dash(archive.bytes.map(bytes))),
        pair(
            "  bytes per row",
            or_dash(bytes_per_row(archive).map(count)),
        ),
    ]);
    let newest = match newest_partition(archive) {
        Some(newest) => {
            let days = days(now, newest.until);
            format!("until {} (in {days} days)", moment(newest.until))
        }
        None if archive.is_partitioned => "there is none".to_owned(),
        None => "needs none".to_owned(),
    };
    lines.push(pair("  newest partition", newest));
    lines
}

fn newest_partition(archive: &ArchiveCensus) -> Option<&PartitionCensus> {
    let months = archive.is_partitioned.then_some(&archive.months)?;
    months.iter().max_by_key(|month| month.until)
}

/// Negative when it has ended.
fn days(now: Timestamp, until: Timestamp) -> i64 {
    let day = i64::try_from(DAY.as_secs()).unwrap_or(i64::MAX);
    until.duration_since(now).as_secs().div_euclid(day)
}

fn bytes_per_row(archive: &ArchiveCensus) -> Option<u64> {
    archive.bytes?.checked_div(archive.rows)
}

fn pair(name: &str, value: impl Into<String>) -> Vec<String> {
    vec![name.to_owned(), value.into()]
}
