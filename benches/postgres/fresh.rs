//! Fresh keys, claimed and completed: the store against two plain statements.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum_idempotency::{
    Completion, Fingerprint, IdempotencyKey, KeptResponse, OwnerToken, Principal, ResourceId,
    Scope, ScopedKey,
    claim::{Abandoned, ArchiveLookup, ClaimOutcome, ClaimRequest, KeyAge},
    store::{Fenced, Store as _, postgres::PostgresStore},
};
use http::Method;
use uuid::Uuid;

use crate::plain::Plain;

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);
const BODY: usize = 512;

pub(crate) async fn requests(url: &str) {
    println!("fresh keys, claimed and completed, {BODY} B body, against two autocommit statements");
    for (concurrency, reach) in [
        (1, "latency at most 1.15"),
        (16, "1.5"),
        (64, "4"),
        (256, "7"),
    ] {
        let plain = Arc::new(Plain::open(url, concurrency).await);
        let store = PostgresStore::builder()
            .url(url)
            .schema("bench")
            .open()
            .await;
        let store = store.expect("a store");
        let body = vec![b'x'; BODY];
        let by_hand = async || {
            drive(concurrency, || {
                let (plain, body) = (Arc::clone(&plain), body.clone());
                async move { plain.request(&body).await }
            })
            .await
        };
        let grouped = async || {
            drive(concurrency, || {
                let (store, body) = (store.clone(), body.clone());
                async move { request(&store, body).await }
            })
            .await
        };
        let (mut ratios, mut slow, mut tails) = (vec![], vec![], vec![]);
        for round in 0..=ROUNDS {
            let (alone, ours) = (by_hand().await, grouped().await);
            // The first warms up.
            if round > 0 {
                ratios.push(ours.per_second / alone.per_second);
                tails.push(ours.p99 / alone.p99);
                slow.push(alone.per_second);
            }
        }
        let throughput = median(ratios);
        if concurrency == 1 {
            print!(
                "  {concurrency:>3} at once  latency {:.2}",
                1.0 / throughput
            );
        } else {
            print!("  {concurrency:>3} at once  throughput {throughput:.2}");
        }
        println!(
            " (to reach: {reach}), p99 {:.2}; by hand {:.0} requests a second",
            median(tails),
            median(slow),
        );
        store.close().await;
    }
}

struct Driven {
    per_second: f64,
    p99: f64,
}

/// Runs requests for one round, so many at a time.
async fn drive<F>(concurrency: usize, request: impl Fn() -> F) -> Driven
where
    F: Future<Output = ()> + Send + 'static,
{
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let mut took = Vec::new();
    let timed = |request: F| async move {
        let begun = Instant::now();
        request.await;
        begun.elapsed().as_secs_f64()
    };
    for _ in 0..concurrency {
        tasks.spawn(timed(request()));
    }
    while let Some(done) = tasks.join_next().await {
        took.push(done.expect("a request"));
        if begun.elapsed() < ROUND {
            tasks.spawn(timed(request()));
        }
    }
    let per_second = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    Driven {
        per_second,
        p99: took[took.len() * 99 / 100],
    }
}

async fn request(store: &PostgresStore, body: Vec<u8>) {
    let key = IdempotencyKey::new(&Uuid::new_v4().to_string()).expect("a key");
    let principal = Principal::new("bench");
    let key = ScopedKey::derive(
        None,
        Scope::Principal,
        &principal,
        (&Method::POST, "/"),
        &key,
    );
    let claim = ClaimRequest {
        key,
        token: OwnerToken::random(),
        fingerprint: Fingerprint::from_bytes([&[0x10][..], &[7; 32]].concat()),
        recomputed: None,
        lease: Duration::from_secs(30),
        ttl: Duration::from_hours(24),
        age: KeyAge {
            timestamp: None,
            lookup: ArchiveLookup::TimestampedKeys,
            lookup_after: Some(Duration::from_hours(24)),
        },
        abandoned: Abandoned::TakeOver,
    };
    let token = claim.token;
    let claimed = store.claim(claim).await.expect("an answer");
    assert!(matches!(claimed.outcome, ClaimOutcome::Claimed(_)));
    let completion = Completion {
        status: 201,
        resource_id: ResourceId::new("ch_1"),
        response: Some(KeptResponse {
            headers: vec![],
            body: body.into(),
        }),
    };
    let done = store.complete(key, token, completion).await;
    assert_eq!(done.expect("an answer"), Fenced::Owner);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
