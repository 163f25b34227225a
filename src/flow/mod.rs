//! The way of one request, top to bottom: key → scope → body → fingerprint →
//! claim → archive → handler → record → response.
//!
//! [`protect`] is the whole of it. From the claim on ([`lead`]) it goes on in a
//! task of its own when its client hangs up, which so changes nothing.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{Request, Response};
use tokio::time::{Instant, timeout};

use crate::{
    archive::Archive,
    archivist::Archivist,
    claim::{ArchiveLookup, Claim, ClaimOutcome, ClaimRequest, KeyAge},
    detached::Bound,
    flights::{Ending, Leader, Role, WaiterCaps},
    handle::StoreHandle,
    pending::{Call, Pending},
    policy::{Policy, StoreDown},
    record::OwnerToken,
    rejection::Rejection,
    request_outcome::RequestOutcome,
    scope::{ScopeSecret, ScopedKey},
    store::{Keeps, StoreError, StoreErrorKind},
};

mod attempt;
mod deliveries;
mod follow;
mod host;
mod late;
mod message;
mod observe;
mod owned;
mod record;
mod response;
mod run;

use self::{
    attempt::{Attempt, Prepared},
    follow::Waiting,
    owned::Owned,
    record::Answer,
    run::Ran,
};
pub(crate) use self::{
    message::{Message, take},
    observe::Observed,
};

/// What one layer works with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) policy: Policy,
    pub(crate) handle: Arc<StoreHandle>,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    /// Where outcomes are archived before they are recorded.
    pub(crate) archivist: Option<Arc<Archivist>>,
    pub(crate) secret: Option<ScopeSecret>,
    pub(crate) waiter_caps: WaiterCaps,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum Refusal<E> {
    /// The layer refuses.
    Rejected(Rejection),
    /// The inner service failed.
    Inner(E),
}

/// A response, and how it came about.
#[derive(Debug)]
struct Answered {
    response: Response<Body>,
    outcome: RequestOutcome,
}

/// How the leader of a flight got on.
enum Led<H, E> {
    Answered(Result<Answered, Refusal<E>>),
    /// The first request runs in another process; here is everything back.
    Elsewhere(Box<Attempt>, H, Claim),
}

/// Answers a request: by a replay, by a rejection, or by its handler. What came
/// of it is told to whoever watches.
pub(crate) async fn protect<H, F, E>(
    setup: Arc<Setup>,
    request: Box<Request<Body>>,
    handler: H,
    bound: Bound,
    observed: Observed,
) -> Result<Response<Body>, Refusal<E>>
where
    H: FnOnce(Request<Body>) -> F + Send + 'static,
    F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
    E: Send + 'static,
{
    match answer(setup, request, handler, bound, &observed).await {
        Ok(answered) => {
            observed.ended(answered.outcome);
            Ok(answered.response)
        }
        Err(refusal) => {
            match &refusal {
                Refusal::Rejected(rejection) => observed.refused(rejection),
                Refusal::Inner(_) => observed.ended(RequestOutcome::Failed),
            }
            Err(refusal)
        }
    }
}

/// The way up to the claim, again and again for as long as another request has
/// the key.
async fn answer<H, F, E>(
    setup: Arc<Setup>,
    request: Box<Request<Body>>,
    mut handler: H,
    bound: Bound,
    observed: &Observed,
) -> Result<Answered, Refusal<E>>
where
    H: FnOnce(Request<Body>) -> F + Send + 'static,
    F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
    E: Send + 'static,
{
    let mut attempt = match Attempt::prepare(&setup, request, observed).await {
        Ok(Prepared::Keyed(attempt)) => attempt,
        Ok(Prepared::PassThrough(request)) => {
            let passed = Box::pin(handler(*request)).await;
            let passed = passed.map_err(Refusal::Inner);
            return passed.map(Answered::by(RequestOutcome::NoKey));
        }
        Err(rejection) => return Err(Refusal::Rejected(rejection)),
    };
    let mut waiting = Waiting::default();
    loop {
        let flights = &setup.handle.flights;
        let leader = match flights.join(attempt.scoped_key, &attempt.fingerprint) {
            Role::Leader(leader) => leader,
            Role::Follower(flight) => match waiting.follow(&setup, &attempt, &flight).await {
                Ok(Some(replay)) => return Ok(Answered::by(RequestOutcome::Replayed)(replay)),
                Ok(None) => continue,
                Err(rejection) => return Err(Refusal::Rejected(rejection)),
            },
        };
        bound.bind();
        let led = lead(Arc::clone(&setup), attempt, leader, handler).await;
        let is_alone = bound.unbind();
        match led {
            Led::Answered(answer) => return answer,
            // Nobody waits in the name of a client who has gone.
            Led::Elsewhere(..) if is_alone => {
                let nobody_reads_it = Rejection::in_progress(Duration::ZERO, Duration::ZERO);
                return Err(Refusal::Rejected(nobody_reads_it));
            }
            Led::Elsewhere(returned, unused, claim) => {
                let key = returned.scoped_key;
                if let Err(rejection) = waiting.elsewhere(&setup, key, &claim).await {
                    return Err(Refusal::Rejected(rejection));
                }
                (attempt, handler) = (returned, unused);
            }
        }
    }
}

