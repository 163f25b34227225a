//! What the memory store alone promises: its bounds, and what it keeps alive.

use std::time::Duration;

use axum_idempotency::{
    Completion, FingerprintInput, FingerprintOptions, IdempotencyKey, KeptResponse, ManualClock,
    OwnerToken, Principal, Scope, ScopedKey,
    claim::{Abandoned, ArchiveLookup, ClaimOutcome, ClaimRequest, KeyAge},
    store::{Fenced, MemoryStore, Store as _, StoreErrorKind},
};
use bytes::Bytes;
use http::{HeaderMap, Method};

mod bounds;
mod kept;

const HOUR: Duration = Duration::from_hours(1);
const TTL: Duration = Duration::from_hours(24);
const LEASE: Duration = Duration::from_secs(30);

struct Bounded {
    clock: ManualClock,
    store: MemoryStore,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Claimed,
    InFlight,
    Completed,
    Expired,
    Full,
}

impl Bounded {
    fn new(capacity: usize, max_bytes: usize) -> Self {
        let clock = ManualClock::default();
        let builder = MemoryStore::builder().clock(clock.clone());
        Self {
            store: builder.capacity(capacity).max_bytes(max_bytes).build(),
            clock,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Got {
        claim(&self.store, request).await
    }

    async fn complete(&self, request: &ClaimRequest, bytes: usize) {
        let done = self
            .store
            .complete(request.key, request.token, answer(bytes))
            .await;
        assert_eq!(done.unwrap(), Fenced::Owner);
    }

    /// How many records and bytes the store says it holds.
    fn holds(&self) -> String {
        format!("{:?}", self.store)
    }
}

async fn claim(store: &MemoryStore, request: &ClaimRequest) -> Got {
    match store.claim(request.clone()).await {
        Ok(claim) => match claim.outcome {
            ClaimOutcome::Claimed(_) => Got::Claimed,
            ClaimOutcome::InFlight { .. } => Got::InFlight,
            ClaimOutcome::Completed(_) => Got::Completed,
            ClaimOutcome::Expired(_) => Got::Expired,
            other => panic!("unexpected outcome: {other:?}"),
        },
        Err(error) if error.kind() == StoreErrorKind::Full => Got::Full,
        Err(error) => panic!("unexpected error: {error}"),
    }
}

fn request(name: &str) -> ClaimRequest {
    let principal = Principal::new("acct_1");
    let endpoint = (&Method::POST, "/");
    let key = IdempotencyKey::new(name).unwrap();
    let input = FingerprintInput {
        principal: &principal,
        method: &Method::POST,
        path_and_query: "/",
        headers: &HeaderMap::new(),
        body: &Bytes::new(),
    };
    ClaimRequest {
        key: ScopedKey::derive(None, Scope::Principal, &principal, endpoint, &key),
        token: OwnerToken::random(),
        fingerprint: FingerprintOptions::raw().compute(&input),
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

fn archived(name: &str) -> ClaimRequest {
    let mut request = request(name);
    request.age.lookup_after = Some(TTL);
    request
}

fn answer(bytes: usize) -> Completion {
    Completion {
        status: 201,
        resource_id: None,
        response: Some(KeptResponse {
            headers: vec![],
            body: vec![b'x'; bytes].into(),
        }),
    }
}
