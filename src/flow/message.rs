//! The way of a message: key → claim → archive, as a request's. Then the attempt
//! is its caller's, who says how it ends.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Attempt, Owned, Setup, record::Recorded};
use crate::{
    claim::{ClaimOutcome, CompletedRecord},
    clock::between,
    flights::Role,
    handler::{Idempotency, WorkState},
    key::IdempotencyKey,
    record::{Completion, OwnerToken},
    rejection::Rejection,
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
    let tracked = setup.handle.tasks.token();
    let mut attempt = Attempt::of_message(&setup, key, principal);
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
    let claim = match setup.claim_for(&mut attempt, token).await? {
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
    pub(crate) async fn complete(mut self, completion: Completion) -> Result<(), Rejection> {
        match self.idempotency.end() {
            WorkState::Open => {}
            WorkState::Sent => self.owned.in_doubt = true,
            WorkState::Committed(committed) => {
                self.owned.close(*committed);
                return Ok(());
            }
        }
        match self.owned.complete(completion).await? {
            Recorded::Own | Recorded::Earlier(_) | Recorded::Nothing => Ok(()),
            Recorded::Winner(record) => Err(Rejection::done(&record)),
        }
    }

    /// Gives the claim back, so that the message runs again. False when it has
    /// been done, or is somebody else's.
    pub(crate) async fn release(self) -> bool {
        match self.idempotency.end() {
            WorkState::Committed(committed) => {
                self.owned.close(*committed);
                false
            }
            WorkState::Open | WorkState::Sent => self.owned.release().await != Some(Fenced::Stale),
        }
    }
}

impl Rejection {
    /// What is known of a message that is done.
    fn done(record: &CompletedRecord) -> Self {
        Self::ResponseNotKept {
            original_status: record.completion.status,
            resource_id: record.completion.resource_id.clone(),
            created_at: record.created_at,
        }
    }
}
