//! Deletes what is past its retention.

use std::{process::ExitCode, time::Duration};

use axum_idempotency::{
    connect::Connection,
    inspect::{ArchiveCensus, PartitionCensus},
};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::{
    Context,
    connect::{archive_of, inspected_archive, no_archive},
    fault::Fault,
    output::{count, moment},
    partitions::{partition_json, partition_table},
    progress,
    time::{before, duration},
};

/// Deletes what expired longer ago than this.
///
/// In PostgreSQL whole months, all of whose rows did, by dropping their
/// partitions; in SQLite rows.
///
/// Without --yes it only lists what would go.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  idempotency partitions retire --older-than 400d
  idempotency partitions retire --older-than 7years --yes")]
pub(crate) struct Retire {
    /// How long ago it expired, such as `400d` or `7years` (of 365.25 days).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    older_than: Duration,

    /// Deletes. Without it nothing is changed.
    #[arg(long)]
    yes: bool,

    /// Only lists what would go: the default.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl Retire {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let connection = context.open().await?;
        archive_of(&connection)?;
        let now = connection.store().now().await?;
        let expired_by = before(now, self.older_than);
        let due = Due::find(&connection, expired_by).await?;
        let mut retired = 0;
        if self.yes {
            retired = self.retire(&connection, now, &due).await?;
        }
        connection.close().await;
        let document = json!({
            "expired_by": expired_by.to_string(),
            "dry_run": !self.yes,
            "is_partitioned": due.is_partitioned,
            "partitions": due.months.iter().map(partition_json).collect::<Vec<_>>(),
            "rows_due": due.rows,
            "rows_retired": retired,
        });
        context.output.show(&document, || {
            due.told(expired_by, self.yes.then_some(retired))
        })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn retire(
        &self,
        connection: &Connection,
        now: Timestamp,
        due: &Due,
    ) -> Result<u64, Fault> {
        let archive = connection.archive_with_retention(self.older_than);
        let archive = archive.ok_or_else(no_archive)?;
        let bar = progress::bar("retiring", due.rows);
        // Of a partitioned archive a month at a time, so that the bar moves.
        let at_once = if due.is_partitioned { 1 } else { ROWS_AT_ONCE };
        let mut retired = 0;
        loop {
            match archive.prune(now, at_once).await? {
                0 => break,
                rows => retired += rows,
            }
            bar.set_position(retired);
            tokio::time::sleep(PAUSE).await;
        }
        bar.finish_and_clear();
        Ok(retired)
    }
}

/// What is past the retention.
struct Due {
    is_partitioned: bool,
    /// Partitions; or months of which some or all rows are.
    months: Vec<PartitionCensus>,
    rows: u64,
}

impl Due {
    async fn find(connection: &Connection, expired_by: Timestamp) -> Result<Self, Fault> {
        let inspector = connection.inspector();
        let archive = inspected_archive(&inspector)?;
        let ArchiveCensus {
            months,
            is_partitioned,
            rows,
            ..
        } = archive.census().await?;
        let months = months.into_iter();
        if is_partitioned {
            let months: Vec<_> = months.filter(|month| month.until <= expired_by).collect();
            return Ok(Self {
                is_partitioned,
                rows: months.iter().map(|month| month.rows).sum(),
                months,
            });
        }
        Ok(Self {
            is_partitioned,
            rows: rows.saturating_sub(archive.expired_since(expired_by).await?),
            months: months.filter(|month| month.from < expired_by).collect(),
        })
    }

    fn told(&self, expired_by: Timestamp, retired: Option<u64>) -> String {
        let by = moment(expired_by);
        if self.months.is_empty() {
            return format!("nothing expired before {by}: nothing to retire\n");
        }
        let months = partition_table(&self.months);
        let rows = count(retired.unwrap_or(self.rows));
        let what = if self.is_partitioned {
            format!("{} partitions with {rows} rows", self.months.len())
        } else {
            format!("{rows} rows, of these months,")
        };
        match retired {
            Some(_) => format!("{months}\nretired {what} that expired before {by}\n"),
            None => format!(
                "{months}\nwould retire {what} that expired before {by}; nothing was changed: \
                 repeat it with --yes\n"
            ),
        }
    }
}

const ROWS_AT_ONCE: u32 = 10_000;
/// Requests have their turn.
const PAUSE: Duration = Duration::from_millis(50);
