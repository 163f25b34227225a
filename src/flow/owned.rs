//! Steps 7 to 9 for an attempt that owns its record: the archive, a last look
//! at the lease, the handler.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc};

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    Attempt, Refusal, Setup,
    record::{Answer, first_answer},
};
use crate::{
    archive::Archive,
    claim::Lease,
    clock::between,
    fingerprint::Fingerprint,
    flights::{Ending, Leader},
    handler::{Committed, Idempotency, Identity, WorkState},
    key::IdempotencyKey,
    leases::HeldLease,
    pending::{Call, Pending},
    record::{Completion, OwnerToken, Tombstone},
    rejection::{LateRetry, Rejection},
    scope::{Principal, ScopedKey},
    store::{Fenced, Renewal, Renewed},
};

/// An attempt and all that comes with owning a record. It ends in
/// [`Owned::give_back`] (the handler never ran, or nothing is kept), in a
/// completion, or, dropped, by the lapse of its lease.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) setup: Arc<Setup>,
    pub(super) leader: Leader,
    pub(super) held: HeldLease,
    pub(super) scoped_key: ScopedKey,
    pub(super) token: OwnerToken,
    pub(super) fingerprint: Fingerprint,
    pub(super) lease: Lease,
    /// A transaction that was to commit the outcome may have done so.
    pub(super) in_doubt: bool,
    unconfirmed: bool,
    key: IdempotencyKey,
    principal: Principal,
    /// When the claim was sent.
    claimed: Instant,
    /// When the call was sent that granted the lease last.
    granted: Instant,
    /// The store's clock at the claim.
    now: Timestamp,
}

impl Owned {
    pub(super) fn boxed(
        setup: Arc<Setup>,
        leader: Leader,
        attempt: &Attempt,
        token: OwnerToken,
        lease: Lease,
        (asked, now): (Instant, Timestamp),
    ) -> Box<Self> {
        let length = (setup.policy.lease, setup.policy.max_lease);
        let held = setup
            .handle
            .leases
            .hold(attempt.scoped_key, token, length, asked);
        leader.running(lease.is_speculative());
        if lease.attempt > 1 {
            tracing::warn!(scoped_key = %attempt.scoped_key, attempt = lease.attempt, "takeover: an earlier attempt ended without an outcome");
        }
        Box::new(Self {
            leader,
            held,
            scoped_key: attempt.scoped_key,
            token,
            fingerprint: attempt.fingerprint.clone(),
            in_doubt: false,
            unconfirmed: lease.is_speculative(),
            lease,
            key: attempt.key.clone(),
            principal: attempt.principal.clone(),
            claimed: asked,
            granted: asked,
            now,
            setup,
        })
    }

    /// What the handler learns.
    pub(super) fn idempotency(&self, attempt: &Attempt) -> Idempotency {
        let identity = Identity {
            key: self.key.clone(),
            principal: self.principal.clone(),
            scoped_key: self.scoped_key,
            token: self.token,
            number: attempt.number(self.lease.attempt),
        };
        let host = Arc::clone(&self.setup);
        Idempotency::new(identity, self.held.lost().clone(), host)
    }

    /// When the record expires, by this process's clock.
    pub(super) fn expiry(&self) -> Instant {
        self.claimed + between(self.now, self.lease.expires_at)
    }

    /// Whether the archive or the store has something to say before the handler
    /// starts.
    pub(super) fn is_to_be_cleared(&self) -> bool {
        self.lease.ask_archive || self.needs_confirmation()
    }

    /// Step 8, and a last look at the lease.
    pub(super) async fn cleared(
        mut self: Box<Self>,
        attempt: &mut Attempt,
    ) -> Result<Box<Self>, Rejection> {
        if self.lease.ask_archive {
            self = self.consult_archive(attempt).await?;
        }
        if self.needs_confirmation() {
            self = self.confirm().await?;
        }
        Ok(self)
    }

