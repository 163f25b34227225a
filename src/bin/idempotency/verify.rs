//! Whether all is as the runbook expects it.

use std::process::ExitCode;

use axum_idempotency::{
    connect::{Backend, Connection},
    inspect::{ArchiveCensus, Column, Inspector},
};
use clap::Args;
use jiff::{Timestamp, ToSpan as _, tz::Offset};
use serde_json::{Value, json};

use super::{
    Context,
    fault::Fault,
    output::{count, line, moment, table},
    probe, progress,
    time::DAY,
};

/// Checks what the runbook expects.
///
/// Nothing waits for the sweep, a late retry is refused, no column can hold a
/// payload, and partitions are there ahead of time.
///
/// Exits with 1 when a check fails. One that this store or archive cannot answer
/// is not checked, which is no failure.
#[derive(Args, Debug)]
#[command(after_help = "\
Checks:
  expired backlog   no record waits for the sweep longer than it should
  late retry        the newest archived row is found under its key; with --probe,
                    a late retry gets 409 idempotency_key_expired, and nothing runs
  archive columns   the archive has its six columns and no other
  partitions ahead  partitions cover the next two months

Examples:
  idempotency verify
  idempotency verify --probe --json")]
pub(crate) struct Verify {
    /// Goes the whole way for the late retry: archives a row of its own, under a
    /// random key of the constant principal `idempotency-verify`, and sends a
    /// request with that key through a layer in this process. One row a run
    /// stays in the archive.
    #[arg(long)]
    probe: bool,

    /// So many records may wait for the sweep.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_backlog: u64,
}

/// What came of one check.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// What was found, or why it was not looked at.
    pub(crate) found: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    NotChecked,
}

impl Verdict {
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Passed } else { Self::Failed }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotChecked => "not_checked",
        }
    }
}

impl Check {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "result": self.verdict.as_str(),
            "found": self.found,
        })
    }
}

impl Verify {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let connection = context.open().await?;
        let inspector = connection.inspector();
        let bar = progress::bar("verifying", 4);
        let mut checks = Vec::new();
        checks.push(self.expired_backlog(&inspector).await?);
        bar.inc(1);
        let census = match inspector.inspected_archive() {
            Some(archive) => Some(archive.census().await?),
            None => None,
        };
        let now = inspector.now().await?;
        checks.push(archive_columns(&connection, census.as_ref()));
        checks.push(partitions_ahead(census.as_ref(), now));
        bar.inc(2);
        // The last, since the end of the layer is the end of the store.
        let late_retry = if self.probe {
            probe::late_retry(&connection).await?
        } else {
            late_retry(&connection, &inspector).await?
        };
        checks.insert(1, late_retry);
        bar.finish_and_clear();
        connection.close().await;
        let passed = checks.iter().all(|check| check.verdict != Verdict::Failed);
        let document = json!({
            "passed": passed,
            "checks": checks.iter().map(Check::json).collect::<Vec<_>>(),
        });
        context.output.show(&document, || {
            let mut lines = vec![line(["CHECK", "RESULT", "FOUND"])];
            lines.extend(checks.iter().map(|check| {
                let verdict = check.verdict.as_str().replace('_', " ");
                vec![check.name.replace('_', " "), verdict, check.found.clone()]
            }));
            table(&lines)
        })?;
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }

    async fn expired_backlog(&self, inspector: &Inspector) -> Result<Check, Fault> {
        let name = "expired_backlog";
        let mut found = Vec::new();
        let mut verdict = Verdict::NotChecked;
        match inspector.inspected_store() {
            Some(store) => {
                let backlog = store.backlog().await?;
                verdict = Verdict::of(backlog <= self.max_backlog);
                let expected = self.max_backlog;
                let backlog = count(backlog);
                found.push(format!(
                    "{backlog} records wait for the sweep, {expected} expected"
                ));
            }
            None => found.push("this store cannot tell its backlog".to_owned()),
        }
        if let Some(archived) = inspector.expired_within(DAY).await? {
            let archived = count(archived);
            found.push(format!(
                "{archived} archived rows expired within the last day"
            ));
        }
        Ok(Check {
            name,
            verdict,
            found: found.join("; "),
        })
    }
}

pub(crate) const LATE_RETRY: &str = "late_retry";

