//! What was in flight, as comma-separated values (RFC 4180).

use std::io;

use csv::{Terminator, WriterBuilder};
use jiff::Timestamp;

use super::{InFlightThen, OpenOutcome, OpenRecord};
use crate::record::ResourceId;

impl InFlightThen {
    /// The records as comma-separated values (RFC 4180), with a header line. A
    /// resource id that a program for tables would take for a formula has an
    /// apostrophe in front.
    ///
    /// With the feature `cli` or `console`.
    ///
    /// # Errors
    ///
    /// None that is known of: it is written to memory.
    pub fn to_csv(&self) -> io::Result<String> {
        let mut sheet = WriterBuilder::new()
            .terminator(Terminator::CRLF)
            .from_writer(Vec::new());
        sheet.write_record(COLUMNS)?;
        for record in &self.records {
            sheet.write_record(cells(record))?;
        }
        let written = sheet.into_inner();
        let written = written.map_err(csv::IntoInnerError::into_error)?;
        String::from_utf8(written).map_err(io::Error::other)
    }
}

const COLUMNS: [&str; 10] = [
    "scoped_key",
    "in_flight",
    "source",
    "attempt",
    "created_at",
    "expires_at",
    "outcome",
    "completed_at",
    "status",
    "resource_id",
];

fn cells(record: &OpenRecord) -> [String; COLUMNS.len()] {
    let (outcome, completed_at) = match record.outcome {
        OpenOutcome::Unknown => ("unknown", None),
        OpenOutcome::RecordedAt(then) => ("completed", Some(then)),
        OpenOutcome::RecordedSometime => ("completed", None),
    };
    let resource = record.resource_id.as_ref().map(ResourceId::as_str);
    [
        record.key.to_string(),
        record.certainty().to_owned(),
        record.source().to_owned(),
        told(record.attempt),
        record.created_at.to_string(),
        record.expires_at.to_string(),
        outcome.to_owned(),
        told::<Timestamp>(completed_at),
        told(record.status),
        plain(resource.unwrap_or_default()),
    ]
}

fn told<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn plain(cell: &str) -> String {
    if cell.starts_with(['=', '+', '-', '@']) {
        format!("'{cell}")
    } else {
        cell.to_owned()
    }
}