    /// Step 8, where the claim says so. Asks the archive whether the key is a
    /// late retry. The claim is committed by now: had a sweeper moved the
    /// record away before it, the lookup finds the tombstone.
    async fn consult_archive(
        self: Box<Self>,
        attempt: &mut Attempt,
    ) -> Result<Box<Self>, Rejection> {
        let Some(archive) = self.setup.archive.clone() else {
            return Ok(self);
        };
        // A record made under a time that was still to come may have expired
        // before it: beyond ten years it counts for nothing.
        let not_before = attempt
            .key_timestamp
            .filter(|timestamp| *timestamp <= self.now);
        let lookup = archive.lookup(self.scoped_key, not_before);
        let reruns = self.setup.reruns();
        match self.setup.in_time(lookup).await {
            Err(error) => {
                tracing::error!(scoped_key = %self.scoped_key, error = %error.causes(), "archive lookup failed: nothing runs");
                self.give_back().await;
                Err(Rejection::unavailable())
            }
            Ok(Some(tombstone)) if self.lease.attempt > 1 && tombstone.has_outcome() => {
                Err(self.settle_from_archive(&tombstone).await)
            }
            Ok(Some(tombstone)) if reruns && !tombstone.has_outcome() => {
                attempt.runs_again();
                Ok(self)
            }
            Ok(Some(tombstone)) => {
                let late = self.setup.late(attempt, &tombstone);
                let released = self.release().await;
                // An attempt that has taken over since archived it ahead of its
                // time: its record answers.
                if released == Some(Fenced::Stale) && tombstone.expired_at > self.now {
                    return Err(self.not_ours());
                }
                Err(late)
            }
            Ok(None) if self.is_beyond(&*archive, attempt) && reruns => {
                attempt.runs_again();
                Ok(self)
            }
            Ok(None) if self.is_beyond(&*archive, attempt) => {
                let status = self.setup.policy.late_status;
                self.give_back().await;
                Err(Rejection::KeyExpired(Box::new(LateRetry::unjudged(status))))
            }
            Ok(None) => Ok(self),
        }
    }

    /// The answer when another attempt owns the record by now.
    fn not_ours(&self) -> Rejection {
        Rejection::in_progress(self.claimed.elapsed(), self.setup.policy.lease)
    }

    /// Whether the key is older than anything the archive still holds.
    fn is_beyond(&self, archive: &dyn Archive, attempt: &Attempt) -> bool {
        match (archive.retention(), attempt.key_timestamp) {
            (Some(retention), Some(timestamp)) => between(timestamp, self.now) > retention,
            _ => false,
        }
    }

    /// An earlier attempt got as far as the archive: its outcome completes the
    /// live record, without a response.
    async fn settle_from_archive(self: Box<Self>, tombstone: &Tombstone) -> Rejection {
        let completion = Completion {
            status: tombstone.status,
            resource_id: tombstone.resource_id.clone(),
            response: None,
        };
        let rejection = Rejection::ResponseNotKept {
            original_status: tombstone.status,
            resource_id: tombstone.resource_id.clone(),
            created_at: self.lease.created_at,
        };
        match self.complete(completion).await {
            Ok(_) => rejection,
            Err(fenced) => fenced,
        }
    }

    /// Whether the record is still marked speculative, or half of the lease is
    /// over already: so slow an answer may have outlived it.
    fn needs_confirmation(&self) -> bool {
        self.unconfirmed || self.granted.elapsed() > self.setup.policy.lease / 2
    }

