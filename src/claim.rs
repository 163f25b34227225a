//! One atomic question to the store, "may this attempt run?", and the rules
//! that answer it.
//!
//! [`decide`] is those rules, pure: a store that reads a row, decides and
//! writes in one transaction needs nothing else. A store that decides in SQL
//! or Lua follows it line by line.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    clock::{after, between},
    fingerprint::{Fingerprint, Judgement},
    key::KeyError,
    record::{Completion, OwnerToken, Record, RecordState, Tombstone},
    scope::ScopedKey,
};

/// Everything a store needs to judge one attempt.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The record's name.
    pub key: ScopedKey,
    /// The token under which this attempt will own the record.
    pub token: OwnerToken,
    /// The request under the policy's scheme: what a fresh record stores.
    pub fingerprint: Fingerprint,
    /// The same request under the scheme of the stored record, when an
    /// earlier claim answered [`ClaimOutcome::OtherScheme`].
    pub recomputed: Option<Fingerprint>,
    /// How long the record belongs to this attempt, from the moment the store
    /// writes it.
    pub lease: Duration,
    /// How long a fresh record lives.
    pub ttl: Duration,
    /// What the key itself tells of its age.
    pub age: KeyAge,
    /// What to do with a record whose lease lapsed without an outcome.
    pub abandoned: Abandoned,
}

/// What a lapsed lease leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abandoned {
    /// The next request with the key takes over and runs the handler again,
    /// which is told its attempt number: at least once. The default.
    #[default]
    TakeOver,
    /// Nothing runs again; the client is told that the outcome is unknown: at
    /// most once.
    Refuse,
}

/// When a fresh claim asks the archive whether the key is a late retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArchiveLookup {
    /// Only for a key whose own timestamp (ULID, `UUIDv7`) is old. A key without
    /// one that is retried after TTL and sweep runs again. The default.
    #[default]
    TimestampedKeys,
    /// For every key that is not provably young.
    AllKeys,
    /// As [`ArchiveLookup::TimestampedKeys`], and a key without a timestamp is
    /// refused.
    RequireTimestamped,
}

/// What the store's clock has to judge about a key's own timestamp.
#[derive(Clone, Copy, Debug)]
pub struct KeyAge {
    /// The key's own timestamp, where it has one that is not before 2010.
    pub timestamp: Option<Timestamp>,
    /// The policy's mode.
    pub lookup: ArchiveLookup,
    /// The age from which a record of this key may already be gone; `None`
    /// without an archive. Zero where it may be gone at any age: then
    /// [`ArchiveLookup::AllKeys`] and [`ArchiveLookup::RequireTimestamped`] ask
    /// for every key, also for one whose timestamp is ahead.
    pub lookup_after: Option<Duration>,
}

/// A timestamp further ahead is refused, up to [`OPAQUE_AHEAD`].
pub(crate) const REFUSED_AHEAD: Duration = Duration::from_hours(24);

/// A timestamp further ahead than ten years is no timestamp.
pub(crate) const OPAQUE_AHEAD: Duration = Duration::from_hours(87672);

/// A key's age, judged at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedAge {
    /// When a record claimed now expires: `max(now, timestamp) + TTL`, so that
    /// a client whose clock runs ahead gets a record that lasts longer.
    pub expires_at: Timestamp,
    /// Whether a fresh claim has to ask the archive before anything runs.
    pub ask_archive: bool,
}

impl KeyAge {
    /// Judges the age at the store's `now`.
    ///
    /// # Errors
    ///
    /// [`KeyError::TimestampMissing`] and [`KeyError::TimestampFuture`], as
    /// the mode demands.
    pub fn judge(&self, now: Timestamp, ttl: Duration) -> Result<JudgedAge, KeyError> {
        let timestamp = self
            .timestamp
            .filter(|timestamp| between(now, *timestamp) <= OPAQUE_AHEAD);
        if timestamp.is_none() && self.lookup == ArchiveLookup::RequireTimestamped {
            return Err(KeyError::TimestampMissing);
        }
        let too_far = timestamp.is_some_and(|timestamp| between(now, timestamp) > REFUSED_AHEAD);
        let all = self.lookup == ArchiveLookup::AllKeys;
        let asks_any = self.lookup != ArchiveLookup::TimestampedKeys;
        if too_far && !all {
            return Err(KeyError::TimestampFuture);
        }
        // What is too far ahead now may once have been too far to count.
        let old = |lookup_after: Duration| match timestamp {
            Some(timestamp) if !too_far => {
                between(timestamp, now) > lookup_after || (asks_any && lookup_after.is_zero())
            }
            _ => all,
        };
        Ok(JudgedAge {
            expires_at: after(timestamp.map_or(now, |timestamp| timestamp.max(now)), ttl),
            ask_archive: self.lookup_after.is_some_and(old),
        })
    }
}

/// The store's answer to a claim, with the store's time.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The store's clock as the claim was judged.
    pub now: Timestamp,
    /// What the caller does next.
    pub outcome: ClaimOutcome,
}

/// What a claim leads to.
#[derive(Clone, Debug)]
pub enum ClaimOutcome {
    /// This attempt owns the record.
    Claimed(Lease),
    /// Another attempt owns it.
    InFlight {
        /// When its lease runs out unless it is renewed.
        lease_until: Timestamp,
    },
    /// The request has been answered before.
    Completed(Box<CompletedRecord>),
    /// The key belongs to another request.
    Mismatch,
    /// The record is past its time and has not been swept yet.
    Expired(Box<Tombstone>),
    /// An earlier attempt lapsed without an outcome, and the policy forbids a
    /// second run.
    Abandoned {
        /// When the key was first claimed.
        created_at: Timestamp,
    },
    /// The stored fingerprint was made under another scheme: hash the request
    /// under it and claim again with [`ClaimRequest::recomputed`]. Nothing was
    /// written.
    OtherScheme(Fingerprint),
    /// The key's own timestamp is not acceptable. Nothing was written.
    Refused(KeyError),
}

