//! What was in flight, as comma-separated values (RFC 4180).

use csv::{Terminator, WriterBuilder};
use jiff::Timestamp;

use super::in_flight::place;
use crate::{
    inspect::{OpenOutcome, OpenRecord},
    record::ResourceId,
};

pub(super) fn of(records: &[OpenRecord]) -> Result<Vec<u8>, csv::Error> {
    let mut writer = WriterBuilder::new()
        .terminator(Terminator::CRLF)
        .from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for record in records {
        let (outcome, recorded_at) = match record.outcome {
            OpenOutcome::Unknown => ("unknown", None),
            OpenOutcome::RecordedAt(then) => ("recorded", Some(then)),
            OpenOutcome::RecordedSometime => ("recorded at an unknown time", None),
        };
        let resource = record.resource_id.as_ref().map(ResourceId::as_str);
        writer.write_record([
            record.key.to_string(),
            time(record.created_at),
            time(record.expires_at),
            outcome.to_owned(),
            recorded_at.map(time).unwrap_or_default(),
            record
                .status
                .map(|status| status.to_string())
                .unwrap_or_default(),
            text(resource.unwrap_or_default()),
            record
                .attempt
                .map(|attempt| attempt.to_string())
                .unwrap_or_default(),
            place(record).to_owned(),
        ])?;
    }
    writer
        .into_inner()
        .map_err(|error| error.into_error().into())
}

fn time(time: Timestamp) -> String {
    time.to_string()
}

/// A program that shows tables would run what begins like a formula, so such a
/// text gets an apostrophe in front.
fn text(cell: &str) -> String {
    if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{cell}")
    } else {
        cell.to_owned()
    }
}

const COLUMNS: [&str; 9] = [
    "scoped_key",
    "claimed_at",
    "expires_at",
    "outcome",
    "outcome_recorded_at",
    "status",
    "resource_id",
    "attempts",
    "record",
];
