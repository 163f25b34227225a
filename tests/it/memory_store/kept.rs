//! What the store keeps alive, counts and tells.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum_idempotency::{
    Completion, KeptResponse, RecordState,
    archive::{Archive as _, MemoryArchive},
    claim::ClaimRequest,
    store::{Fenced, MemoryStore, Store as _},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::{Bounded, Got, TTL, answer, archived, claim, request};

#[tokio::test]
async fn a_kept_answer_keeps_no_larger_buffer_alive() {
    struct Buffer(Arc<AtomicBool>, Vec<u8>);
    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    impl Drop for Buffer {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let is_dropped = Arc::new(AtomicBool::new(false));
    let buffer = Bytes::from_owner(Buffer(is_dropped.clone(), vec![b'x'; 64 * 1024]));
    let value = HeaderValue::from_maybe_shared(buffer.slice(10..20)).unwrap();
    let completion = Completion {
        status: 200,
        resource_id: None,
        response: Some(KeptResponse {
            headers: vec![(HeaderName::from_static("x-id"), value)],
            body: buffer.slice(20..30),
        }),
    };
    drop(buffer);

    let bounded = Bounded::new(1, usize::MAX);
    let first = request("first");
    bounded.claim(&first).await;
    let done = bounded
        .store
        .complete(first.key, first.token, completion)
        .await;
    assert_eq!(done.unwrap(), Fenced::Owner);
    assert!(is_dropped.load(Ordering::SeqCst));
    assert_eq!(bounded.claim(&request("first")).await, Got::Completed);
}

/// Whatever happens to the records, the counts and the order of expiry fit
/// what is there.
#[tokio::test]
async fn the_books_balance_after_a_random_walk() {
    let bounded = Bounded::new(24, 20_000);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let names: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let mut attempts: Vec<ClaimRequest> = names.iter().map(|name| archived(name)).collect();
    for _ in 0..20_000 {
        let n = usize::try_from(next(40)).unwrap();
        let attempt = &mut attempts[n];
        match next(10) {
            0..=3 => {
                let mut again = archived(&names[n]);
                again.ttl = Duration::from_secs(30 + next(600));
                if next(2) == 0 {
                    again.age.lookup_after = None;
                }
                if bounded.claim(&again).await == Got::Claimed {
                    *attempt = again;
                }
            }
            4 | 5 => {
                let size = usize::try_from(next(4_000)).unwrap();
                let done = bounded
                    .store
                    .complete(attempt.key, attempt.token, answer(size));
                let _ = done.await.unwrap();
            }
            6 => {
                let _ = bounded
                    .store
                    .release(attempt.key, attempt.token)
                    .await
                    .unwrap();
            }
            7 => {
                bounded.store.amend(attempt.key, answer(100)).await.unwrap();
            }
            8 => bounded.clock.advance(Duration::from_secs(next(40))),
            _ if next(5) == 0 => {
                bounded.store.sweep(None, 5).await.unwrap();
            }
            _ => {}
        }

        let now = bounded.store.now().await.unwrap();
        let (mut records, mut bytes, mut expired) = (0, 0, Vec::new());
        for attempt in &attempts {
            if let Some(record) = bounded.store.get(attempt.key).await.unwrap() {
                records += 1;
                expired.extend(
                    record
                        .is_expired(now)
                        .then_some((record.expires_at, record.key)),
                );
                if let RecordState::Completed(done) = record.state {
                    // One byte ends the headers.
                    bytes += done.response.map_or(0, |response| response.body.len() + 1);
                }
            }
        }
        let expected = format!("records: {records}, bytes: {bytes},");
        assert!(
            bounded.holds().contains(&expected),
            "{} {expected}",
            bounded.holds()
        );
        expired.sort_unstable();
        let listed = bounded.store.expired(100).await.unwrap();
        let listed: Vec<_> = listed
            .into_iter()
            .map(|row| (row.tombstone.expired_at, row.tombstone.key))
            .collect();
        assert_eq!(listed, expired);
    }
}

/// More than any part of the store looks at under one lock.
#[tokio::test]
async fn a_large_sweep_leaves_nothing_out() {
    let bounded = Bounded::new(usize::MAX, usize::MAX);
    for n in 0..12_000 {
        bounded.clock.advance(Duration::from_millis(1));
        bounded.claim(&archived(&format!("k{n}"))).await;
    }
    bounded.clock.advance(TTL);
    let listed = bounded.store.expired(12_000).await.unwrap();
    assert_eq!(listed.len(), 12_000);
    assert!(listed.is_sorted_by_key(|row| row.tombstone.expired_at));

    let archive = MemoryArchive::new();
    for moved in [10_000, 2_000, 0] {
        let swept = bounded.store.sweep(Some(&archive), 10_000).await;
        assert_eq!(swept.unwrap(), moved);
    }
    let oldest = listed.first().unwrap().tombstone.clone();
    let found = archive.lookup(oldest.key, None).await.unwrap();
    assert_eq!(found, Some(oldest));
}

#[tokio::test]
async fn nothing_of_a_client_is_in_the_debug_output() {
    let store = MemoryStore::new();
    let first = request("order-42");
    claim(&store, &first).await;
    assert_eq!(
        format!("{store:?}"),
        "MemoryStore { records: 1, bytes: 0, .. }"
    );
    assert!(!format!("{store:#?}").contains("order"));
    let archive = MemoryArchive::new();
    assert_eq!(
        format!("{archive:?}"),
        "MemoryArchive { rows: 0, retention: None }"
    );
}
