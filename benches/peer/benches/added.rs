//! The time that each crate's layer adds to the same handler, in one run.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people to read"
)]

use axum::Router;

#[path = "../../measure/mod.rs"]
mod measure;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare());
}

fn ours() -> Router {
    use axum_idempotency::{
        IdempotencyLayer, Policy, PrincipalSource, archive::MemoryArchive, store::MemoryStore,
    };
    let policy = Policy::builder(PrincipalSource::bearer()).build().expect("a policy");
    let layer = IdempotencyLayer::builder(MemoryStore::new())
        .archive(MemoryArchive::new())
        .policy(policy)
        .build()
        .expect("a layer");
    measure::bare().layer(layer)
}

fn theirs() -> Router {
    let store = idempotent::memory::MemoryStore::builder()
        .try_build()
        .expect("a store");
    let layer = idempotent::middleware::IdempotencyLayer::new(store).scope(|parts| {
        let token = parts.headers.get("authorization")?;
        token.to_str().ok().map(String::from)
    });
    measure::bare().layer(layer)
}

async fn compare() {
    const ROUNDS: u64 = 15;
    const REQUESTS: u64 = 3_000;
    let (bare, ours, theirs) = (measure::bare(), ours(), theirs());
    let body = measure::kibibyte();
    let (mut fresh, mut replay) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let requests = || -> Vec<_> {
            let first = round * REQUESTS;
            (first..first + REQUESTS).map(|key| measure::request(key, &body)).collect()
        };
        let alone = measure::in_process(&bare, requests()).await;
        let our_fresh = measure::in_process(&ours, requests()).await - alone;
        let their_fresh = measure::in_process(&theirs, requests()).await - alone;
        // A replay saves the handler, so whole times are compared.
        let our_replay = measure::in_process(&ours, requests()).await;
        let their_replay = measure::in_process(&theirs, requests()).await;
        fresh.push((our_fresh, their_fresh, our_fresh / their_fresh));
        replay.push((our_replay, their_replay, our_replay / their_replay));
    }
    println!("time added to a fresh request, 1 KiB JSON, memory stores, against idempotent 2.0.0");
    report(&fresh, "to reach: 0.50");
    println!("time of a replayed request, whole");
    report(&replay, "no bound");
}

fn report(rounds: &[(f64, f64, f64)], bound: &str) {
    let middle = |pick: fn(&(f64, f64, f64)) -> f64| measure::median(rounds.iter().map(pick).collect());
    println!(
        "  ours {}, theirs {}, ratio {:.2} ({bound})",
        measure::microseconds(middle(|round| round.0)),
        measure::microseconds(middle(|round| round.1)),
        middle(|round| round.2),
    );
}