    /// Before the handler starts the lease must be young, and the record must
    /// not be speculative: renews it.
    async fn confirm(mut self: Box<Self>) -> Result<Box<Self>, Rejection> {
        for _ in 0..CONFIRMATIONS {
            let asked = Instant::now();
            let renewals = [Renewal {
                key: self.scoped_key,
                token: self.token,
                lease: self.setup.policy.lease,
                confirmed: true,
            }];
            let renewed = self.setup.handle.store.renew(&renewals);
            match self.setup.in_time(renewed).await.as_deref() {
                Ok([Renewed::Until(_)]) => {
                    self.unconfirmed = false;
                    self.granted = asked;
                    self.held.granted(asked);
                    if !self.needs_confirmation() {
                        self.leader.running(false);
                        return Ok(self);
                    }
                }
                // Soon it is free.
                Ok([Renewed::Locked]) => tokio::time::sleep(self.setup.policy.lease / 12).await,
                Ok(_) => {
                    // Another attempt owns the record now, or it has expired,
                    // and would look as if something had run.
                    let rejection = self.not_ours();
                    self.give_back().await;
                    return Err(rejection);
                }
                Err(error) => {
                    tracing::error!(scoped_key = %self.scoped_key, error = %error.causes(), "lease not confirmed: nothing runs");
                    break;
                }
            }
        }
        self.give_back().await;
        Err(Rejection::unavailable())
    }

    /// Step 9. Runs the handler to its response, its panic, its failure or the
    /// end of the longest lease.
    pub(super) async fn run<H, F, E>(
        mut self: Box<Self>,
        attempt: Box<Attempt>,
        handler: H,
    ) -> Result<Ran, Refusal<E>>
    where
        H: FnOnce(Request<Body>) -> F,
        F: Future<Output = Result<Response<Body>, E>>,
    {
        let until = self.claimed + self.setup.policy.max_lease;
        let idempotency = self.idempotency(&attempt);
        let ran = timeout_at(until, guarded(attempt, idempotency.clone(), handler));
        let ran = Box::pin(ran).await;
        match idempotency.end() {
            WorkState::Open => {}
            WorkState::Sent => self.in_doubt = true,
            WorkState::Committed(committed) => {
                let answered = ran.ok().and_then(Result::ok).and_then(Result::ok);
                let answer = self.committed(*committed, answered);
                return answer.map(Ran::Settled).map_err(Refusal::Rejected);
            }
        }
        match ran {
            Ok(Ok(Ok(mut response))) => {
                idempotency.mark(&mut response);
                Ok(Ran::Answered(self, response))
            }
            // What becomes of the error outside is not seen here; a retry gets
            // what stands for it.
            Ok(Ok(Err(error))) => match Box::pin(self.record(failure(&idempotency))).await {
                Ok(Answer::Own(_)) => Err(Refusal::Inner(error)),
                Ok(Answer::Winner(replay)) => Ok(Ran::Settled(replay)),
                Err(fenced) => Err(Refusal::Rejected(fenced)),
            },
            Ok(Err(panic)) => {
                tracing::error!(scoped_key = %self.scoped_key, panic = message(&*panic), "the handler panicked");
                Ok(Ran::Answered(self, failure(&idempotency)))
            }
            Err(_) => {
                tracing::error!(scoped_key = %self.scoped_key, "the handler was aborted at max_lease");
                let created_at = Some(self.lease.created_at);
                self.leader.end(Ending::Unknown { created_at });
                Err(Refusal::Rejected(Rejection::OutcomeUnknown { created_at }))
            }
        }
    }

    /// Gives the claim back: the handler never ran.
    pub(super) async fn give_back(self: Box<Self>) {
        self.release().await;
    }

    /// Releases the record, now or, when the store cannot be told, in the
    /// background.
    pub(super) async fn release(&self) -> Option<Fenced> {
        self.held.ending();
        let release = self.setup.handle.store.release(self.scoped_key, self.token);
        match self.setup.in_time(release).await {
            Ok(fenced) => Some(fenced),
            Err(error) => {
                tracing::warn!(scoped_key = %self.scoped_key, error = %error.causes(), "release failed: it is repeated");
                self.setup.handle.pending.add(Pending {
                    key: self.scoped_key,
                    token: self.token,
                    call: Call::Release,
                    claim_may_land_until: None,
                    flight: None,
                });
                None
            }
        }
    }
}

/// What a handler came to.
#[derive(Debug)]
pub(super) enum Ran {
    /// This, which has to be recorded.
    Answered(Box<Owned>, Response<Body>),
    /// The record has its outcome already, and this is the answer: its own,
    /// committed with its work, or that of another attempt.
    Settled(Response<Body>),
}

