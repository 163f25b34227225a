//! What was in flight at a moment.

use std::{process::ExitCode, time::Duration};

use axum_idempotency::{
    ResourceId,
    inspect::{InFlightThen, OpenOutcome, OpenQuery, OpenRecord},
};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Context,
    connect::can_tell,
    fault::Fault,
    output::{line, millis, moment, or_dash, print, table, time},
    time::{Moment, duration},
};

/// What was in flight at a moment.
///
/// The records that had been claimed and had no outcome yet, live and archived,
/// the oldest first. One whose outcome is `unknown` has none to this day: its
/// effect may have happened.
///
/// The archive does not keep when an outcome was recorded. So an archived
/// record that has one may have been in flight if it was claimed within --within
/// before the moment.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  idempotency in-flight --at 2026-12-01T02:14:00Z
  idempotency in-flight --at -3h --within 30m --csv > in-flight.csv")]
pub(crate) struct InFlight {
    /// The moment: RFC 3339, such as 2026-12-01T02:14:00Z, also without
    /// seconds; or `-3h` or "3h ago", by the store's clock.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Moment,

    /// How long a request may run: the longest `max_lease` of the policies.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    within: Duration,

    /// The most records to tell.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Prints comma-separated values, with a header line.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl InFlight {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let connection = context.open().await?;
        let inspector = can_tell(&connection)?;
        let now = inspector.now().await?;
        let at = self.at.by(now);
        // Who reads another clock may be a little ahead.
        if at.duration_since(now) > A_MINUTE {
            let now = moment(now);
            return Err(Fault::new(format!(
                "--at is still to come: by the store's clock it is {now}"
            )));
        }
        let query = OpenQuery {
            at,
            within: self.within,
            limit: self.limit,
        };
        let then = inspector.in_flight(&query).await?;
        connection.close().await;
        if self.csv {
            print(&then.to_csv()?)?;
            if then.is_truncated {
                eprintln!("warning: {}", self.more());
            }
            return Ok(ExitCode::SUCCESS);
        }
        let document = json!({
            "at": at.to_string(),
            "within_ms": millis(self.within),
            "is_truncated": then.is_truncated,
            "has_archive": connection.archive().is_some(),
            "records": then.records.iter().map(record_json).collect::<Vec<_>>(),
        });
        context.output.show(&document, || self.told(at, &then))?;
        Ok(ExitCode::SUCCESS)
    }

    fn told(&self, at: Timestamp, then: &InFlightThen) -> String {
        if then.records.is_empty() {
            return format!("nothing was in flight at {}\n", moment(at));
        }
        let mut lines = vec![line([
            "SCOPED KEY",
            "IN FLIGHT",
            "CLAIMED",
            "OUTCOME",
            "STATUS",
            "RESOURCE",
            "WHERE",
        ])];
        lines.extend(then.records.iter().map(|record| {
            vec![
                record.key.to_string(),
                record.certainty().to_owned(),
                moment(record.created_at),
                match record.outcome {
                    OpenOutcome::Unknown => "unknown".to_owned(),
                    OpenOutcome::RecordedAt(then) => moment(then),
                    OpenOutcome::RecordedSometime => "time not known".to_owned(),
                },
                or_dash(record.status.map(|status| status.to_string())),
                or_dash(resource(record).map(str::to_owned)),
                record.source().to_owned(),
            ]
        }));
        if then.is_truncated {
            return format!("{}\n{}\n", table(&lines), self.more());
        }
        table(&lines)
    }

    fn more(&self) -> String {
        format!(
            "there are more than {}: raise --limit to see them",
            self.limit
        )
    }
}

fn record_json(record: &OpenRecord) -> Value {
    json!({
        "scoped_key": record.key.to_string(),
        "in_flight": record.certainty(),
        "source": record.source(),
        "attempt": record.attempt,
        "created_at": record.created_at.to_string(),
        "expires_at": record.expires_at.to_string(),
        "outcome": outcome(record),
        "completed_at": time(completed_at(record)),
        "status": record.status,
        "resource_id": resource(record),
    })
}

fn outcome(record: &OpenRecord) -> &'static str {
    match record.outcome {
        OpenOutcome::Unknown => "unknown",
        OpenOutcome::RecordedAt(_) | OpenOutcome::RecordedSometime => "completed",
    }
}

fn completed_at(record: &OpenRecord) -> Option<Timestamp> {
    match record.outcome {
        OpenOutcome::RecordedAt(then) => Some(then),
        OpenOutcome::Unknown | OpenOutcome::RecordedSometime => None,
    }
}

fn resource(record: &OpenRecord) -> Option<&str> {
    record.resource_id.as_ref().map(ResourceId::as_str)
}

const A_MINUTE: SignedDuration = SignedDuration::from_mins(1);
