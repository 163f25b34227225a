//! Where live records are kept: the contract of a store, and the stores of
//! this crate.
//!
//! # The contract
//!
//! A store holds at most one [`Record`] for a [`ScopedKey`]. Its states:
//!
//! ```text
//!             claim (fresh)                  complete (the token matches)
//!  absent ───────────────► in progress ────────────────────────► completed
//!    ▲                      │  ▲   │                                │
//!    │ release of attempt 1 │  │   │ lease lapses                   │ expires_at
//!    ├──────────────────────┘  │   ▼                                ▼ passes
//!    │               takeover  └─ lapsed ───── expires_at ───────► expired
//!    └──────────────────────────────────────── swept ──────────────┘
//! ```
//!
//! 1. **Claim is atomic.** Of any number of claims of one key, in any number
//!    of processes, one is answered [`ClaimOutcome::Claimed`]. The rules are
//!    those of [`decide`](crate::claim::decide), and what an expired or a
//!    lapsed row leads to is decided and written in the same step. A claim
//!    repeated with its own token is recognised and claimed again, under the
//!    same attempt number.
//! 2. **One clock**: the store's own. It is read when the row is written, not
//!    when the caller began to wait for it, so that no lease is born lapsed.
//! 3. **Fencing.** Complete, release and renew act only for the token that owns
//!    the row. A stale token completes nothing, and is told so. A lapsed lease
//!    may still be completed or renewed until another attempt takes over.
//! 4. **A row with a live lease is never expired**, not for a claim and not for
//!    a sweep. A row past `expires_at` is expired before it is swept, and once
//!    expired it is neither completed nor renewed: a sweep may have archived it.
//! 5. **Completion** of a row that this token completed already succeeds, and
//!    changes nothing. Completion keeps `expires_at`.
//! 6. **Release** touches only a row in progress. Attempt 1 becomes absent; a
//!    later attempt becomes lapsed and keeps its number, since an earlier one
//!    may have had its effect. Either way the token owns nothing any more, so
//!    that a renewal under way does not revive the row.
//! 7. **Cancel safety.** Dropping the future of any method leaves the store as
//!    if the call had happened or had not; never in between.
//! 8. **Clones share state.** [`Store::identity`] is equal for clones, and for
//!    an archive in the same database.
//!
//! [`conformance`](crate::conformance) has a test for each of these.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    archive::Archive,
    claim::{Claim, ClaimRequest},
    inspect::InspectStore,
    record::{Completion, ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
};

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod codec;
mod error;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod work;

#[cfg(doc)]
use crate::claim::{ArchiveLookup, ClaimOutcome};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use self::work::{Work, WorkError};
pub use self::{
    error::{StoreError, StoreErrorKind},
    memory::{MemoryStore, MemoryStoreBuilder},
};
pub use crate::identity::StoreIdentity;

/// Holds live records. See the [module](self) for the contract.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Tells handles of one store from handles of another: layers that share a
    /// store share one table of requests in flight.
    fn identity(&self) -> StoreIdentity;

    /// How long records stay by themselves. Default: [`Keeps::UntilSwept`].
    fn keeps(&self) -> Keeps {
        Keeps::UntilSwept
    }

    /// Asks whether an attempt may run. See the rules of
    /// [`decide`](crate::claim::decide).
    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError>;

    /// Records how the attempt ended.
    async fn complete(
        &self,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError>;

    /// Gives a claim back because nothing was done under it.
    /// [`Fenced::Stale`] when the token owns no row in progress.
    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError>;

    /// Makes leases run from now, all in one call. The answers are in the order
    /// of the questions.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError>;

    /// The record of a key, expired or not, until it is swept.
    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError>;

    /// Completes a record whose attempt lapsed, expired or not, for an operator
    /// or a reconciler who has learned the outcome. The attempt owns it no
    /// longer. False when there is no such record: absent, completed, owned
    /// under a live lease, or speculative, since nothing ran under it.
    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError>;

    /// Moves up to `limit` expired records, oldest first, into `archive`, or
    /// deletes them when there is none (and always those that are speculative,
    /// since nothing ran under them); in one transaction where both are one
    /// database, else by [`move_in_two_phases`]. How many were moved: zero when
    /// nothing is left.
    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError>;

    /// Up to `limit` expired records, oldest first: the first phase of a sweep
    /// into another database.
    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError>;

    /// Removes those of `records` that are still expired and the same (token,
    /// expiry, status): the last phase of a sweep. How many that were.
    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError>;

    /// Publishes the TTLs in force in this process, replacing what it published
    /// before, and returns the smallest TTL that any process published within
    /// the last largest one.
    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError>;

    /// The store's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Finishes what was accepted, then refuses further calls with
    /// [`StoreErrorKind::Unavailable`].
    async fn close(&self);

    /// What the store can tell an operator. Default: nothing.
    fn inspect(&self) -> Option<&dyn InspectStore> {
        None
    }
}

