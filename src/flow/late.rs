//! What is told of a request whose record is over, or has no outcome.

use jiff::Timestamp;

use tokio::time::Instant;

use super::{Attempt, Setup};
use crate::{
    archive::Archive,
    fingerprint::Comparison,
    record::Tombstone,
    rejection::{LateRetry, Rejection},
    store::StoreError,
};

impl Setup {
    /// The answer about a record that expired and has not been swept yet.
    pub(super) async fn expired(&self, attempt: &Attempt, tombstone: Tombstone) -> Rejection {
        if tombstone.has_outcome() {
            return self.late(attempt, &tombstone);
        }
        match self.archived_outcome(attempt, tombstone.created_at).await {
            Ok(known) => self.late(attempt, &known.unwrap_or(tombstone)),
            Err(rejection) => rejection,
        }
    }

    /// The answer about an attempt that lapsed where nothing may run again.
    pub(super) async fn abandoned(&self, attempt: &Attempt, created_at: Timestamp) -> Rejection {
        match self.archived_outcome(attempt, created_at).await {
            Ok(Some(known)) => Rejection::ResponseNotKept {
                original_status: known.status,
                resource_id: known.resource_id,
                created_at,
            },
            Ok(None) => Rejection::OutcomeUnknown {
                created_at: Some(created_at),
            },
            Err(rejection) => rejection,
        }
    }

    /// Where outcomes are archived first, an attempt that the store knows no
    /// outcome of may have got as far as that.
    pub(super) async fn archived_outcome(
        &self,
        attempt: &Attempt,
        created_at: Timestamp,
    ) -> Result<Option<Tombstone>, Rejection> {
        let Some(archivist) = &self.archivist else {
            return Ok(None);
        };
        let archive = &**archivist.archive();
        match self.look_up(archive, attempt, Some(created_at)).await {
            Ok(found) => Ok(found.filter(Tombstone::has_outcome)),
            Err(error) => {
                tracing::error!(scoped_key = %attempt.scoped_key, error = %error.causes(), "archive lookup failed: the outcome is not known yet");
                Err(Rejection::unavailable())
            }
        }
    }

    /// What the archive knows of the key.
    pub(super) async fn look_up(
        &self,
        archive: &dyn Archive,
        attempt: &Attempt,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        let asked = Instant::now();
        let lookup = archive.lookup(attempt.scoped_key, not_before);
        let found = self.in_time(lookup).await;
        attempt.observed.looked_up(asked, &found);
        found
    }

    /// The answer to a late retry, from what is left of the record.
    pub(super) fn late(&self, attempt: &Attempt, tombstone: &Tombstone) -> Rejection {
        let known = tombstone.has_outcome();
        tracing::info!(scoped_key = %tombstone.key, "late retry: the key has expired");
        Rejection::KeyExpired(Box::new(LateRetry {
            answer_status: self.policy.late_status,
            original_status: known.then_some(tombstone.status),
            resource_id: tombstone.resource_id.clone(),
            created_at: Some(tombstone.created_at),
            expired_at: Some(tombstone.expired_at),
            same_request: match attempt.compare(&tombstone.fingerprint) {
                Comparison::Same => Some(true),
                Comparison::Different => Some(false),
                Comparison::Unknown => None,
            },
        }))
    }
}
