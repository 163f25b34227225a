//! What Redis costs over HTTP: against the bare handler, and against the memory
//! store, in one run. Needs servers:
//!
//! ```text
//! tests/postgres.sh tests/redis.sh cargo bench --all-features --bench redis
//! ```

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people to read"
)]

use std::sync::Arc;

use axum::Router;
use axum_idempotency::{
    IdempotencyLayer, Policy, PrincipalSource,
    archive::{Archive, MemoryArchive, PostgresArchive, SqliteArchive},
    store::{MemoryStore, Store, redis::RedisStore},
};
use http::{Keys, Server};

#[path = "../http.rs"]
mod http;
#[path = "../measure/mod.rs"]
#[expect(dead_code, reason = "some of it is for other benches")]
mod measure;

/// At 256 every answer is checked too: none may be an error.
const CONNECTIONS: [usize; 4] = [1, 16, 64, 256];
const ROUNDS: usize = 12;

const SCHEMA: &str = "axum_idempotency_bench_redis";

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(throughput());
}

async fn throughput() {
    let dir = tempfile::TempDir::new().expect("a directory for temporary files");
    let url = format!("sqlite:{}", dir.path().join("archive.db").display());
    let sqlite = SqliteArchive::open(&url).await.expect("an archive");
    let url = server("DATABASE_URL", "tests/postgres.sh");
    let builder = PostgresArchive::builder().url(url).schema(SCHEMA);
    let postgres = builder.open().await.expect("an archive");
    let bare = Server::start(measure::bare()).await;
    println!("HTTP throughput, 1 KiB JSON, against the bare handler (against the memory store)");
    println!("  {:<28}{:>18}{:>18}", "", "fresh", "replay");
    for connections in CONNECTIONS {
        // A memory store of its own for each, or it would be full.
        let archives: [(&str, Arc<dyn Archive>); 3] = [
            ("memory", Arc::new(MemoryArchive::new())),
            ("SQLite", Arc::new(sqlite.clone())),
            ("PostgreSQL", Arc::new(postgres.clone())),
        ];
        let memory = Subject::new(Arc::new(MemoryStore::new()), None).await;
        let alone = Subject::new(redis().await, None).await;
        let mut subjects = vec![
            ("memory store".to_owned(), memory),
            ("Redis, no archive".to_owned(), alone),
        ];
        for (place, archive) in archives {
            let subject = Subject::new(redis().await, Some(archive)).await;
            subjects.push((format!("Redis, archive in {place}"), subject));
        }
        println!("  {connections} at a time");
        let medians = in_turns(&bare, &subjects, connections).await;
        for ((name, _), (fresh, replay)) in subjects.iter().zip(&medians) {
            let (memory_fresh, memory_replay) = medians[0];
            println!(
                "    {name:<28}{fresh:>8.3} ({:.3}){replay:>10.3} ({:.3})",
                fresh / memory_fresh,
                replay / memory_replay
            );
        }
    }
}

/// The ratios of each to the bare handler, for fresh keys and replays.
async fn in_turns(
    bare: &Server,
    subjects: &[(String, Subject)],
    connections: usize,
) -> Vec<(f64, f64)> {
    let mut rounds = vec![Rounds::default(); subjects.len()];
    for round in 0..ROUNDS {
        let alone = bare.drive(connections, &Keys::fresh()).await;
        for ((_, subject), rounds) in subjects.iter().zip(&mut rounds) {
            let fresh = subject.fresh.drive(connections, &subject.fresh_keys).await;
            let replay = subject.replay.drive(connections, &Keys::Repeated).await;
            // The first warms up, and records what is replayed.
            if round > 0 {
                rounds.fresh.push(fresh / alone);
                rounds.replay.push(replay / alone);
            }
        }
    }
    rounds.into_iter().map(Rounds::medians).collect()
}

/// One setting: a server for fresh keys and one for replays.
struct Subject {
    fresh: Server,
    replay: Server,
    fresh_keys: Keys,
}

impl Subject {
    async fn new(store: Arc<dyn Store>, archive: Option<Arc<dyn Archive>>) -> Self {
        let router = protected(store, archive);
        Self {
            fresh: Server::start(router.clone()).await,
            replay: Server::start(router).await,
            fresh_keys: Keys::fresh(),
        }
    }
}

#[derive(Clone, Default)]
struct Rounds {
    fresh: Vec<f64>,
    replay: Vec<f64>,
}

impl Rounds {
    fn medians(self) -> (f64, f64) {
        (measure::median(self.fresh), measure::median(self.replay))
    }
}

fn protected(store: Arc<dyn Store>, archive: Option<Arc<dyn Archive>>) -> Router {
    let policy = Policy::builder(PrincipalSource::bearer());
    let policy = policy.build().expect("a policy");
    let layer = IdempotencyLayer::builder_dyn(store).policy(policy);
    let layer = match archive {
        Some(archive) => layer.archive_dyn(archive),
        None => layer,
    };
    measure::bare().layer(layer.build().expect("a layer"))
}

fn server(variable: &str, starter: &str) -> String {
    let url = std::env::var(variable);
    url.unwrap_or_else(|_| panic!("{variable}: run {starter} cargo bench ..."))
}

async fn redis() -> Arc<dyn Store> {
    let url = server("REDIS_URL", "tests/redis.sh");
    let prefix = format!("bench-{}:", uuid::Uuid::new_v4());
    let store = RedisStore::builder().url(url).prefix(prefix).open().await;
    Arc::new(store.expect("the server is there"))
}