/// The right to run the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// 1 for a fresh claim, more after a takeover.
    pub attempt: u32,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When the record expires.
    pub expires_at: Timestamp,
    /// When the lease runs out unless it is renewed.
    pub lease_until: Timestamp,
    /// Whether the archive has to be asked before anything runs.
    pub ask_archive: bool,
}

impl Lease {
    /// Whether the record is marked speculative until the archive has answered.
    /// A takeover's is not: its key belongs to a request that ran.
    pub fn is_speculative(&self) -> bool {
        self.ask_archive && self.attempt == 1
    }
}

/// A record with an outcome, as a claim found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedRecord {
    /// The request that made it.
    pub fingerprint: Fingerprint,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When the record expires.
    pub expires_at: Timestamp,
    /// The outcome.
    pub completion: Completion,
}

impl CompletedRecord {
    /// What remains of the record once it has expired.
    pub(crate) fn tombstone(&self, key: ScopedKey) -> Tombstone {
        Tombstone {
            key,
            fingerprint: self.fingerprint.clone(),
            status: self.completion.status,
            resource_id: self.completion.resource_id.clone(),
            created_at: self.created_at,
            expired_at: self.expires_at,
        }
    }
}

/// What a store does with the row it found.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Write this record, in place of whatever is there, and answer
    /// [`ClaimOutcome::Claimed`].
    Write(Box<Record>, Lease),
    /// Write nothing and answer this.
    Answer(ClaimOutcome),
}

/// Judges a claim against the row of its key, at the store's `now`.
///
/// The order is the contract's: live lease (mismatch, then in flight), then
/// expired, then mismatch, then completed, then lapsed.
pub fn decide(request: &ClaimRequest, stored: Option<&Record>, now: Timestamp) -> Decision {
    let age = match request.age.judge(now, request.ttl) {
        Ok(age) => age,
        Err(refusal) => return Decision::Answer(ClaimOutcome::Refused(refusal)),
    };
    let Some(record) = stored else {
        return fresh(request, age, now);
    };
    if let RecordState::InProgress {
        lease_until,
        speculative,
    } = record.state
    {
        if record.token == request.token {
            return write(
                request,
                age,
                record.attempt,
                record.created_at,
                speculative,
                now,
            );
        }
        if lease_until > now {
            let told = if speculative {
                None
            } else {
                told_apart(request, record)
            };
            let outcome = told.unwrap_or(ClaimOutcome::InFlight { lease_until });
            return Decision::Answer(outcome);
        }
    }
    // A first attempt that lapsed before the archive had answered never ran.
    if record.is_speculative() {
        return fresh(request, age, now);
    }
    if record.is_expired(now) {
        return match request.age.lookup_after {
            Some(_) => Decision::Answer(ClaimOutcome::Expired(Box::new(record.tombstone()))),
            None => fresh(request, age, now),
        };
    }
    if let Some(outcome) = told_apart(request, record) {
        return Decision::Answer(outcome);
    }
    match (&record.state, request.abandoned) {
        (RecordState::Completed(completion), _) => {
            Decision::Answer(ClaimOutcome::Completed(Box::new(CompletedRecord {
                fingerprint: record.fingerprint.clone(),
                created_at: record.created_at,
                expires_at: record.expires_at,
                completion: completion.clone(),
            })))
        }
        (RecordState::InProgress { .. }, Abandoned::Refuse) => {
            Decision::Answer(ClaimOutcome::Abandoned {
                created_at: record.created_at,
            })
        }
        (RecordState::InProgress { .. }, Abandoned::TakeOver) => {
            let attempt = record.attempt.saturating_add(1);
            write(request, age, attempt, record.created_at, false, now)
        }
    }
}

fn fresh(request: &ClaimRequest, age: JudgedAge, now: Timestamp) -> Decision {
    write(request, age, 1, now, age.ask_archive, now)
}

fn write(
    request: &ClaimRequest,
    age: JudgedAge,
    attempt: u32,
    created_at: Timestamp,
    speculative: bool,
    now: Timestamp,
) -> Decision {
    let lease = Lease {
        attempt,
        created_at,
        expires_at: age.expires_at,
        lease_until: after(now, request.lease),
        // Whatever the key looks like, a takeover may find that an earlier
        // attempt got as far as the archive. And what is marked speculative must
        // not run before it is confirmed, though the key now looks young.
        ask_archive: age.ask_archive
            || speculative
            || (attempt > 1 && request.age.lookup_after.is_some()),
    };
    let record = Record {
        key: request.key,
        fingerprint: request.fingerprint.clone(),
        token: request.token,
        attempt,
        created_at,
        expires_at: lease.expires_at,
        state: RecordState::InProgress {
            lease_until: lease.lease_until,
            speculative,
        },
    };
    Decision::Write(Box::new(record), lease)
}

/// `None` when the stored record is this request's, as far as can be told.
fn told_apart(request: &ClaimRequest, record: &Record) -> Option<ClaimOutcome> {
    let judged = |fingerprint: &Fingerprint| fingerprint.judge(&record.fingerprint);
    let recomputed = request.recomputed.as_ref().map(judged);
    match recomputed.unwrap_or_else(|| judged(&request.fingerprint)) {
        Judgement::Same | Judgement::Untold => None,
        Judgement::Different => Some(ClaimOutcome::Mismatch),
        Judgement::OtherScheme => Some(ClaimOutcome::OtherScheme(record.fingerprint.clone())),
    }
}
