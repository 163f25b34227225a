//! `cargo bench`: what the layer costs, as ratios measured side by side.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people to read"
)]

use axum::Router;
use axum_idempotency::{
    IdempotencyLayer, Policy, PrincipalSource, archive::MemoryArchive, store::MemoryStore,
};

mod http;
mod measure;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        added_in_process().await;
        http::throughput().await;
    });
}

/// The handler behind the layer, with a store and an archive of its own.
fn protected() -> Router {
    let policy = Policy::builder(PrincipalSource::bearer())
        .build()
        .expect("a policy");
    let layer = IdempotencyLayer::builder(MemoryStore::new())
        .archive(MemoryArchive::new())
        .policy(policy)
        .build()
        .expect("a layer");
    measure::bare().layer(layer)
}

async fn added_in_process() {
    const ROUNDS: u64 = 15;
    const REQUESTS: u64 = 4_000;
    let (bare, layered) = (measure::bare(), protected());
    let body = measure::kibibyte();
    let requests = |first: u64| -> Vec<_> {
        (first..first + REQUESTS)
            .map(|key| measure::request(key, &body))
            .collect()
    };
    let (mut fresh, mut replayed) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let first = round * REQUESTS;
        let alone = measure::in_process(&bare, requests(first)).await;
        fresh.push(measure::in_process(&layered, requests(first)).await - alone);
        replayed.push(measure::in_process(&layered, requests(first)).await - alone);
    }
    println!("time the layer adds in process, 1 KiB JSON, one request after the other");
    println!(
        "  fresh   {:>10}",
        measure::microseconds(measure::median(fresh))
    );
    println!(
        "  replay  {:>10.2} µs (over the handler that it saves)",
        measure::median(replayed) / 1e3
    );
}
