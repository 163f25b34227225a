//! Fresh keys, claimed and completed: the store against two plain statements.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum_idempotency::{
    Completion, Fingerprint, KeptResponse, OwnerToken, ResourceId,
    claim::{Abandoned, ArchiveLookup, ClaimOutcome, ClaimRequest, KeyAge},
    store::{Fenced, Store as _, postgres::PostgresStore},
};

use crate::plain::{Plain, fresh_key};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);
const BODY: usize = 512;

pub(crate) async fn requests(url: &str) {
    println!(
        "fresh keys, claimed and completed, {BODY} B of body, against two autocommit statements:\n\
         from a pool of sqlx, and from connections that cost nothing to take"
    );
    for (concurrency, reach) in [(1, "1.15"), (16, "1.5"), (64, "4"), (256, "7")] {
        let pool = Arc::new(Plain::with_pool(url, concurrency).await);
        let queue = Arc::new(Plain::with_queue(url, concurrency).await);
        let store = PostgresStore::builder().url(url).schema(crate::SCHEMA);
        let store = store.open().await.expect("a store");
        let body = vec![b'x'; BODY];
        let by_hand = async |plain: &Arc<Plain>| {
            drive(concurrency, ROUND, || {
                let (plain, body) = (Arc::clone(plain), body.clone());
                async move { plain.request(&body).await }
            })
            .await
        };
        let (mut by_pool, mut by_queue) = (Ratios::default(), Ratios::default());
        for round in 0..=ROUNDS {
            let pooled = by_hand(&pool).await;
            let ours = drive(concurrency, ROUND, || request(store.clone(), body.clone())).await;
            let queued = by_hand(&queue).await;
            // The first warms up.
            if round > 0 {
                by_pool.add(&ours, &pooled);
                by_queue.add(&ours, &queued);
            }
        }
        let [by_pool, by_queue] = [by_pool, by_queue].map(|ratios| ratios.told(concurrency));
        println!("  {concurrency:>3} at once  {by_pool}, {by_queue} (to reach: {reach})");
        store.close().await;
    }
}

/// How the store compares, round by round.
#[derive(Default)]
struct Ratios {
    throughput: Vec<f64>,
    p99: Vec<f64>,
}

impl Ratios {
    fn add(&mut self, ours: &Driven, theirs: &Driven) {
        self.throughput.push(ours.per_second / theirs.per_second);
        self.p99.push(ours.p99 / theirs.p99);
    }

    fn told(self, concurrency: usize) -> String {
        let (throughput, p99) = (median(self.throughput), median(self.p99));
        if concurrency == 1 {
            format!("latency {:.2}", 1.0 / throughput)
        } else {
            format!("throughput {throughput:.2} with p99 {p99:.2}")
        }
    }
}

pub(crate) struct Driven {
    pub(crate) per_second: f64,
    pub(crate) p99: f64,
}

/// Runs requests for one round, so many at a time.
pub(crate) async fn drive<F>(concurrency: usize, round: Duration, request: impl Fn() -> F) -> Driven
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
        if begun.elapsed() < round {
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

pub(crate) async fn request(store: PostgresStore, body: Vec<u8>) {
    let key = fresh_key();
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

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
