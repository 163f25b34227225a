//! The processes of one service.

use std::{sync::Arc, time::Duration};

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::{
    ArchiveLookup,
    archive::{Archive as _, SqliteArchive},
    store::redis::{RedisStore, RedisStoreBuilder},
};
use http::{
    StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{Ledger, ledger::Effect};
use crate::support::{Backend, FaultyArchive, FaultyStore, Shop, Work, scoped};

/// Layers that know nothing of each other but a Redis and an archive, which they
/// ask for all keys.
pub(super) struct Services {
    pub(super) shops: Vec<Shop>,
    pub(super) ledger: Arc<Ledger>,
    _dir: TempDir,
}

impl Services {
    /// A process for each URL.
    pub(super) async fn over<const N: usize>(urls: [String; N]) -> Self {
        let builders = urls.map(|url| RedisStore::builder().url(url));
        Self::with(builders).await
    }

    /// A process for each store.
    pub(super) async fn with(stores: impl IntoIterator<Item = RedisStoreBuilder>) -> Self {
        Self::leasing(LEASE, stores).await
    }

    /// The same, where an attempt that stops lapses after this lease.
    pub(super) async fn leasing(
        lease: Duration,
        stores: impl IntoIterator<Item = RedisStoreBuilder>,
    ) -> Self {
        let dir = TempDir::new().expect("a directory for temporary files");
        let archive = format!("sqlite:{}", dir.path().join("archive.db").display());
        let ledger = Arc::new(Ledger::default());
        let mut shops = Vec::new();
        for (process, store) in stores.into_iter().enumerate() {
            let store = store.open().await.expect("the server is there");
            let archive = SqliteArchive::open(&archive).await.expect("an archive");
            let opening = Backend::memory().shop();
            let shop = opening
                .over(FaultyStore::over(Arc::new(store)))
                .archive(FaultyArchive::over(Arc::new(archive)))
                .work(work(process, &ledger))
                .policy(|policy| policy.archive_lookup(ArchiveLookup::AllKeys).lease(lease));
            shops.push(shop.in_memory());
        }
        Self {
            shops,
            ledger,
            _dir: dir,
        }
    }
}

impl Services {
    /// Waits until the archive has the outcomes of all executions but so many, which
    /// are held.
    pub(super) async fn archive_all_but(&self, held: usize) {
        let archive = &self.shops[0].archive;
        loop {
            let mut missing = 0;
            for (key, entry) in self.ledger.entries() {
                let found = archive.lookup(scoped("alice", &key), None).await;
                let is_there = found.expect("the archive answers").is_some();
                missing += usize::from(!entry.effects.is_empty() && !is_there);
            }
            if missing <= held {
                return;
            }
            sleep(CHARGING).await;
        }
    }
}

/// A store whose calls end within 600 ms.
pub(super) fn impatient(url: String) -> RedisStoreBuilder {
    RedisStore::builder()
        .url(url)
        .connect_timeout(Duration::from_millis(200))
        .response_timeout(Duration::from_millis(400))
}

/// A charge that takes a moment, so that at any time some are under way. Its
/// answer tells it from all others.
fn work(process: usize, ledger: &Arc<Ledger>) -> Work {
    let ledger = Arc::clone(ledger);
    Work::answering(move |seen| {
        let (idempotency, ledger) = (seen.idempotency(), Arc::clone(&ledger));
        let (key, attempt) = (idempotency.key().as_str(), idempotency.attempt());
        let id = format!("ch_{process}_{}", seen.run);
        let effect = Effect {
            id: id.clone(),
            attempt,
            begun: Instant::now(),
        };
        ledger.effect(key, effect);
        let answer = charge(&id, key);
        async move {
            if let Some(gate) = ledger.gate() {
                gate.pass().await;
            }
            sleep(CHARGING).await;
            answer
        }
    })
}

fn charge(id: &str, key: &str) -> Response {
    let body = json!({"id": id, "key": key, "padding": "é\u{0}\n".repeat(50)});
    (
        StatusCode::CREATED,
        [
            (LOCATION, format!("/charges/{id}")),
            (CONTENT_TYPE, "application/json".to_owned()),
        ],
        body.to_string(),
    )
        .into_response()
}

/// Longer than a key may be without an answer, so that none waits for a lapse.
const LEASE: Duration = Duration::from_secs(30);

const CHARGING: Duration = Duration::from_millis(10);
