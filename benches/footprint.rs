//! What a record of the memory store costs beyond its body and headers. In a
//! bench of its own, since it counts all that the process allocates.

use std::{alloc::System, time::Duration};

use axum_idempotency::{
    Completion, FingerprintInput, FingerprintOptions, IdempotencyKey, KeptResponse, ManualClock,
    OwnerToken, Principal, ResourceId, Scope, ScopedKey,
    claim::{Abandoned, ArchiveLookup, ClaimOutcome, ClaimRequest, KeyAge},
    store::{Fenced, MemoryStore, Store as _},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    println!("memory held per record beyond body and headers, memory store");
    for (records, maps) in [(30_500, "just grown"), (55_000, "fuller")] {
        let per_record = runtime.block_on(overhead(records));
        println!("  {per_record} bytes, the maps {maps} (to reach: at most 300)");
    }
}

/// Completes so many records, replays each, and returns the bytes that are
/// held beyond bodies and headers, for each of them.
async fn overhead(records: usize) -> usize {
    let clock = ManualClock::default();
    let store = MemoryStore::builder()
        .clock(clock.clone())
        .max_bytes(usize::MAX)
        .build();
    let region = Region::new(ALLOCATOR);
    let mut answers = 0;
    for n in 0..records {
        clock.advance(Duration::from_micros(500));
        let request = request(n);
        let (key, token) = (request.key, request.token);
        let claim = store
            .claim(request.clone())
            .await
            .expect("what the store allows");
        assert!(matches!(claim.outcome, ClaimOutcome::Claimed(_)));
        let completion = answer(n);
        answers += size(&completion);
        let done = store.complete(key, token, completion).await;
        assert_eq!(done.expect("what the store allows"), Fenced::Owner);
        let replay = store.claim(request).await.expect("what the store allows");
        assert!(matches!(replay.outcome, ClaimOutcome::Completed(_)));
    }
    let change = region.change();
    let held = change.bytes_allocated - change.bytes_deallocated;
    drop(store);
    (held - answers) / records
}

fn request(n: usize) -> ClaimRequest {
    let principal = Principal::new("acct_1");
    let endpoint = (&Method::POST, "/v1/charges");
    let key = IdempotencyKey::new(&format!("order-{n}")).expect("what the store allows");
    let input = FingerprintInput {
        principal: &principal,
        method: &Method::POST,
        path_and_query: "/v1/charges",
        headers: &HeaderMap::new(),
        body: &Bytes::from_static(b"{}"),
    };
    ClaimRequest {
        key: ScopedKey::derive(None, Scope::Principal, &principal, endpoint, &key),
        token: OwnerToken::random(),
        fingerprint: FingerprintOptions::raw().compute(&input),
        recomputed: None,
        lease: Duration::from_secs(30),
        ttl: Duration::from_hours(24),
        age: KeyAge {
            timestamp: None,
            lookup: ArchiveLookup::TimestampedKeys,
            lookup_after: None,
        },
        abandoned: Abandoned::TakeOver,
    }
}

fn answer(n: usize) -> Completion {
    let header = |name, value: &str| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_str(value).expect("what the store allows"),
        )
    };
    Completion {
        status: 201,
        // As long as a ULID behind a prefix.
        resource_id: ResourceId::new(&format!("ch_{n:026}")),
        response: Some(KeptResponse {
            headers: vec![
                header("content-type", "application/json"),
                header("location", &format!("/v1/charges/ch_{n:026}")),
                header("etag", "\"v1\""),
                header("x-charge-state", "succeeded"),
            ],
            body: vec![b'x'; 200].into(),
        }),
    }
}

fn size(completion: &Completion) -> usize {
    let response = completion.response.as_ref().expect("what the store allows");
    let headers = response.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    headers + response.body.len()
}