/// Claims the key and, where the claim is won, runs the handler under it.
async fn lead<H, F, E>(
    setup: Arc<Setup>,
    mut attempt: Box<Attempt>,
    leader: Leader,
    handler: H,
) -> Led<H, E>
where
    H: FnOnce(Request<Body>) -> F,
    F: Future<Output = Result<Response<Body>, E>>,
{
    // Shutdown waits for it.
    let _tracked = setup.handle.tasks.token();
    let token = OwnerToken::random();
    let asked = Instant::now();
    let claimed = match setup.claim_for(&mut attempt, token).await {
        Ok(claimed) => claimed,
        Err(rejection) => return Led::Answered(Err(Refusal::Rejected(rejection))),
    };
    attempt.observed.claimed(asked);
    let claim = match claimed {
        Ok(claim) => claim,
        Err(failure) => {
            let unclaimed = unclaimed(setup, attempt, leader, token, failure, handler);
            return Led::Answered(Box::pin(unclaimed).await);
        }
    };
    let rejection = match claim.outcome {
        ClaimOutcome::Claimed(lease) => {
            let owned = Owned::boxed(setup, leader, &attempt, token, lease, (asked, claim.now));
            return Led::Answered(execute(owned, attempt, handler).await);
        }
        ClaimOutcome::InFlight { .. } | ClaimOutcome::OtherScheme(_) => {
            return Led::Elsewhere(attempt, handler, claim);
        }
        ClaimOutcome::Completed(record) => {
            let record = Arc::new(*record);
            leader.end(Ending::Completed(Arc::clone(&record)));
            let replay = setup.replay(&record).map_err(Refusal::Rejected);
            return Led::Answered(replay.map(Answered::by(RequestOutcome::Replayed)));
        }
        ClaimOutcome::Mismatch => Rejection::KeyReused,
        ClaimOutcome::Expired(tombstone) => Box::pin(setup.expired(&attempt, *tombstone)).await,
        ClaimOutcome::Abandoned { created_at } => {
            Box::pin(setup.abandoned(&attempt, created_at)).await
        }
        ClaimOutcome::Refused(reason) => Rejection::KeyInvalid { reason },
    };
    Led::Answered(setup.acknowledged(rejection))
}

/// Archive, handler, record, response: the way of an attempt that owns its
/// record.
async fn execute<H, F, E>(
    mut owned: Box<Owned>,
    mut attempt: Box<Attempt>,
    handler: H,
) -> Result<Answered, Refusal<E>>
where
    H: FnOnce(Request<Body>) -> F,
    F: Future<Output = Result<Response<Body>, E>>,
{
    // Rare ways are boxed: every request carries the size of all that are not.
    if owned.is_to_be_cleared() {
        let setup = Arc::clone(&owned.setup);
        owned = match Box::pin(owned.cleared(&mut attempt)).await {
            Ok(owned) => owned,
            Err(rejection) => return setup.acknowledged(rejection),
        };
    }
    let (owned, response) = match owned.run(attempt, handler).await? {
        Ran::Answered(owned, response) => (owned, response),
        Ran::Settled(answer) => return Ok(answer),
    };
    match Box::pin(owned.record(response)).await {
        Ok(Answer::Own(answered) | Answer::Stored(answered)) => Ok(answered),
        Err(rejection) => Err(Refusal::Rejected(rejection)),
    }
}

/// The store did not answer the claim. What it may have written all the same
/// is given back, or completed, in the background.
async fn unclaimed<H, F, E>(
    setup: Arc<Setup>,
    attempt: Box<Attempt>,
    leader: Leader,
    token: OwnerToken,
    failure: ClaimFailure,
    handler: H,
) -> Result<Answered, Refusal<E>>
where
    H: FnOnce(Request<Body>) -> F,
    F: Future<Output = Result<Response<Body>, E>>,
{
    if !setup.runs_unclaimed(&failure) {
        let rejection = setup.refuse_unclaimed(attempt.scoped_key, leader, token, &failure);
        return Err(Refusal::Rejected(rejection));
    }
    let claim_may_land_until = setup.claim_may_land_until(&failure);
    let error = failure.error.causes();
    let so_far = setup.handle.unprotected.fetch_add(1, Ordering::Relaxed) + 1;
    tracing::error!(scoped_key = %attempt.scoped_key, %error, so_far, "claim failed: running without protection");
    let ran = run::run_unprotected(setup, attempt, leader, token, claim_may_land_until, handler);
    ran.await.map(Answered::by(RequestOutcome::Unprotected))
}

impl Answered {
    fn by(outcome: RequestOutcome) -> impl FnOnce(Response<Body>) -> Self {
        move |response| Self { response, outcome }
    }
}

/// Why a claim has no answer.
#[derive(Debug)]
struct ClaimFailure {
    error: StoreError,
    /// Whether the claim was sent, so that it may land after all.
    sent: bool,
}

