//! What the cases are written with: requests, answers, and what to say when a
//! store gives another one than it should.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;

use super::Fixture;
use crate::{
    archive::Archive,
    claim::{Abandoned, ArchiveLookup, ClaimOutcome, ClaimRequest, CompletedRecord, KeyAge, Lease},
    clock::after,
    fingerprint::{Fingerprint, FingerprintInput, FingerprintOptions},
    inspect::{InspectArchive, InspectStore, LiveRecord},
    key::{IdempotencyKey, KeyError},
    record::{Completion, KeptResponse, OwnerToken, Record, ResourceId, Tombstone},
    scope::{Principal, Scope, ScopedKey},
    store::{Fenced, Renewal, Renewed, Store, StoreError},
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_mins(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);
pub(super) const DAY: Duration = Duration::from_hours(24);

/// The lease and the TTL of [`request`].
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const TTL: Duration = DAY;

/// The scoped key that goes by this name in a case.
pub(super) fn key(name: &str) -> ScopedKey {
    let key = IdempotencyKey::new(name).expect("a key of the suite");
    let endpoint = (&Method::POST, "/");
    ScopedKey::derive(None, Scope::Principal, &principal(), endpoint, &key)
}

/// A first attempt at the key of this name: without a timestamp in the key,
/// and without an archive.
pub(super) fn request(name: &str) -> ClaimRequest {
    ClaimRequest {
        key: key(name),
        token: OwnerToken::random(),
        fingerprint: fingerprint(&FingerprintOptions::raw(), "4500 gbp"),
        recomputed: None,
        lease: LEASE,
        ttl: TTL,
        age: KeyAge {
            timestamp: None,
            lookup: ArchiveLookup::TimestampedKeys,
            lookup_after: None,
        },
        abandoned: Abandoned::TakeOver,
    }
}

/// The same, under a layer that has an archive.
pub(super) fn archived(name: &str) -> ClaimRequest {
    with_archive(request(name))
}

pub(super) fn with_archive(mut request: ClaimRequest) -> ClaimRequest {
    request.age.lookup_after = Some(LOOKUP_AFTER);
    request
}

/// The same, with a key so old that a fresh claim of it has to ask the archive.
pub(super) fn old(name: &str, now: Timestamp) -> ClaimRequest {
    let mut request = archived(name);
    request.age.timestamp = Some(before(now, 2 * TTL));
    request
}

/// The age from which [`archived`] requests ask the archive.
pub(super) const LOOKUP_AFTER: Duration = Duration::from_mins(24 * 60 - 1);

/// Another attempt at the same request.
pub(super) fn retry_of(first: &ClaimRequest) -> ClaimRequest {
    ClaimRequest {
        token: OwnerToken::random(),
        ..first.clone()
    }
}

/// Another request under the same key.
pub(super) fn reuse_of(first: &ClaimRequest) -> ClaimRequest {
    ClaimRequest {
        fingerprint: fingerprint(&FingerprintOptions::raw(), "9900 gbp"),
        ..retry_of(first)
    }
}

pub(super) fn fingerprint(options: &FingerprintOptions, body: &'static str) -> Fingerprint {
    options.compute(&FingerprintInput {
        principal: &principal(),
        method: &Method::POST,
        path_and_query: "/v1/charges",
        headers: &HeaderMap::new(),
        body: &Bytes::from_static(body.as_bytes()),
    })
}

fn principal() -> Principal {
    Principal::constant("conformance")
}

pub(super) fn before(time: Timestamp, span: Duration) -> Timestamp {
    time.checked_sub(span).expect("a time after 1970")
}

pub(super) fn later(time: Timestamp, span: Duration) -> Timestamp {
    after(time, span)
}

/// An answer with this status, a header and a body that names it.
pub(super) fn answered(status: u16) -> Completion {
    let content_type = HeaderName::from_static("content-type");
    Completion {
        status,
        resource_id: ResourceId::new(&format!("ch_{status}")),
        response: Some(KeptResponse {
            headers: vec![(content_type, HeaderValue::from_static("text/plain"))],
            body: Bytes::from(format!("answered with {status}")),
        }),
    }
}

/// A tombstone of the key of this name.
pub(super) fn tombstone(name: &str, status: u16, expired_at: Timestamp) -> Tombstone {
    let ran = status != Tombstone::UNKNOWN_OUTCOME;
    Tombstone {
        key: key(name),
        fingerprint: fingerprint(&FingerprintOptions::raw(), "4500 gbp"),
        status,
        resource_id: ResourceId::new(&format!("ch_{status}")).filter(|_| ran),
        created_at: before(expired_at, TTL),
        expired_at,
    }
}

/// A claim's answer: the methods say which one the contract wants.
pub(super) struct Answer {
    pub(super) now: Timestamp,
    outcome: ClaimOutcome,
}

pub(super) async fn claim(store: &dyn Store, request: &ClaimRequest) -> Answer {
    let claim = ok(store.claim(request.clone()).await, "a claim");
    Answer {
        now: claim.now,
        outcome: claim.outcome,
    }
}

impl Answer {
    #[track_caller]
    pub(super) fn claimed(self, who: &str) -> Lease {
        match self.outcome {
            ClaimOutcome::Claimed(lease) => lease,
            other => unexpected(who, "to be claimed", &other),
        }
    }

    /// The end of the lease it met.
    #[track_caller]
    pub(super) fn in_flight(self, who: &str) -> Timestamp {
        match self.outcome {
            ClaimOutcome::InFlight { lease_until } => lease_until,
            other => unexpected(who, "to be in flight", &other),
        }
    }

    #[track_caller]
    pub(super) fn completed(self, who: &str) -> CompletedRecord {
        match self.outcome {
            ClaimOutcome::Completed(record) => *record,
            other => unexpected(who, "to be completed", &other),
        }
    }

    #[track_caller]
    pub(super) fn mismatch(self, who: &str) {
        match self.outcome {
            ClaimOutcome::Mismatch => {}
            other => unexpected(who, "to be a mismatch", &other),
        }
    }

    #[track_caller]
    pub(super) fn expired(self, who: &str) -> Tombstone {
        match self.outcome {
            ClaimOutcome::Expired(tombstone) => *tombstone,
            other => unexpected(who, "to be expired", &other),
        }
    }

    /// When the key was first claimed.
    #[track_caller]
    pub(super) fn abandoned(self, who: &str) -> Timestamp {
        match self.outcome {
            ClaimOutcome::Abandoned { created_at } => created_at,
            other => unexpected(who, "to be abandoned", &other),
        }
    }

    /// The stored fingerprint.
    #[track_caller]
    pub(super) fn other_scheme(self, who: &str) -> Fingerprint {
        match self.outcome {
            ClaimOutcome::OtherScheme(stored) => stored,
            other => unexpected(who, "to be told the stored scheme", &other),
        }
    }

    #[track_caller]
    pub(super) fn refused(self, who: &str) -> KeyError {
        match self.outcome {
            ClaimOutcome::Refused(why) => why,
            other => unexpected(who, "to be refused", &other),
        }
    }

    pub(super) fn into_outcome(self) -> ClaimOutcome {
        self.outcome
    }
}

#[track_caller]
pub(super) fn unexpected(who: &str, expected: &str, got: &ClaimOutcome) -> ! {
    let got = match got {
        ClaimOutcome::Claimed(lease) => format!("claimed as attempt {}", lease.attempt),
        ClaimOutcome::InFlight { lease_until } => format!("in flight until {lease_until}"),
        ClaimOutcome::Completed(record) => {
            format!("completed with status {}", record.completion.status)
        }
        ClaimOutcome::Mismatch => "a mismatch".into(),
        ClaimOutcome::Expired(tombstone) => {
            format!(
                "expired at {} with status {}",
                tombstone.expired_at, tombstone.status
            )
        }
        ClaimOutcome::Abandoned { created_at } => format!("abandoned since {created_at}"),
        ClaimOutcome::OtherScheme(_) => "another scheme".into(),
        ClaimOutcome::Refused(why) => format!("refused: {}", why.reason()),
    };
    panic!("expected {who} {expected}, got {got}")
}

pub(super) async fn complete(
    store: &dyn Store,
    attempt: &ClaimRequest,
    completion: &Completion,
) -> Fenced {
    let done = store.complete(attempt.key, attempt.token, completion.clone());
    ok(done.await, "a completion")
}

pub(super) async fn release(store: &dyn Store, attempt: &ClaimRequest) -> Fenced {
    ok(store.release(attempt.key, attempt.token).await, "a release")
}

pub(super) async fn renew(store: &dyn Store, renewal: Renewal) -> Renewed {
    let renewed = ok(store.renew(&[renewal]).await, "a renewal");
    same(&renewed.len(), &1, "the number of answers to one renewal");
    renewed[0]
}

pub(super) fn renewal_of(attempt: &ClaimRequest) -> Renewal {
    Renewal {
        key: attempt.key,
        token: attempt.token,
        lease: LEASE,
        confirmed: false,
    }
}

pub(super) async fn amend(store: &dyn Store, key: ScopedKey, completion: &Completion) -> bool {
    ok(store.amend(key, completion.clone()).await, "an amendment")
}

pub(super) async fn now(store: &dyn Store) -> Timestamp {
    ok(store.now().await, "the store's clock")
}

/// The record of a key, which has to be there.
pub(super) async fn record(store: &dyn Store, key: ScopedKey) -> Record {
    let record = ok(store.get(key).await, "a read");
    record.unwrap_or_else(|| panic!("expected a record, got none"))
}

pub(super) async fn no_record(store: &dyn Store, key: ScopedKey, when: &str) {
    let record = ok(store.get(key).await, "a read");
    same(&record, &None, &format!("the record {when}"));
}

/// Claims and completes with [`answered`].
pub(super) async fn run(store: &dyn Store, attempt: &ClaimRequest, status: u16) {
    claim(store, attempt).await.claimed("an attempt");
    let done = complete(store, attempt, &answered(status)).await;
    same(&done, &Fenced::Owner, "the completion of an attempt");
}

pub(super) async fn sweep(store: &dyn Store, archive: Option<&dyn Archive>, limit: u32) -> u64 {
    ok(store.sweep(archive, limit).await, "a sweep")
}

pub(super) async fn lookup(archive: &dyn Archive, key: ScopedKey) -> Option<Tombstone> {
    ok(archive.lookup(key, None).await, "a lookup")
}

pub(super) async fn insert(archive: &dyn Archive, rows: &[Tombstone]) {
    ok(archive.insert(rows).await, "an insertion into the archive");
}

/// The fixture's archive; without one the case is skipped.
pub(super) fn archive_of(fixture: &dyn Fixture) -> Option<Arc<dyn Archive>> {
    let archive = fixture.archive();
    if archive.is_none() {
        eprintln!("skipped: the fixture has no archive");
    }
    archive
}

/// The store as an operator asks it; unless the fixture says that it cannot be
/// asked, when the case is skipped.
pub(super) fn inspected<'s>(
    fixture: &dyn Fixture,
    store: &'s dyn Store,
) -> Option<&'s dyn InspectStore> {
    if !fixture.is_inspected() {
        eprintln!("skipped: the fixture says that its store cannot be inspected");
        return None;
    }
    let inspected = store.inspect();
    Some(inspected.unwrap_or_else(|| panic!("expected a store that can be inspected")))
}

/// The same of the archive.
pub(super) fn inspected_archive<'a>(
    fixture: &dyn Fixture,
    archive: &'a dyn Archive,
) -> Option<&'a dyn InspectArchive> {
    if !fixture.is_inspected() {
        eprintln!("skipped: the fixture says that its archive cannot be inspected");
        return None;
    }
    let inspected = archive.inspect();
    Some(inspected.unwrap_or_else(|| panic!("expected an archive that can be inspected")))
}

/// The record of a key as an operator sees it, which has to be there.
pub(super) async fn live(inspect: &dyn InspectStore, key: ScopedKey) -> LiveRecord {
    let record = ok(inspect.record(key).await, "an operator's read");
    record.unwrap_or_else(|| panic!("expected a record, got none"))
}

#[track_caller]
pub(super) fn ok<T>(result: Result<T, StoreError>, what: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("expected {what} to be answered, got {error}"),
    }
}

#[track_caller]
pub(super) fn same<T: PartialEq + fmt::Debug>(got: &T, expected: &T, what: &str) {
    assert!(
        got == expected,
        "expected {what} to be {expected:?}, got {got:?}"
    );
}
