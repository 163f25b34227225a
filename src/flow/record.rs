//! Steps 10 and 11: what becomes of the record, and whose answer leaves.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::{Answered, Refusal, Setup, owned::Owned, response::first_answer};
use crate::{
    claim::CompletedRecord,
    flights::Ending,
    handler::Committed,
    metrics,
    outcome::{ArchiveFirst, Outcome, with_outcome},
    pending::{Call, Pending},
    record::{Completion, Record, RecordState, Tombstone},
    rejection::Rejection,
    request_outcome::RequestOutcome,
    scope::ScopedKey,
    store::{Fenced, StoreError},
};

impl Owned {
    /// Records the handler's response before it leaves. Fenced, the answer is
    /// not its own.
    pub(super) async fn record(
        self: Box<Self>,
        response: Response<Body>,
    ) -> Result<Answer, Rejection> {
        let setup = Arc::clone(&self.setup);
        let expires_at = self.lease.expires_at;
        let observed = self.observed.clone();
        let (kept, mut response) = setup.kept(response).await;
        let began = Instant::now();
        let recorded = match kept {
            None => Box::pin(self.forget()).await,
            Some(completion) => self.complete(completion).await,
        };
        observed.recorded(began);
        let (record, outcome) = match recorded? {
            Recorded::Own => {
                setup.mark_expiry(&mut response, expires_at);
                let own = Answered::by(RequestOutcome::Executed)(response);
                return Ok(Answer::Own(own));
            }
            Recorded::Nothing => {
                let own = Answered::by(RequestOutcome::Forgotten)(response);
                return Ok(Answer::Own(own));
            }
            Recorded::Earlier(record) => (record, RequestOutcome::Executed),
            Recorded::Winner(record) => (record, RequestOutcome::Fenced),
        };
        let stored = setup.replay(&record).map(Answered::by(outcome));
        stored.map(Answer::Stored)
    }

    /// Nothing is recorded, so that a retry runs again; unless another attempt
    /// has taken over, which is the one to tell.
    async fn forget(self: Box<Self>) -> Result<Recorded, Rejection> {
        match self.release().await {
            Some(Fenced::Stale) => self.disowned(Some(Gone::Nothing)).await,
            // A commit that nobody saw end may have kept what was to be nothing.
            None if self.in_doubt => {
                let created_at = Some(self.lease.created_at);
                self.leader.end(Ending::Gone);
                Err(Rejection::OutcomeUnknown { created_at })
            }
            Some(Fenced::Owner) | None => Ok(Recorded::Nothing),
        }
    }

    /// Completes the record. What the store cannot be told now it is told in
    /// the background, and until then the key stays in flight; the client gets
    /// its answer, unless the lease is over and nobody can say whose the key
    /// is. Fenced, the
    /// winner's record is the answer, or that the outcome is unknown.
    pub(super) async fn complete(
        self: Box<Self>,
        completion: Completion,
    ) -> Result<Recorded, Rejection> {
        self.held.ending();
        let setup = Arc::clone(&self.setup);
        let store = &setup.handle.store;
        let record = Arc::new(self.completed(completion.clone()));
        let first = setup.archive_first(Some(record.tombstone(self.scoped_key)));
        let outcome = Box::new(Outcome::new(completion, first));
        let tell =
            || setup.in_time(outcome.tell(&**store, self.scoped_key, self.token, Some(&self.held)));
        let mut told = tell().await;
        // A lease that is over may have gone to another attempt, whose outcome
        // would be a second truth beside this one.
        let is_lease_over = || self.held.is_over();
        if told.is_err() && is_lease_over() {
            told = tell().await;
        }
        match told {
            Ok(Fenced::Owner) if self.in_doubt => Box::pin(self.what_stands(record)).await,
            Ok(Fenced::Owner) => {
                self.leader.end(Ending::Completed(record));
                Ok(Recorded::Own)
            }
            Ok(Fenced::Stale) => {
                // By now the archive has the outcome.
                let gone = outcome.is_archived_first().then_some(Gone::Own(record));
                Box::pin(self.disowned(gone)).await
            }
            Err(error) => {
                tracing::error!(scoped_key = %self.scoped_key, error = %error.causes(), "completion failed: it is repeated while the lease is renewed");
                let created_at = Some(self.lease.created_at);
                self.held.holds_an_outcome(self.expiry());
                let (answer, ending) = if self.in_doubt {
                    (Err(Rejection::OutcomeUnknown { created_at }), Ending::Gone)
                } else if is_lease_over() {
                    let unknown = Rejection::OutcomeUnknown { created_at };
                    (Err(unknown), Ending::Completed(record))
                } else {
                    (Ok(Recorded::Own), Ending::Completed(record))
                };
                setup.handle.pending.add(Pending {
                    key: self.scoped_key,
                    token: self.token,
                    call: Call::Complete(outcome, ending),
                    claim_may_land_until: None,
                    flight: Some((self.leader, self.held)),
                });
                answer
            }
        }
    }

    /// The record has an outcome of this token's: the one it was told now, or
    /// that of a transaction whose commit nobody saw come to its end.
    async fn what_stands(
        self: Box<Self>,
        told: Arc<CompletedRecord>,
    ) -> Result<Recorded, Rejection> {
        let store = &self.setup.handle.store;
        let read = self.setup.in_time(store.get(self.scoped_key)).await;
        let state = read.map(|record| record.map(|record| record.state));
        let Ok(Some(RecordState::Completed(completion))) = state else {
            let created_at = Some(self.lease.created_at);
            self.leader.end(Ending::Gone);
            return Err(Rejection::OutcomeUnknown { created_at });
        };
        if completion == told.completion {
            self.leader.end(Ending::Completed(told));
            return Ok(Recorded::Own);
        }
        let record = Arc::new(self.completed(completion));
        self.leader.end(Ending::Completed(Arc::clone(&record)));
        Ok(Recorded::Earlier(record))
    }

