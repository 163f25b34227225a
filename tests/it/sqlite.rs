//! What is special to the SQLite store and archive.

use std::{path::PathBuf, time::Duration};

use axum_idempotency::{Completion, KeptResponse};
use axum_idempotency::{
    Fingerprint, IdempotencyKey, ManualClock, OwnerToken, Principal, ResourceId, Scope, ScopedKey,
    claim::{Abandoned, ArchiveLookup, Claim, ClaimOutcome, ClaimRequest, KeyAge, Lease},
    store::{Store as _, sqlite::SqliteStore},
};
use http::{HeaderName, HeaderValue, Method};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, SqliteConnection, query,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use tempfile::TempDir;

mod archive;
mod batch;
#[cfg(feature = "conformance")]
mod conformance;
mod corrupt;
mod files;
mod model;
mod processes;
mod schema;
mod setup;
mod sweep;

const LEASE: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_hours(24);

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

fn key(name: impl ToString + Copy) -> ScopedKey {
    let name = IdempotencyKey::new(&name.to_string()).expect("a key");
    let principal = Principal::new("alice");
    ScopedKey::derive(
        None,
        Scope::Principal,
        &principal,
        (&Method::POST, "/"),
        &name,
    )
}

fn request(key: ScopedKey) -> ClaimRequest {
    ClaimRequest {
        key,
        token: OwnerToken::random(),
        fingerprint: fingerprint(1),
        recomputed: None,
        lease: LEASE,
        ttl: TTL,
        age: KeyAge {
            timestamp: None,
            lookup: ArchiveLookup::TimestampedKeys,
            lookup_after: Some(TTL),
        },
        abandoned: Abandoned::TakeOver,
    }
}

fn fingerprint(request: u8) -> Fingerprint {
    Fingerprint::from_bytes([&[0x10], &[request; 32][..]].concat())
}

fn leased(claim: Claim) -> Lease {
    match claim.outcome {
        ClaimOutcome::Claimed(lease) => lease,
        other => panic!("not claimed: {other:?}"),
    }
}

fn completion(status: u16) -> Completion {
    Completion {
        status,
        resource_id: ResourceId::new("ch_1"),
        response: Some(response(&[("etag", b"\"1\"")], b"{}")),
    }
}

fn response(headers: &[(&'static str, &[u8])], body: &[u8]) -> KeptResponse {
    let pair = |&(name, value): &(&'static str, &[u8])| {
        let value = HeaderValue::from_bytes(value).expect("a value");
        (HeaderName::from_static(name), value)
    };
    KeptResponse {
        headers: headers.iter().map(pair).collect(),
        body: body.to_vec().into(),
    }
}
