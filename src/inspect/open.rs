//! What was in flight at a moment.

use std::time::Duration;

use jiff::Timestamp;

use super::{LiveRecord, LiveState};
use crate::{
    clock::before,
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
};

/// Asks for the records that were open at a moment: first claimed at or before
/// it, and without an outcome by then.
///
/// The archive does not keep when an outcome was recorded. Of a row there that
/// has one, this is as much as can be told: it may have been open for as long
/// as a request can run. So it counts if it was claimed within
/// [`within`](OpenQuery::within) of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenQuery {
    /// The moment.
    pub at: Timestamp,
    /// How long a request may run: the longest `max_lease` of the policies.
    pub within: Duration,
    /// The most records to return.
    pub limit: u32,
}

impl OpenQuery {
    /// How long a request may run when nothing else is said: 10 min, which is
    /// the default of `max_lease`.
    pub const DEFAULT_WITHIN: Duration = Duration::from_mins(10);

    /// From when on a row whose outcome was recorded at an unknown time may
    /// have been claimed, to count.
    pub fn claimed_from(&self) -> Timestamp {
        before(self.at, self.within)
    }

    /// Judges a live record: the rule that every store's own query follows.
    pub fn judge(&self, record: &LiveRecord) -> Option<OpenRecord> {
        if record.created_at > self.at {
            return None;
        }
        let (status, resource_id, outcome) = match &record.state {
            LiveState::InProgress {
                speculative: true, ..
            } => return None,
            LiveState::InProgress { .. } => (None, None, OpenOutcome::Unknown),
            LiveState::Completed {
                completed_at,
                status,
                resource_id,
                ..
            } => {
                let outcome = match completed_at {
                    Some(then) if *then <= self.at => return None,
                    Some(then) => OpenOutcome::RecordedAt(*then),
                    None if record.created_at < self.claimed_from() => return None,
                    None => OpenOutcome::RecordedSometime,
                };
                (Some(*status), resource_id.clone(), outcome)
            }
        };
        Some(OpenRecord {
            key: record.key,
            attempt: Some(record.attempt),
            created_at: record.created_at,
            expires_at: record.expires_at,
            status,
            resource_id,
            outcome,
        })
    }

    /// Judges an archived row: the rule that every archive's own query follows.
    pub fn judge_archived(&self, row: &Tombstone) -> Option<OpenRecord> {
        if row.created_at > self.at || row.expired_at <= self.at {
            return None;
        }
        let outcome = if !row.has_outcome() {
            OpenOutcome::Unknown
        } else if row.created_at >= self.claimed_from() {
            OpenOutcome::RecordedSometime
        } else {
            return None;
        };
        Some(OpenRecord {
            key: row.key,
            attempt: None,
            created_at: row.created_at,
            expires_at: row.expired_at,
            status: row.has_outcome().then_some(row.status),
            resource_id: row.resource_id.clone(),
            outcome,
        })
    }
}

/// A record that was open at the moment asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenRecord {
    /// Its name.
    pub key: ScopedKey,
    /// How many attempts there have been; `None` where it is archived.
    pub attempt: Option<u32>,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When it expires, or has expired.
    pub expires_at: Timestamp,
    /// The status that was recorded in the end.
    pub status: Option<u16>,
    /// What the request made.
    pub resource_id: Option<ResourceId>,
    /// What is known of its end.
    pub outcome: OpenOutcome,
}

impl OpenRecord {
    /// Whether it is in the archive by now.
    pub fn is_archived(&self) -> bool {
        self.attempt.is_none()
    }

    /// Where it is, in one word: `live` or `archived`.
    pub fn source(&self) -> &'static str {
        if self.is_archived() {
            "archived"
        } else {
            "live"
        }
    }

    /// Whether it was in flight, in one word: `surely`, or `maybe` where its
    /// outcome was recorded at an unknown time.
    pub fn certainty(&self) -> &'static str {
        match self.outcome {
            OpenOutcome::Unknown | OpenOutcome::RecordedAt(_) => "surely",
            OpenOutcome::RecordedSometime => "maybe",
        }
    }
}

/// What is known of the end of a record that was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// No outcome is known to this day: it runs, or it was cut off. Its effect
    /// may have happened.
    Unknown,
    /// Its outcome was recorded then, after the moment asked about: it was in
    /// flight.
    RecordedAt(Timestamp),
    /// Its outcome is known, and not when it was recorded: it may have been in
    /// flight.
    RecordedSometime,
}