    /// The outcome was committed with the work: it is the answer, whatever has
    /// become of the response since.
    pub(super) fn committed(
        self: Box<Self>,
        committed: Committed,
        answered: Option<Response<Body>>,
    ) -> Result<Response<Body>, Rejection> {
        let setup = Arc::clone(&self.setup);
        let (record, headers) = self.close(committed);
        let response = first_answer(&record.completion, headers, answered);
        let Some(mut response) = response else {
            return setup.replay(&record);
        };
        setup.mark_expiry(&mut response, record.expires_at);
        Ok(response)
    }

    /// The record has its outcome already: nothing is left to tell the store.
    pub(super) fn close(
        self: Box<Self>,
        committed: Committed,
    ) -> (Arc<CompletedRecord>, HeaderMap) {
        self.held.ending();
        let record = Arc::new(self.completed(committed.completion));
        self.leader.end(Ending::Completed(Arc::clone(&record)));
        (record, committed.headers)
    }

    fn completed(&self, completion: Completion) -> CompletedRecord {
        CompletedRecord {
            fingerprint: self.fingerprint.clone(),
            created_at: self.lease.created_at,
            expires_at: self.lease.expires_at,
            completion,
        }
    }

    /// The token owns the record no longer. Where another attempt took over while
    /// this one ran, there is one truth, its; where there is no record, that is
    /// none, and what is `gone` stands.
    async fn disowned(self: Box<Self>, gone: Option<Gone>) -> Result<Recorded, Rejection> {
        let winner = self
            .setup
            .in_time(self.setup.handle.store.get(self.scoped_key))
            .await;
        match (&winner, gone) {
            (Ok(None), Some(Gone::Nothing)) => return Ok(Recorded::Nothing),
            (Ok(None), Some(Gone::Own(record))) => {
                tracing::error!(scoped_key = %self.scoped_key, "the store has lost the record: its outcome is archived");
                self.leader.end(Ending::Completed(record));
                return Ok(Recorded::Own);
            }
            _ => {}
        }
        metrics::fenced_completion();
        tracing::error!(scoped_key = %self.scoped_key, attempt = self.lease.attempt, "fenced: this attempt's outcome is not recorded");
        let created_at = self.lease.created_at;
        if let Ok(Some(winner)) = winner
            && let RecordState::Completed(completion) = winner.state
            && self.fingerprint == winner.fingerprint
        {
            let record = Arc::new(CompletedRecord {
                fingerprint: winner.fingerprint,
                created_at: winner.created_at,
                expires_at: winner.expires_at,
                completion,
            });
            self.leader.end(Ending::Completed(Arc::clone(&record)));
            return Ok(Recorded::Winner(record));
        }
        let created_at = Some(created_at);
        self.leader.end(Ending::Unknown { created_at });
        Err(Rejection::OutcomeUnknown { created_at })
    }
}

/// What stands where the record is gone, and nobody has claimed the key since.
#[derive(Debug)]
enum Gone {
    /// The outcome, which is archived: the store has lost the record.
    Own(Arc<CompletedRecord>),
    /// Nothing was to be kept: an earlier release got through, though its
    /// connection broke.
    Nothing,
}

/// Whose outcome the record holds.
#[derive(Debug)]
pub(super) enum Recorded {
    Own,
    /// Its own too: that of its transaction, whose commit nobody saw end.
    Earlier(Arc<CompletedRecord>),
    /// Nobody's: the claim was given back.
    Nothing,
    Winner(Arc<CompletedRecord>),
}

/// Whose response leaves.
#[derive(Debug)]
pub(super) enum Answer {
    Own(Answered),
    /// What the record holds: that of the attempt that took over, or its own of
    /// a commit that nobody saw end.
    Stored(Answered),
}

impl Setup {
    /// What the store is to be told of a response, and the response itself.
    pub(super) async fn outcome<E>(
        &self,
        response: Response<Body>,
    ) -> (Call, Result<Response<Body>, Refusal<E>>) {
        let (completion, response) = self.kept(response).await;
        let Some(completion) = completion else {
            return (Call::Release, Ok(response));
        };
        let outcome = Box::new(Outcome::new(completion, self.archive_first(None)));
        (Call::Complete(outcome, Ending::Gone), Ok(response))
    }

    /// Where an outcome goes first: into the archive, where records leave the
    /// store by themselves.
    fn archive_first(&self, tombstone: Option<Tombstone>) -> Option<ArchiveFirst> {
        let archivist = Arc::clone(self.archivist.as_ref()?);
        Some(ArchiveFirst {
            archivist,
            tombstone,
        })
    }

    /// The same for an outcome that was learned later, of an attempt that left
    /// none.
    pub(crate) async fn archive_lapsed(
        &self,
        key: ScopedKey,
        completion: &Completion,
    ) -> Result<(), StoreError> {
        let Some(archivist) = &self.archivist else {
            return Ok(());
        };
        let store = &self.handle.store;
        let record = store.get(key).await?;
        let now = store.now().await?;
        let ran_and_lapsed =
            |record: &Record| !record.has_live_lease(now) && !record.is_speculative();
        let tombstone = record
            .filter(ran_and_lapsed)
            .and_then(|record| with_outcome(record, completion));
        match tombstone {
            Some(tombstone) => archivist.add(tombstone).await,
            None => Ok(()),
        }
    }
}
