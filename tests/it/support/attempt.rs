//! An attempt as a store sees it: what asks for a key, and how it ends.

use std::time::Duration;

use axum_idempotency::{
    Completion, Fingerprint, IdempotencyKey, KeptResponse, OwnerToken, Principal, ResourceId,
    Scope, ScopedKey,
    claim::{Abandoned, ArchiveLookup, Claim, ClaimOutcome, ClaimRequest, KeyAge, Lease},
};
use http::{HeaderName, HeaderValue, Method};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const TTL: Duration = Duration::from_hours(24);

pub(crate) fn key(name: impl ToString + Copy) -> ScopedKey {
    let name = IdempotencyKey::new(&name.to_string()).expect("a key");
    let principal = Principal::new("alice");
    ScopedKey::derive(
        None,
        Scope::Principal,
        &principal,
        (&Method::POST, "/"),
        &name,
    )
}

pub(crate) fn request(key: ScopedKey) -> ClaimRequest {
    ClaimRequest {
        key,
        token: OwnerToken::random(),
        fingerprint: fingerprint(1),
        recomputed: None,
        lease: LEASE,
        ttl: TTL,
        age: KeyAge {
            timestamp: None,
            lookup: ArchiveLookup::TimestampedKeys,
            lookup_after: Some(TTL),
        },
        abandoned: Abandoned::TakeOver,
    }
}

pub(crate) fn fingerprint(request: u8) -> Fingerprint {
    Fingerprint::from_bytes([&[0x10], &[request; 32][..]].concat())
}

pub(crate) fn leased(claim: Claim) -> Lease {
    match claim.outcome {
        ClaimOutcome::Claimed(lease) => lease,
        other => panic!("not claimed: {other:?}"),
    }
}

pub(crate) fn completion(status: u16) -> Completion {
    Completion {
        status,
        resource_id: ResourceId::new("ch_1"),
        response: Some(response(&[("etag", b"\"1\"")], b"{}")),
    }
}

pub(crate) fn response(headers: &[(&'static str, &[u8])], body: &[u8]) -> KeptResponse {
    let pair = |&(name, value): &(&'static str, &[u8])| {
        let value = HeaderValue::from_bytes(value).expect("a value");
        (HeaderName::from_static(name), value)
    };
    KeptResponse {
        headers: headers.iter().map(pair).collect(),
        body: body.to_vec().into(),
    }
}