impl Setup {
    /// The answer to a request that is not to run.
    fn acknowledged<E>(&self, rejection: Rejection) -> Result<Answered, Refusal<E>> {
        let acknowledgement = self.acknowledge(rejection).map_err(Refusal::Rejected);
        acknowledgement.map(Answered::by(RequestOutcome::Acknowledged))
    }

    async fn claim(&self, attempt: &Attempt, token: OwnerToken) -> Result<Claim, ClaimFailure> {
        let unsent = |error| ClaimFailure { error, sent: false };
        let sent = |error| ClaimFailure { error, sent: true };
        let smallest = self
            .in_time(self.handle.smallest_ttl())
            .await
            .map_err(unsent)?;
        let mut request = ClaimRequest {
            key: attempt.scoped_key,
            token,
            fingerprint: attempt.fingerprint.clone(),
            recomputed: None,
            lease: self.policy.lease,
            ttl: self.policy.ttl.get(),
            age: KeyAge {
                timestamp: attempt.key_timestamp,
                lookup: self.policy.archive_lookup,
                lookup_after: self.archive.as_ref().map(|_| self.lookup_after(smallest)),
            },
            abandoned: self.policy.abandoned,
        };
        for _ in 0..RECOMPUTATIONS {
            let call = self.handle.store.claim(request.clone());
            let claim = self.in_time(call).await.map_err(sent)?;
            match &claim.outcome {
                ClaimOutcome::OtherScheme(stored) => {
                    request.recomputed = attempt.recompute(stored);
                }
                _ => return Ok(claim),
            }
        }
        let changing = "the record changed its fingerprint scheme with every claim";
        Err(unsent(StoreError::unavailable("claim", changing)))
    }

    /// Whether a request runs although its claim has no answer.
    fn runs_unclaimed(&self, failure: &ClaimFailure) -> bool {
        // A row that cannot be read belongs to a request that may have run.
        let is_answer = matches!(
            failure.error.kind(),
            StoreErrorKind::Full | StoreErrorKind::Corrupt
        );
        self.policy.store_down == StoreDown::Open && !is_answer
    }

    /// Nothing runs, and a claim that lands after all is given back.
    fn refuse_unclaimed(
        &self,
        key: ScopedKey,
        leader: Leader,
        token: OwnerToken,
        failure: &ClaimFailure,
    ) -> Rejection {
        let error = failure.error.causes();
        if failure.error.kind() == StoreErrorKind::Full {
            tracing::warn!(scoped_key = %key, %error, "claim refused");
            let retry_after = RETRY_AFTER;
            return Rejection::StoreFull { retry_after };
        }
        tracing::error!(scoped_key = %key, %error, "claim failed: nothing runs");
        let claim_may_land_until = self.claim_may_land_until(failure);
        if claim_may_land_until.is_some() {
            self.handle.pending.add(Pending {
                key,
                token,
                call: Call::Release,
                claim_may_land_until,
                flight: None,
            });
        }
        leader.end(Ending::StoreUnavailable);
        Rejection::unavailable()
    }

    /// Until when a claim of unknown result may reach the store; `None` when it
    /// was not sent, or was answered.
    fn claim_may_land_until(&self, failure: &ClaimFailure) -> Option<Instant> {
        let may_land = failure.sent && failure.error.kind() == StoreErrorKind::Unavailable;
        may_land.then(|| Instant::now() + self.policy.lease.max(self.policy.store_timeout))
    }

    /// From which age on the archive is asked about a key, with `smallest` the
    /// smallest TTL in force. Where records may be lost, no key is too young.
    fn lookup_after(&self, smallest: Duration) -> Duration {
        match (self.handle.store.keeps(), self.policy.archive_lookup) {
            (Keeps::UntilEvicted, _) | (Keeps::UntilExpired, ArchiveLookup::AllKeys) => {
                Duration::ZERO
            }
            _ => smallest.saturating_sub(LOOKUP_MARGIN),
        }
    }

    /// A call that takes longer than the policy allows counts as unreachable.
    fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let too_slow = |elapsed| Err(StoreError::unavailable("no answer in time", elapsed));
        timeout(self.policy.store_timeout, call).map(move |answer| answer.unwrap_or_else(too_slow))
    }
}

impl Rejection {
    fn unavailable() -> Self {
        Self::StoreUnavailable {
            retry_after: RETRY_AFTER,
        }
    }

    /// A duplicate is told to wait as long as the first request has run so
    /// far, at least a second and never past its lease.
    fn in_progress(elapsed: Duration, remaining: Duration) -> Self {
        let longest = remaining.as_secs().max(1);
        Self::InProgress {
            retry_after: elapsed.as_secs().clamp(1, longest),
        }
    }
}

/// Covers a store's clock that steps back between a claim and a lookup.
const LOOKUP_MARGIN: Duration = Duration::from_mins(1);

/// A record changes its scheme only when it is replaced: once is enough, but
/// for a race.
const RECOMPUTATIONS: usize = 4;

const RETRY_AFTER: u64 = 1;
