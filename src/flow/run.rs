//! Step 9: the handler, guarded, and what it came to.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc};

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{Request, Response};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    Answered, Attempt, Refusal, Setup,
    owned::Owned,
    record::Answer,
    response::{first_answer, message, server_error},
};
use crate::{
    flights::{Ending, Leader},
    handler::{Committed, Idempotency, Identity, WorkState},
    pending::{Call, Pending},
    record::OwnerToken,
    rejection::Rejection,
    request_outcome::RequestOutcome,
};

impl Owned {
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
        let began = Instant::now();
        let ran = Box::pin(ran).await;
        self.observed.ran(began);
        match idempotency.end() {
            WorkState::Open => {}
            WorkState::Sent => self.in_doubt = true,
            WorkState::Committed(committed) => {
                let answered = ran.ok().and_then(Result::ok).and_then(Result::ok);
                let answer = self.committed(*committed, answered);
                let answer = answer.map(Answered::by(RequestOutcome::Executed));
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
                Ok(Answer::Stored(answered)) => Ok(Ran::Settled(answered)),
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
}

/// What a handler came to.
#[derive(Debug)]
pub(super) enum Ran {
    /// This, which has to be recorded.
    Answered(Box<Owned>, Response<Body>),
    /// The record has its outcome already, and this is the answer: its own,
    /// committed with its work, or that of another attempt.
    Settled(Answered),
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
