//! Steps 10 and 11: what is kept of a response, and what a repeat gets.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
    response,
};
use jiff::Timestamp;

use super::{
    Refusal, Setup,
    owned::{Owned, message, server_error},
};
use crate::{
    body::{Held, hold_response},
    claim::CompletedRecord,
    flights::Ending,
    handler::{Committed, Recording},
    outcome::{ArchiveFirst, Outcome, with_outcome},
    pending::{Call, Pending},
    record::{Completion, KeptResponse, Record, RecordState, ResourceId, Tombstone},
    rejection::Rejection,
    resource,
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
        let (recorded, mut response) = match setup.kept(response).await {
            (None, response) => (Box::pin(self.forget()).await?, response),
            (Some(completion), response) => (self.complete(completion).await?, response),
        };
        match recorded {
            Recorded::Own => {
                setup.mark_expiry(&mut response, expires_at);
                Ok(Answer::Own(response))
            }
            Recorded::Nothing => Ok(Answer::Own(response)),
            Recorded::Winner(record) => setup.replay(&record).map(Answer::Winner),
        }
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
        Ok(Recorded::Winner(record))
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
    /// Nobody's: the claim was given back.
    Nothing,
    Winner(Arc<CompletedRecord>),
}

/// Whose response leaves.
#[derive(Debug)]
pub(super) enum Answer {
    Own(Response<Body>),
    /// That of the attempt that took over.
    Winner(Response<Body>),
}

impl Setup {
    /// Whether a retry after this response runs again.
    pub(super) fn forgets(&self, response: &Response<Body>) -> bool {
        match response.extensions().get::<Recording>() {
            Some(Recording::Keep) => false,
            Some(Recording::Forget) => true,
            Some(Recording::Stream) | None => !self.policy.keeps(response.status()),
        }
    }

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

    /// What is recorded of a response, unless a retry is to run again.
    async fn kept(&self, response: Response<Body>) -> (Option<Completion>, Response<Body>) {
        if self.forgets(&response) {
            return (None, response);
        }
        let (completion, response) = self.completion(response).await;
        // A body that panics makes another response of it.
        let kept = (!self.forgets(&response)).then_some(completion);
        (kept, response)
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

    /// Holds the response as far as it can be kept.
    pub(super) async fn completion(
        &self,
        response: Response<Body>,
    ) -> (Completion, Response<Body>) {
        let (mut parts, body) = response.into_parts();
        let limit = self.policy.response_limit;
        let held = if is_stream(&parts) {
            Held::Streaming(body)
        } else {
            // A body is the handler's code too.
            let whole = hold_response(body, limit, self.policy.response_deadline);
            match AssertUnwindSafe(whole).catch_unwind().await {
                Ok(held) => held,
                Err(panic) => {
                    tracing::error!(panic = message(&*panic), "the body of a response panicked");
                    let (failed, body) = server_error().into_parts();
                    parts = failed;
                    hold_response(body, limit, self.policy.response_deadline).await
                }
            }
        };
        let mut completion = Completion {
            status: parts.status.as_u16(),
            resource_id: None,
            response: None,
        };
        let body = match held {
            Held::Whole(data) => {
                completion.resource_id = self.resource_id(&parts, &data);
                if self.policy.keep_bodies {
                    completion.response = Some(KeptResponse {
                        headers: self.policy.headers.recorded(&parts.headers),
                        body: data.clone(),
                    });
                }
                Body::from(data)
            }
            Held::Streaming(body) => {
                completion.resource_id = self.resource_id(&parts, &[]);
                body
            }
        };
        (completion, Response::from_parts(parts, body))
    }

    /// From the handler, else from a JSON body, else from `Location`.
    fn resource_id(&self, parts: &response::Parts, body: &[u8]) -> Option<ResourceId> {
        if let Some(id) = parts.extensions.get::<ResourceId>() {
            return Some(id.clone());
        }
        let in_body = || {
            let json = content_type(parts).is_some_and(is_json);
            json.then(|| resource::in_json(body, &self.policy.resource_id_pointer))
                .flatten()
        };
        let in_location = || {
            let location = parts.headers.get(LOCATION)?.to_str().ok()?;
            resource::in_location(location)
        };
        in_body().or_else(in_location)
    }

    /// The first answer again.
    pub(super) fn replay(&self, record: &CompletedRecord) -> Result<Response<Body>, Rejection> {
        let completion = &record.completion;
        let Some(mut response) = self.answer_of(completion) else {
            return Err(Rejection::ResponseNotKept {
                original_status: completion.status,
                resource_id: completion.resource_id.clone(),
                created_at: record.created_at,
            });
        };
        self.mark_expiry(&mut response, record.expires_at);
        Ok(response)
    }

    /// `None` when the response was not kept, and has to be.
    pub(super) fn answer_of(&self, completion: &Completion) -> Option<Response<Body>> {
        self.or_acknowledgement(self.kept_answer(completion))
    }

    fn kept_answer(&self, completion: &Completion) -> Option<Response<Body>> {
        let kept = completion.response.as_ref()?;
        let mut response = Response::new(Body::from(kept.body.clone()));
        *response.status_mut() = status_of(completion)?;
        let headers = response.headers_mut();
        headers.reserve(kept.headers.len() + 2);
        for (name, value) in &kept.headers {
            headers.append(name.clone(), value.clone());
        }
        self.mark_replay(&mut response);
        Some(response)
    }

    pub(super) fn mark_replay(&self, response: &mut Response<Body>) {
        let name = self.policy.replay_header.clone();
        response.headers_mut().insert(name, TRUE);
    }

    fn mark_expiry(&self, response: &mut Response<Body>, expires_at: Timestamp) {
        if let Some(name) = &self.policy.expires_header {
            let date = HeaderValue::try_from(format!("@{}", expires_at.as_second()));
            if let Ok(date) = date {
                response.headers_mut().insert(name.clone(), date);
            }
        }
    }
}

/// What leaves of an outcome that was committed with its work. `None` where its
/// body was not kept, and what was answered is another response.
pub(super) fn first_answer(
    completion: &Completion,
    headers: HeaderMap,
    answered: Option<Response<Body>>,
) -> Option<Response<Body>> {
    let Some(kept) = &completion.response else {
        return answered.filter(|answered| answered.status() == completion.status);
    };
    let mut response = Response::new(Body::from(kept.body.clone()));
    *response.status_mut() = status_of(completion)?;
    *response.headers_mut() = headers;
    Some(response)
}

fn status_of(completion: &Completion) -> Option<StatusCode> {
    StatusCode::from_u16(completion.status).ok()
}

/// A response that has no end to wait for: an upgrade, an event stream, or one
/// that its handler marked.
fn is_stream(parts: &response::Parts) -> bool {
    parts.status == StatusCode::SWITCHING_PROTOCOLS
        || parts.extensions.get() == Some(&Recording::Stream)
        || content_type(parts).is_some_and(is_event_stream)
}

fn content_type(parts: &response::Parts) -> Option<&str> {
    parts.headers.get(CONTENT_TYPE)?.to_str().ok()
}

// A media type may be spelt in any case (RFC 9110 section 8.3.1).

fn is_event_stream(content_type: &str) -> bool {
    let start = content_type.get(..EVENT_STREAM.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM))
}

fn is_json(content_type: &str) -> bool {
    let mut windows = content_type.as_bytes().windows(4);
    windows.any(|window| window.eq_ignore_ascii_case(b"json"))
}

const EVENT_STREAM: &str = "text/event-stream";
const TRUE: HeaderValue = HeaderValue::from_static("true");
