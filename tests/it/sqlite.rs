//! What is special to the SQLite store and archive.

use std::path::PathBuf;

use axum_idempotency::{
    ManualClock, OwnerToken, ScopedKey,
    claim::Lease,
    store::{Store as _, sqlite::SqliteStore},
};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, SqliteConnection, query,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use tempfile::TempDir;

use crate::support::attempt::{
    LEASE, TTL, completion, fingerprint, key, leased, request, response,
};

mod archive;
mod batch;
#[cfg(feature = "conformance")]
mod conformance;
mod corrupt;
mod files;
mod inspect;
mod model;
mod processes;
mod schema;
mod setup;
mod sweep;

/// A store in a directory of its own, with a clock that the test moves.
struct Fixture {
    dir: TempDir,
    clock: ManualClock,
    store: SqliteStore,
}

impl Fixture {
    async fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let clock = ManualClock::default();
        let store = open(&url(&dir), &clock).await;
        Self { dir, clock, store }
    }

    fn url(&self) -> String {
        url(&self.dir)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("a.db")
    }

    /// Another handle, as another process would have it.
    async fn other(&self) -> SqliteStore {
        open(&self.url(), &self.clock).await
    }

    /// A connection beside the store.
    async fn raw(&self) -> Raw {
        let options = SqliteConnectOptions::new().filename(self.path());
        Raw(options.connect().await.expect("a connection"))
    }

    async fn claim(&self, key: ScopedKey) -> (OwnerToken, Lease) {
        let request = request(key);
        let token = request.token;
        let claim = self.store.claim(request).await.expect("an answer");
        (token, leased(claim))
    }
}

fn url(dir: &TempDir) -> String {
    format!("sqlite:{}", dir.path().join("a.db").display())
}

async fn open(url: &str, clock: &ManualClock) -> SqliteStore {
    let builder = SqliteStore::builder().url(url).clock(clock.clone());
    builder.open().await.expect("a store")
}

struct Raw(SqliteConnection);

impl Raw {
    async fn run(&mut self, sql: &str) -> u64 {
        let done = query(AssertSqlSafe(sql)).execute(&mut self.0).await;
        done.expect(sql).rows_affected()
    }

    async fn rows(&mut self, sql: &str) -> Vec<SqliteRow> {
        let rows = query(AssertSqlSafe(sql)).fetch_all(&mut self.0).await;
        rows.expect(sql)
    }

    async fn count(&mut self, from: &str) -> i64 {
        let count = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {from}")));
        count.fetch_one(&mut self.0).await.expect(from)
    }
}
