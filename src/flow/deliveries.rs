//! Duplicates for a sender that needs a 2xx: known outcomes are acknowledged,
//! and what has none runs again.

use axum::body::Body;
use http::Response;
use jiff::Timestamp;

use super::{Attempt, ClaimFailure, Setup};
use crate::{
    claim::{Abandoned, Claim, ClaimOutcome},
    policy::Duplicate,
    record::{ExpiredRecord, OwnerToken, RecordState, Tombstone},
    rejection::Rejection,
    scope::ScopedKey,
    store::StoreError,
};

impl Setup {
    fn acknowledges(&self) -> bool {
        self.policy.duplicate == Duplicate::Acknowledge
    }

    /// Whether a late duplicate runs again when nothing tells how the request
    /// ended: its sender cannot look that up, and an event that is refused is
    /// lost. Not where nothing may run twice.
    pub(super) fn reruns(&self) -> bool {
        self.acknowledges() && self.policy.abandoned == Abandoned::TakeOver
    }

    /// The claim; where a late duplicate may run, past what is left of a record
    /// without an outcome.
    pub(super) async fn claim_for(
        &self,
        attempt: &mut Attempt,
        token: OwnerToken,
    ) -> Result<Result<Claim, ClaimFailure>, Rejection> {
        match self.claim(attempt, token).await {
            Ok(claim) if self.reruns_after(&claim) => {
                Box::pin(self.claim_past(attempt, token, claim)).await
            }
            claimed => Ok(claimed),
        }
    }

    /// Whether a claim met a record that expired without an outcome, so that its
    /// request is to run again.
    fn reruns_after(&self, claim: &Claim) -> bool {
        let is_unknown = |tombstone: &Tombstone| !tombstone.has_outcome();
        matches!(&claim.outcome, ClaimOutcome::Expired(left) if is_unknown(left)) && self.reruns()
    }

    /// The claim again, once the record that was in its way is where a sweep
    /// would have put it.
    async fn claim_past(
        &self,
        attempt: &mut Attempt,
        token: OwnerToken,
        mut claim: Claim,
    ) -> Result<Result<Claim, ClaimFailure>, Rejection> {
        for _ in 0..RETIREMENTS {
            let ClaimOutcome::Expired(left) = &claim.outcome else {
                return Ok(Ok(claim));
            };
            if left.has_outcome() {
                return Ok(Ok(claim));
            }
            if let Some(known) = self.archived_outcome(attempt, left.created_at).await? {
                claim.outcome = ClaimOutcome::Expired(Box::new(known));
                return Ok(Ok(claim));
            }
            let retired = self.in_time(self.retire(attempt.scoped_key, claim.now));
            if let Err(error) = retired.await {
                tracing::error!(scoped_key = %attempt.scoped_key, error = %error.causes(), "an expired record could not be archived: nothing runs");
                return Err(Rejection::unavailable());
            }
            attempt.runs_again();
            claim = match self.claim(attempt, token).await {
                Ok(claim) => claim,
                Err(failure) => return Ok(Err(failure)),
            };
        }
        Err(Rejection::unavailable())
    }

    /// What a sweep does, for one record without an outcome.
    async fn retire(&self, key: ScopedKey, now: Timestamp) -> Result<(), StoreError> {
        let store = &self.handle.store;
        let Some(record) = store.get(key).await? else {
            return Ok(());
        };
        let has_lapsed = matches!(record.state, RecordState::InProgress { .. });
        if !has_lapsed || !record.is_expired(now) {
            return Ok(());
        }
        let tombstone = record.tombstone();
        let speculative = record.is_speculative();
        if let Some(archive) = self.archive.as_ref().filter(|_| !speculative) {
            archive.insert(std::slice::from_ref(&tombstone)).await?;
        }
        let token = record.token;
        let expired = ExpiredRecord {
            tombstone,
            token,
            speculative,
        };
        // Gone already, or another attempt's by now: the claim will tell.
        store.remove(&[expired]).await.map(drop)
    }

    /// What a sender that needs a 2xx gets instead of a rejection that speaks of
    /// a request which is done. One without an outcome never gets the status of
    /// a late retry, which may be one that ends the sender's deliveries.
    pub(super) fn acknowledge(&self, rejection: Rejection) -> Result<Response<Body>, Rejection> {
        if !self.acknowledges() {
            return Err(rejection);
        }
        match rejection {
            Rejection::ResponseNotKept { .. } => Ok(self.acknowledgement()),
            Rejection::KeyExpired(late) if late.original_status.is_some() => {
                Ok(self.acknowledgement())
            }
            Rejection::KeyExpired(late) => Err(Rejection::OutcomeUnknown {
                created_at: late.created_at,
            }),
            other => Err(other),
        }
    }

    /// The answer to a duplicate from the first one, where that was kept.
    pub(super) fn or_acknowledgement(
        &self,
        kept: Option<Response<Body>>,
    ) -> Option<Response<Body>> {
        if !self.acknowledges() {
            return kept;
        }
        let success = kept.filter(|response| response.status().is_success());
        success.or_else(|| Some(self.acknowledgement()))
    }

    fn acknowledgement(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        self.mark_replay(&mut response);
        response
    }
}

impl Attempt {
    /// An earlier attempt may have run, and nobody knows how it ended.
    pub(super) fn runs_again(&mut self) {
        tracing::warn!(scoped_key = %self.scoped_key, "late duplicate: it runs, and an earlier attempt without a known outcome may have run");
        self.has_earlier = true;
    }

    /// Which attempt the handler is told that it is, of the record's count.
    pub(super) fn number(&self, of_record: u32) -> u32 {
        of_record.max(1 + u32::from(self.has_earlier))
    }
}

/// A record that has gone is replaced by a live one: once is enough, but for a
/// race.
const RETIREMENTS: usize = 4;
