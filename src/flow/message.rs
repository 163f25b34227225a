//! The way of a message: key → claim → archive, as a request's. Then the attempt
//! is its caller's, who says how it ends.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;

use super::{Attempt, Observed, Owned, Setup, record::Recorded};
use crate::{
    claim::{ClaimOutcome, CompletedRecord},
    clock::between,
    flights::Role,
    handler::{Idempotency, WorkState},
    key::IdempotencyKey,
    record::{Completion, OwnerToken},
    rejection::Rejection,
    request_outcome::RequestOutcome,
    scope::Principal,
    store::{Fenced, Renewed, StoreError},
};

/// A claim that is held for a message.
#[derive(Debug)]
pub(crate) struct Message {
    owned: Box<Owned>,
    idempotency: Idempotency,
    /// Shutdown waits for it.
    _tracked: TaskTrackerToken,
}

/// Claims a message's key for its caller. A message that is not to run is told
/// of as a repeated request is.
pub(crate) async fn take(
    setup: Arc<Setup>,
    principal: Principal,
    key: IdempotencyKey,
) -> Result<Message, Rejection> {
    let observed = Observed::begin();
    let taken = taken(setup, principal, key, observed.clone());
    let taken = taken.instrument(observed.span().clone()).await;
    if let Err(rejection) = &taken {
        observed.ended(rejection.of_message());
    }
    taken
}

async fn taken(
    setup: Arc<Setup>,
    principal: Principal,
    key: IdempotencyKey,
    observed: Observed,
) -> Result<Message, Rejection> {
    let tracked = setup.handle.tasks.token();
    let mut attempt = Attempt::of_message(&setup, key, principal, observed);
    let Role::Leader(leader) = setup
        .handle
        .flights
        .join(attempt.scoped_key, &attempt.fingerprint)
    else {
        let remaining = setup.policy.lease / 2;
        return Err(Rejection::in_progress(remaining / 2, remaining));
    };
    let token = OwnerToken::random();
    let asked = Instant::now();
    let claimed = setup.claim_for(&mut attempt, token).await;
    attempt.observed.claimed(asked);
    let claim = match claimed? {
        Ok(claim) => claim,
        Err(failure) => {
            return Err(setup.refuse_unclaimed(attempt.scoped_key, leader, token, &failure));
        }
    };
    let lease = match claim.outcome {
        ClaimOutcome::Claimed(lease) => lease,
        ClaimOutcome::InFlight { lease_until } => {
            let remaining = between(claim.now, lease_until);
            return Err(Rejection::in_progress(remaining, remaining));
        }
        ClaimOutcome::Completed(record) => return Err(Rejection::done(&record)),
        ClaimOutcome::Expired(tombstone) => return Err(setup.expired(&attempt, *tombstone).await),
        ClaimOutcome::Abandoned { created_at } => {
            return Err(setup.abandoned(&attempt, created_at).await);
        }
        // Without a fingerprint every record is one of this message.
        ClaimOutcome::Mismatch | ClaimOutcome::OtherScheme(_) => return Err(Rejection::KeyReused),
        ClaimOutcome::Refused(reason) => return Err(Rejection::KeyInvalid { reason }),
    };
    let owned = Owned::boxed(setup, leader, &attempt, token, lease, (asked, claim.now));
    let owned = owned.cleared(&mut attempt).await?;
    // Nobody ends a job that hangs.
    owned.leader.leads_until(owned.held.lost().clone());
    Ok(Message {
        idempotency: owned.idempotency(&attempt),
        owned,
        _tracked: tracked,
    })
}

impl Message {
    pub(crate) fn idempotency(&self) -> &Idempotency {
        &self.idempotency
    }

    /// Has the lease run from now. False when it is lost.
    pub(crate) async fn renew(&self) -> Result<bool, StoreError> {
        let asked = Instant::now();
        match self.owned.renewed().await? {
            Renewed::Until(_) => self.owned.held.granted(asked),
            // A transaction of this attempt's own, most likely.
            Renewed::Locked => {}
            Renewed::Lost => {
                self.owned.held.lost().cancel();
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Records that the message is done, unless that was committed with its
    /// work. An error says that this attempt's outcome does not stand.
    pub(crate) async fn complete(self, completion: Completion) -> Result<(), Rejection> {
        let observed = self.owned.observed.clone();
        let began = Instant::now();
        let completed = self.recorded(completion).await;
        observed.recorded(began);
        match completed {
            Ok(Recorded::Own | Recorded::Earlier(_) | Recorded::Nothing) => {
                observed.ended(RequestOutcome::Executed);
                Ok(())
            }
            Ok(Recorded::Winner(record)) => {
                observed.ended(RequestOutcome::Fenced);
                Err(Rejection::done(&record))
            }
            Err(rejection) => {
                observed.ended((&rejection).into());
                Err(rejection)
            }
        }
    }

    async fn recorded(mut self, completion: Completion) -> Result<Recorded, Rejection> {
        match self.idempotency.end() {
            WorkState::Open => {}
            WorkState::Sent => self.owned.in_doubt = true,
            WorkState::Committed(committed) => {
                self.owned.close(*committed);
                return Ok(Recorded::Own);
            }
        }
        self.owned.complete(completion).await
    }

    /// Gives the claim back, so that the message runs again. False when it has
    /// been done, or is somebody else's.
    pub(crate) async fn release(self) -> bool {
        let observed = &self.owned.observed;
        match self.idempotency.end() {
            WorkState::Committed(committed) => {
                observed.ended(RequestOutcome::Executed);
                self.owned.close(*committed);
                false
            }
            WorkState::Open | WorkState::Sent => {
                let released = self.owned.release().await;
                observed.ended(RequestOutcome::Forgotten);
                released != Some(Fenced::Stale)
            }
        }
    }
}

impl Rejection {
    /// A message that is done is taken off its queue.
    fn of_message(&self) -> RequestOutcome {
        match self {
            Self::ResponseNotKept { .. } => RequestOutcome::Acknowledged,
            Self::KeyExpired(late) if late.original_status.is_some() => {
                RequestOutcome::Acknowledged
            }
            other => other.into(),
        }
    }

    /// What is known of a message that is done.
    fn done(record: &CompletedRecord) -> Self {
        Self::ResponseNotKept {
            original_status: record.completion.status,
            resource_id: record.completion.resource_id.clone(),
            created_at: record.created_at,
        }
    }
}
