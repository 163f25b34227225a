//! An attempt that owns its record, up to its handler: step 8, the archive, and
//! a last look at the lease.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Attempt, Observed, Setup};
use crate::{
    archive::Archive,
    claim::Lease,
    clock::between,
    fingerprint::Fingerprint,
    flights::Leader,
    handler::{Idempotency, Identity},
    key::IdempotencyKey,
    leases::HeldLease,
    pending::{Call, Pending},
    record::{Completion, OwnerToken, Tombstone},
    rejection::{LateRetry, Rejection},
    scope::{Principal, ScopedKey},
    store::{Fenced, Renewal, Renewed, StoreError},
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
    pub(super) claimed: Instant,
    /// When the call was sent that granted the lease last.
    granted: Instant,
    /// The store's clock at the claim.
    now: Timestamp,
    pub(super) observed: Observed,
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
        attempt.observed.attempt(attempt.number(lease.attempt));
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
            observed: attempt.observed.clone(),
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
        let reruns = self.setup.reruns();
        let found = self.setup.look_up(&*archive, attempt, not_before).await;
        match found {
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
            match self.renewed().await {
                Ok(Renewed::Until(_)) => {
                    self.unconfirmed = false;
                    self.granted = asked;
                    self.held.granted(asked);
                    if !self.needs_confirmation() {
                        self.leader.running(false);
                        return Ok(self);
                    }
                }
                // Soon it is free.
                Ok(Renewed::Locked) => tokio::time::sleep(self.setup.policy.lease / 12).await,
                Ok(Renewed::Lost) => {
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

    /// Has the lease run from now, unless it is lost. Nothing is speculative about
    /// the record any more.
    pub(super) async fn renewed(&self) -> Result<Renewed, StoreError> {
        let renewals = [Renewal {
            key: self.scoped_key,
            token: self.token,
            lease: self.setup.policy.lease,
            confirmed: true,
        }];
        let renewed = self.setup.handle.store.renew(&renewals);
        let renewed = self.setup.in_time(renewed).await?;
        Ok(renewed.first().copied().unwrap_or(Renewed::Lost))
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

/// A store that is this slow again and again is as good as down.
const CONFIRMATIONS: usize = 3;
