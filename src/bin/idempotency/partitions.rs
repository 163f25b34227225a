//! The partitions of the archive: what there is, and room for what comes.

use std::{process::ExitCode, time::Duration};

use axum_idempotency::{connect::Connection, inspect::PartitionCensus};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Context,
    connect::{archive_of, inspected_archive, no_archive},
    fault::Fault,
    output::{bytes, count, line, moment, or_dash, table},
    retire::Retire,
    time::{DAY, after},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Partitions {
    List(ListAll),
    Ensure(Ensure),
    Retire(Retire),
}

/// Lists the partitions with their rows and sizes, the oldest first.
///
/// Of an archive without partitions, the months in which its rows expired.
/// Rows of a large partition are an estimate.
#[derive(Args, Debug)]
pub(crate) struct ListAll {}

/// Makes the partitions that what expires next will need.
///
/// And those that expired records need which wait for the sweep.
/// A sweeper does the same once a day. An archive in SQLite needs none.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  idempotency partitions ensure --months 6
  idempotency partitions ensure --until 2027-06-30T00:00:00Z")]
pub(crate) struct Ensure {
    /// For so many months past the longest TTL in use.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=120))]
    months: u32,

    /// For what expires up to this time (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "months")]
    until: Option<Timestamp>,
}

impl Partitions {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Ensure(ensure) => ensure.run(context).await,
            Self::Retire(retire) => retire.run(context).await,
        }
    }
}

impl ListAll {
    async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let connection = context.open().await?;
        archive_of(&connection)?;
        let census = inspected_archive(&connection.inspector())?.census().await?;
        connection.close().await;
        let document = json!({
            "is_partitioned": census.is_partitioned,
            "partitions": census.months.iter().map(partition_json).collect::<Vec<_>>(),
        });
        context.output.show(&document, || {
            let mut text = partition_table(&census.months);
            if !census.is_partitioned {
                text.push_str("\nThis archive has no partitions: these are months of its rows.\n");
            }
            text
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Ensure {
    async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let connection = context.open().await?;
        let Some(before) = names(&connection).await? else {
            connection.close().await;
            let document = json!({ "needed": false, "made": [], "partitions": [] });
            context.output.show(&document, || {
                "this archive has no partitions: none are needed\n".to_owned()
            })?;
            return Ok(ExitCode::SUCCESS);
        };
        let until = match self.until {
            Some(until) => until,
            None => room_needed(&connection, self.months).await?,
        };
        prepare(&connection, until).await?;
        let there = names(&connection).await?.unwrap_or_default();
        connection.close().await;
        let made: Vec<_> = there.iter().filter(|name| !before.contains(name)).collect();
        let document = json!({
            "needed": true,
            "until": until.to_string(),
            "made": made,
            "partitions": there,
        });
        context.output.show(&document, || {
            let made = made.iter().map(|name| format!("made {name}"));
            let room = format!("there is room until {}\n", moment(until));
            made.chain([room]).collect::<Vec<_>>().join("\n")
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The names of the partitions, the oldest first; `None` for an archive that has
/// room for any.
pub(crate) async fn names(connection: &Connection) -> Result<Option<Vec<String>>, Fault> {
    archive_of(connection)?;
    let census = inspected_archive(&connection.inspector())?.census().await?;
    let names = census.months.into_iter().map(|month| month.name);
    Ok(census.is_partitioned.then(|| names.collect()))
}

/// Until when there has to be room: the longest TTL in use, and so many months
/// more.
pub(crate) async fn room_needed(connection: &Connection, months: u32) -> Result<Timestamp, Fault> {
    let now = connection.store().now().await?;
    let longest = longest_ttl(connection).await?;
    Ok(after(now, longest.saturating_add(months * LONGEST_MONTH)))
}

/// The longest TTL in use, and at least what a sweeper assumes.
pub(crate) async fn longest_ttl(connection: &Connection) -> Result<Duration, Fault> {
    let published = longest_published_ttl(connection).await?;
    Ok(published.unwrap_or_default().max(LONGEST_MONTH))
}

/// The longest TTL that a process has published.
pub(crate) async fn longest_published_ttl(
    connection: &Connection,
) -> Result<Option<Duration>, Fault> {
    let inspector = connection.inspector();
    let published = match inspector.inspected_store() {
        Some(store) => store.census().await?.ttls,
        None => None,
    };
    Ok(published.map(|ttls| ttls.largest))
}

/// From the oldest record that waits for the sweep on.
pub(crate) async fn prepare(connection: &Connection, until: Timestamp) -> Result<(), Fault> {
    let archive = connection.archive().ok_or_else(no_archive)?;
    let store = connection.store();
    let oldest = store.expired(1).await?;
    let oldest = oldest.first().map(|record| record.tombstone.expired_at);
    let from = match oldest {
        Some(oldest) => oldest,
        None => store.now().await?,
    };
    Ok(archive.prepare(from, until).await?)
}

pub(crate) fn partition_json(partition: &PartitionCensus) -> Value {
    json!({
        "name": partition.name,
        "from": partition.from.to_string(),
        "until": partition.until.to_string(),
        "rows": partition.rows,
        "bytes": partition.bytes,
    })
}

pub(crate) fn partition_table(partitions: &[PartitionCensus]) -> String {
    let mut lines = vec![line(["NAME", "FROM", "UNTIL", "ROWS", "SIZE"])];
    lines.extend(partitions.iter().map(|one| {
        vec![
            one.name.clone(),
            moment(one.from),
            moment(one.until),
            count(one.rows),
            or_dash(one.bytes.map(bytes)),
        ]
    }));
    table(&lines)
}

/// The default of a sweeper's longest TTL, too.
const LONGEST_MONTH: Duration = DAY.saturating_mul(31);