/// Without a change: what the layer would ask is asked of a row that is there.
async fn late_retry(connection: &Connection, inspector: &Inspector) -> Result<Check, Fault> {
    let not_checked = |found: &str| Check {
        name: LATE_RETRY,
        verdict: Verdict::NotChecked,
        found: found.to_owned(),
    };
    let Some(archive) = connection.archive() else {
        return Ok(not_checked(NO_ARCHIVE));
    };
    let Some(inspected) = inspector.inspected_archive() else {
        return Ok(not_checked("this archive cannot tell its newest row"));
    };
    let Some(newest) = inspected.newest().await? else {
        return Ok(not_checked(
            "the archive is empty; --probe goes the whole way",
        ));
    };
    let unbounded = archive.lookup(newest.key, None).await?;
    // A key's own timestamp is no later than its claim.
    let bounded = archive.lookup(newest.key, Some(newest.created_at)).await?;
    let key = newest.key;
    let found = match (&unbounded, &bounded) {
        (Some(_), Some(_)) => format!("the newest row, {key}, is found under its key"),
        (None, _) => format!("the newest row, {key}, is not found under its key"),
        (Some(_), None) => {
            format!("the newest row, {key}, is not found with its age as a bound")
        }
    };
    Ok(Check {
        name: LATE_RETRY,
        verdict: Verdict::of(unbounded.is_some() && bounded.is_some()),
        found,
    })
}

fn archive_columns(connection: &Connection, census: Option<&ArchiveCensus>) -> Check {
    let name = "archive_columns";
    let not_checked = |found: &str| Check {
        name,
        verdict: Verdict::NotChecked,
        found: found.to_owned(),
    };
    let (Some(backend), Some(census)) = (connection.archive_backend(), census) else {
        return not_checked(NO_ARCHIVE);
    };
    let expected = match backend {
        Backend::Sqlite => SQLITE_COLUMNS,
        Backend::Postgres => POSTGRES_COLUMNS,
        _ => return not_checked("an archive in memory has no columns"),
    };
    let faults = column_faults(&census.columns, &expected);
    Check {
        name,
        verdict: Verdict::of(faults.is_empty()),
        found: if faults.is_empty() {
            "six columns, none for a payload".to_owned()
        } else {
            faults.join("; ")
        },
    }
}

fn column_faults(columns: &[Column], expected: &[(&str, &str); 6]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, type_name) in expected {
        match columns.iter().find(|column| column.name == *name) {
            None => faults.push(format!("{name} is missing")),
            Some(column) if !column.type_name.eq_ignore_ascii_case(type_name) => {
                let is = &column.type_name;
                faults.push(format!("{name} is {is}, {type_name} expected"));
            }
            Some(_) => {}
        }
    }
    for column in columns {
        if !expected.iter().any(|(name, _)| *name == column.name) {
            let Column { name, type_name } = column;
            faults.push(format!("{name} ({type_name}) does not belong there"));
        }
    }
    faults
}

fn partitions_ahead(census: Option<&ArchiveCensus>, now: Timestamp) -> Check {
    let (verdict, found) = match census {
        None => (Verdict::NotChecked, NO_ARCHIVE.to_owned()),
        Some(census) if !census.is_partitioned => (
            Verdict::NotChecked,
            "this archive needs no partitions".to_owned(),
        ),
        Some(census) => {
            let covered = covered_until(census, now);
            let needed = in_two_months(now);
            let found = if covered == now {
                format!("no partition for {}", moment(now))
            } else {
                format!("without a gap until {}", moment(covered))
            };
            let holds = covered >= needed;
            let expected = format!("{} expected", moment(needed));
            (Verdict::of(holds), format!("{found}, {expected}"))
        }
    };
    Check {
        name: "partitions_ahead",
        verdict,
        found,
    }
}

fn in_two_months(now: Timestamp) -> Timestamp {
    let date = Offset::UTC.to_datetime(now);
    let then = date.checked_add(2.months()).ok();
    let then = then.and_then(|then| Offset::UTC.to_timestamp(then).ok());
    then.unwrap_or(Timestamp::MAX)
}

/// From `now` on without a gap.
fn covered_until(census: &ArchiveCensus, now: Timestamp) -> Timestamp {
    let mut months: Vec<_> = census.months.iter().collect();
    months.sort_by_key(|month| month.from);
    let mut covered = now;
    for month in months {
        if month.from <= covered && month.until > covered {
            covered = month.until;
        }
    }
    covered
}

const NO_ARCHIVE: &str = "there is no archive";

const POSTGRES_COLUMNS: [(&str, &str); 6] = [
    ("scoped_key", "text"),
    ("fingerprint", "bytea"),
    ("status_code", "smallint"),
    ("resource_id", "text"),
    ("created_at", "timestamp with time zone"),
    ("expired_at", "timestamp with time zone"),
];

const SQLITE_COLUMNS: [(&str, &str); 6] = [
    ("scoped_key", "text"),
    ("fingerprint", "blob"),
    ("status_code", "integer"),
    ("resource_id", "text"),
    ("created_at", "integer"),
    ("expired_at", "integer"),
];
