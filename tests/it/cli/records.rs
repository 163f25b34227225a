//! Records of every kind, made through the store's own methods.

use std::time::Duration;

use axum_idempotency::{
    Abandoned, ArchiveLookup, Clock as _, Completion, Fingerprint, IdempotencyKey, KeptResponse,
    ManualClock, OwnerToken, Principal, ResourceId, Scope, ScopedKey, SystemClock, Tombstone,
    archive::Archive,
    claim::{ClaimOutcome, ClaimRequest, KeyAge},
    store::{Fenced, Store, TtlNotice},
};
use http::Method;
use jiff::Timestamp;
use uuid::Uuid;

use super::place::{HOUR, Place};

/// What there is, by the clock on the wall:
///
/// | key | claimed | |
/// | --- | --- | --- |
/// | `running` | a minute ago | under a lease of an hour |
/// | `lapsed` | 2 h ago | its lease has run out |
/// | `done` | 1 h ago | completed 2 s later: 201, `ch_done`, an answer |
/// | `lost` | 30 h ago | expired 6 h ago, without an outcome |
/// | `old` | 60 h ago | archived, expired 36 h ago: 201, `ch_old` |
pub(super) struct Filled {
    pub(super) now: Timestamp,
}

impl Filled {
    pub(super) async fn at(place: &Place) -> Self {
        place.json(&["migrate"]).await;
        let now = SystemClock.now();
        let clock = ManualClock::new(now);
        let (store, archive) = place.open(clock.clone()).await;
        let ago = |span: Duration| now.checked_sub(span).expect("a time");
        clock.set(ago(30 * HOUR));
        claim(&*store, "lost", SHORT_LEASE).await;
        clock.set(ago(2 * HOUR));
        claim(&*store, "lapsed", SHORT_LEASE).await;
        clock.set(ago(HOUR));
        let token = claim(&*store, "done", SHORT_LEASE).await;
        clock.advance(Duration::from_secs(2));
        let completed = store.complete(scoped("done"), token, done()).await;
        assert_eq!(completed.expect("the store answers"), Fenced::Owner);
        clock.set(ago(Duration::from_mins(1)));
        claim(&*store, "running", HOUR).await;
        clock.set(now);
        let old = tombstone("old", ago(60 * HOUR), ago(36 * HOUR));
        archive.insert(&[old]).await.expect("the archive answers");
        let notice = TtlNotice {
            process: Uuid::new_v4(),
            smallest: TTL,
            largest: 7 * TTL,
        };
        store.publish_ttl(notice).await.expect("the store answers");
        store.close().await;
        Self { now }
    }

    pub(super) fn ago(&self, span: Duration) -> Timestamp {
        self.now.checked_sub(span).expect("a time")
    }
}

/// Rows that expired a year ago and two.
pub(super) async fn archive_of_years(archive: &dyn Archive, now: Timestamp) {
    for years in [1, 2] {
        let expired = now.checked_sub(years * 370 * 24 * HOUR).expect("a time");
        let created = expired.checked_sub(TTL).expect("a time");
        let row = tombstone(&format!("years-{years}"), created, expired);
        archive.insert(&[row]).await.expect("the archive answers");
    }
}

pub(super) fn tombstone(key: &str, created_at: Timestamp, expired_at: Timestamp) -> Tombstone {
    Tombstone {
        key: scoped(key),
        fingerprint: fingerprint(),
        status: 201,
        resource_id: ResourceId::new(&format!("ch_{key}")),
        created_at,
        expired_at,
    }
}

pub(super) async fn claim(store: &dyn Store, key: &str, lease: Duration) -> OwnerToken {
    let token = OwnerToken::random();
    let request = ClaimRequest {
        key: scoped(key),
        token,
        fingerprint: fingerprint(),
        recomputed: None,
        lease,
        ttl: TTL,
        age: KeyAge {
            timestamp: None,
            lookup: ArchiveLookup::TimestampedKeys,
            lookup_after: None,
        },
        abandoned: Abandoned::TakeOver,
    };
    let claim = store.claim(request).await.expect("the store answers");
    assert!(
        matches!(claim.outcome, ClaimOutcome::Claimed { .. }),
        "{key} is claimed: {claim:?}"
    );
    token
}

fn done() -> Completion {
    Completion {
        status: 201,
        resource_id: ResourceId::new("ch_done"),
        response: Some(KeptResponse {
            headers: Vec::new(),
            body: "the answer".into(),
        }),
    }
}

pub(super) fn scoped(key: &str) -> ScopedKey {
    let key = IdempotencyKey::new(key).expect("a key");
    let principal = Principal::new(PRINCIPAL);
    ScopedKey::derive(
        None,
        Scope::Principal,
        &principal,
        (&Method::POST, "/"),
        &key,
    )
}

fn fingerprint() -> Fingerprint {
    Fingerprint::from_bytes(vec![1; 33])
}

pub(super) const PRINCIPAL: &str = "acct_secretive";
pub(super) const TTL: Duration = Duration::from_hours(24);
const SHORT_LEASE: Duration = Duration::from_secs(30);