/// Sweeps between two databases: the archive is written first, then those live
/// rows that are still the same are removed. A crash in between leaves rows
/// that the next sweep archives again, to no effect.
///
/// # Errors
///
/// That of the first call that fails; the rows stay for the next sweep.
pub async fn move_in_two_phases(
    store: &dyn Store,
    archive: Option<&dyn Archive>,
    limit: u32,
) -> Result<u64, StoreError> {
    loop {
        let expired = store.expired(limit).await?;
        if expired.is_empty() {
            return Ok(0);
        }
        if let Some(archive) = archive {
            let ran = expired.iter().filter(|row| !row.speculative);
            let tombstones: Vec<_> = ran.map(|row| row.tombstone.clone()).collect();
            archive.insert(&tombstones).await?;
        }
        // None left to remove: another sweeper was faster. Zero would say that
        // nothing is left, so look again.
        let removed = store.remove(&expired).await?;
        if removed > 0 {
            return Ok(removed);
        }
    }
}

/// What became of leases that were asked about one by one. One that the store
/// could not tell of must not cost the others what they got: it runs as before.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn renewed_each(
    answers: Vec<Result<Renewed, StoreError>>,
) -> Result<Vec<Renewed>, StoreError> {
    if answers.iter().all(Result::is_err) {
        return answers.into_iter().collect();
    }
    let answers = answers.into_iter();
    Ok(answers
        .map(|answer| answer.unwrap_or(Renewed::Locked))
        .collect())
}

/// How long a record stays in a store by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    /// Until a sweep takes it. The default.
    #[default]
    UntilSwept,
    /// Until it expires, when no sweep sees it go; or until the server loses its
    /// memory. So its outcome is archived before it is recorded, and
    /// [`ArchiveLookup::AllKeys`] asks for every key, however young.
    UntilExpired,
    /// Until room is needed: as [`Keeps::UntilExpired`], and a layer is built
    /// only with an archive that it asks for every key, by
    /// [`ArchiveLookup::AllKeys`] or [`ArchiveLookup::RequireTimestamped`].
    UntilEvicted,
}

/// Whether a call under a token took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// The token owns the record.
    Owner,
    /// It does not, or no longer: nothing was written.
    Stale,
}

/// One lease to extend.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// The record.
    pub key: ScopedKey,
    /// Its owner.
    pub token: OwnerToken,
    /// How long from now.
    pub lease: Duration,
    /// Whether the archive has been asked: clears the record's speculative
    /// mark.
    pub confirmed: bool,
}

/// What became of a lease to extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The record belongs to the token until then.
    Until(Timestamp),
    /// The record is the token's, but a transaction holds it locked, so that
    /// the lease runs as before: ask again.
    Locked,
    /// The token owns no record in progress.
    Lost,
}

/// The TTLs that one process uses with a store.
#[derive(Clone, Copy, Debug)]
pub struct TtlNotice {
    /// Names the process, for as long as it runs.
    pub process: Uuid,
    /// The smallest TTL of its policies.
    pub smallest: Duration,
    /// The largest.
    pub largest: Duration,
}
