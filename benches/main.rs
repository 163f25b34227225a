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

use http::{Keys, Server};

mod http;
mod measure;

const CONNECTIONS: usize = 32;
/// A store each, so that memory is reused as a sweeper would have it.
const STORES: usize = 6;
const ROUNDS: usize = 10;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        added_in_process().await;
        throughput().await;
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

async fn throughput() {
    let fresh_keys = Keys::fresh();
    let (mut fresh_ratios, mut replay_ratios, mut bares) = (vec![], vec![], vec![]);
    for store in 0..STORES {
        let bare = Server::start(measure::bare()).await;
        let fresh = Server::start(protected()).await;
        let replay = Server::start(protected()).await;
        // Warm up, and record what is replayed.
        for server in [&bare, &fresh, &replay] {
            server.drive(CONNECTIONS, &Keys::Repeated).await;
        }
        for _ in 0..ROUNDS {
            let alone = bare.drive(CONNECTIONS, &fresh_keys).await;
            let first = fresh.drive(CONNECTIONS, &fresh_keys).await;
            let again = replay.drive(CONNECTIONS, &Keys::Repeated).await;
            // The first store's memory is the process's first: it is not counted.
            if store > 0 {
                fresh_ratios.push(first / alone);
                replay_ratios.push(again / alone);
                bares.push(alone);
            }
        }
    }
    println!(
        "HTTP throughput, memory store, 1 KiB JSON, {CONNECTIONS} connections, against the bare handler"
    );
    println!(
        "  fresh   {:.3} (to reach: 0.90)",
        measure::median(fresh_ratios)
    );
    println!(
        "  replay  {:.3} (to reach: 1.00)",
        measure::median(replay_ratios)
    );
    println!(
        "  (the bare handler served {:.0} requests a second)",
        measure::median(bares)
    );
}