/// Runs the handler although the store did not answer the claim, as the policy
/// wants. Duplicates in this process are held back all the same, and a claim
/// that landed after all is completed or given back.
pub(super) async fn run_unprotected<H, F, E>(
    setup: Arc<Setup>,
    attempt: Box<Attempt>,
    leader: Leader,
    token: OwnerToken,
    claim_may_land_until: Option<Instant>,
    handler: H,
) -> Result<Response<Body>, Refusal<E>>
where
    H: FnOnce(Request<Body>) -> F,
    F: Future<Output = Result<Response<Body>, E>>,
{
    leader.running(false);
    let key = attempt.scoped_key;
    let identity = Identity {
        key: attempt.key.clone(),
        principal: attempt.principal.clone(),
        scoped_key: key,
        token,
        number: attempt.number(1),
    };
    let host = Arc::clone(&setup);
    let idempotency = Idempotency::new(identity, CancellationToken::new(), host);
    let until = Instant::now() + setup.policy.max_lease;
    let ran = timeout_at(until, guarded(attempt, idempotency.clone(), handler)).await;
    let unknown = || Rejection::OutcomeUnknown { created_at: None };
    // The claim had landed: the record is there, and has its outcome.
    let in_doubt = match idempotency.end() {
        WorkState::Open => false,
        WorkState::Sent => true,
        WorkState::Committed(committed) => {
            let Committed {
                completion,
                headers,
            } = *committed;
            let answered = ran.ok().and_then(Result::ok).and_then(Result::ok);
            let answer = first_answer(&completion, headers, answered);
            leader.end(Ending::Unrecorded(Arc::new(completion)));
            return answer.ok_or_else(|| Refusal::Rejected(unknown()));
        }
    };
    let (call, answer) = match ran {
        Ok(Ok(Ok(mut response))) => {
            idempotency.mark(&mut response);
            setup.outcome(response).await
        }
        Ok(Ok(Err(error))) => (
            setup.outcome::<E>(failure(&idempotency)).await.0,
            Err(Refusal::Inner(error)),
        ),
        Ok(Err(panic)) => {
            tracing::error!(scoped_key = %key, panic = message(&*panic), "the handler panicked");
            setup.outcome(failure(&idempotency)).await
        }
        Err(_) => {
            tracing::error!(scoped_key = %key, "the handler was aborted at max_lease");
            let created_at = None;
            leader.end(Ending::Unknown { created_at });
            return Err(Refusal::Rejected(unknown()));
        }
    };
    // Those who waited here need no record to get the first answer.
    let shared = match &call {
        Call::Complete(outcome, _) if !in_doubt => {
            Ending::Unrecorded(Arc::new(outcome.completion.clone()))
        }
        _ => Ending::Gone,
    };
    if claim_may_land_until.is_some() {
        setup.handle.pending.add(Pending {
            key,
            token,
            call,
            claim_may_land_until,
            flight: None,
        });
    }
    leader.end(shared);
    if in_doubt {
        return Err(Refusal::Rejected(unknown()));
    }
    answer
}

/// The handler's future with a panic caught, wherever in it that happens.
fn guarded<H, F, T>(
    attempt: Box<Attempt>,
    idempotency: Idempotency,
    handler: H,
) -> impl Future<Output = Result<T, Box<dyn Any + Send>>>
where
    H: FnOnce(Request<Body>) -> F,
    F: Future<Output = T>,
{
    // Whatever the panic left half done stays inside the handler's own state.
    AssertUnwindSafe(async move { handler(attempt.into_request(idempotency)).await }).catch_unwind()
}

/// What a client gets for a handler that panicked or failed: the first one
/// and, since nobody knows whether the effect happened, every retry.
fn failure(idempotency: &Idempotency) -> Response<Body> {
    let mut response = server_error();
    idempotency.mark_resource(&mut response);
    response
}

pub(super) fn server_error() -> Response<Body> {
    let mut response = Response::new(Body::from("Internal Server Error"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// A store that is this slow again and again is as good as down.
const CONFIRMATIONS: usize = 3;
