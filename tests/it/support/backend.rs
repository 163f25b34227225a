//! What a test runs on: a store, an archive and the clock that decides.

use std::{any::Any, fmt, sync::Arc, time::Duration};

#[cfg(feature = "postgres")]
use axum_idempotency::store::postgres::PostgresStore;
#[cfg(feature = "redis")]
use axum_idempotency::store::redis::RedisStore;
use axum_idempotency::{
    Clock, IdempotencyKey, ManualClock, Principal, Record, Scope, ScopedKey, Sweeper, SystemClock,
    Tombstone,
    archive::{Archive, MemoryArchive},
    inspect::LiveRecord,
    store::{Keeps, MemoryStore, Store},
};
use http::Method;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{FaultyArchive, FaultyStore};

/// One store and its archive, under a clock that the test moves.
#[derive(Clone)]
pub(crate) struct Backend {
    pub clock: ManualClock,
    store: Arc<dyn Store>,
    archive: Arc<dyn Archive>,
    /// Files and connections, for as long as the test runs.
    _held: Arc<dyn Any + Send + Sync>,
}

impl Backend {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::default();
        Self {
            store: Arc::new(MemoryStore::builder().clock(clock.clone()).build()),
            archive: Arc::new(MemoryArchive::new()),
            clock,
            _held: Arc::new(()),
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let clock = ManualClock::default();
        let (store, files) = super::sqlite::open(clock.clone()).await;
        Self {
            archive: Arc::new(store.archive()),
            store: Arc::new(store),
            clock,
            _held: Arc::new(files),
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres() -> Self {
        let clock = ManualClock::default();
        let schema = super::postgres::Schema::new();
        let builder = PostgresStore::builder().url(schema.url());
        let store = builder.clock(clock.clone()).open().await;
        let store = store.expect("a fresh schema opens");
        Self {
            archive: Arc::new(store.archive()),
            store: Arc::new(store),
            clock,
            _held: Arc::new(schema),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) async fn redis() -> Self {
        let prefix = super::redis::prefix();
        Self::redis_beside(&prefix, MemoryArchive::new(), ()).await
    }

    /// A Redis store beside an archive, and what that lives in.
    #[cfg(feature = "redis")]
    pub(crate) async fn redis_beside(
        prefix: &str,
        archive: impl Archive,
        held: impl Any + Send + Sync,
    ) -> Self {
        let clock = ManualClock::default();
        let builder = RedisStore::builder().url(super::redis::server_url());
        let store = builder.prefix(prefix).clock(clock.clone()).open().await;
        Self {
            archive: Arc::new(archive),
            store: Arc::new(store.expect("the server is there")),
            clock,
            _held: Arc::new(held),
        }
    }

    /// A store on its server's own clock beside an archive, and what that lives
    /// in. The test's clock moves nothing here.
    pub(crate) fn over(
        store: impl Store,
        archive: impl Archive,
        held: impl Any + Send + Sync,
    ) -> Self {
        Self {
            store: Arc::new(store),
            archive: Arc::new(archive),
            clock: ManualClock::new(SystemClock.now()),
            _held: Arc::new(held),
        }
    }

    /// With the clock that its store goes by.
    pub(crate) fn under(self, clock: ManualClock) -> Self {
        Self { clock, ..self }
    }

    /// A memory store whose clock goes on as tokio's does, for tests that let
    /// time pass by itself. The clock that the test moves makes it jump.
    pub(crate) fn on_tokio_time() -> Self {
        let memory = Self::memory();
        let clock = TokioClock {
            begun: memory.clock.clone(),
            since: Instant::now(),
        };
        Self {
            store: Arc::new(MemoryStore::builder().clock(clock).build()),
            ..memory
        }
    }

    /// A memory store with room for so many records.
    pub(crate) fn with_capacity(records: usize) -> Self {
        let memory = Self::memory();
        let store = MemoryStore::builder()
            .capacity(records)
            .clock(memory.clock.clone());
        Self {
            store: Arc::new(store.build()),
            ..memory
        }
    }

    /// Whether records leave the store by themselves, so that outcomes are
    /// archived first, and no key is too young to ask about.
    pub(crate) fn archives_first(&self) -> bool {
        self.store.keeps() != Keeps::UntilSwept
    }

    /// The store as one process sees it.
    pub(crate) fn process(&self) -> FaultyStore {
        FaultyStore::over(Arc::clone(&self.store))
    }

    /// The archive as one process sees it.
    pub(crate) fn archive(&self) -> FaultyArchive {
        FaultyArchive::over(Arc::clone(&self.archive))
    }

    /// The live record of a key as an operator sees it.
    pub(crate) async fn seen_by_an_operator(&self, key: &str) -> Option<LiveRecord> {
        let store = self.store.inspect().expect("a store that can be inspected");
        let found = store.record(scoped("alice", key)).await;
        found.expect("the store answers")
    }

    /// What the store holds for alice's `key`.
    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.record_of("alice", key).await
    }

    /// What the store holds for a key of this bearer.
    pub(crate) async fn record_of(&self, bearer: &str, key: &str) -> Option<Record> {
        let found = self.store.get(scoped(bearer, key)).await;
        found.expect("the store answers")
    }

    /// What the archive holds for alice's `key`.
    pub(crate) async fn tombstone(&self, key: &str) -> Option<Tombstone> {
        let found = self.archive.lookup(scoped("alice", key), None).await;
        found.expect("the archive answers")
    }

    /// Moves what has expired into the archive, and says how much that was.
    pub(crate) async fn sweep(&self) -> u64 {
        let sweeper = Sweeper::new_dyn(Arc::clone(&self.store));
        let sweeper = sweeper
            .archive_dyn(Arc::clone(&self.archive))
            .pause(Duration::ZERO);
        let swept = sweeper.sweep_once().await.expect("the store answers");
        swept.archived
    }

    /// A ULID made so long before the store's present.
    pub(crate) fn ulid_made_before(&self, age: Duration) -> String {
        ulid_of(self.clock.now() - age)
    }

    /// A ULID made so long after the store's present.
    pub(crate) fn ulid_made_ahead(&self, ahead: Duration) -> String {
        ulid_of(self.clock.now() + ahead)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The name of a bearer's key under the default scope.
pub(crate) fn scoped(bearer: &str, key: &str) -> ScopedKey {
    let principal = Principal::bearer(bearer);
    let key = IdempotencyKey::new(key).expect("a test's key is a key");
    ScopedKey::derive(
        None,
        Scope::Principal,
        &principal,
        (&Method::POST, "/"),
        &key,
    )
}

/// A ULID that says it was made then.
pub(crate) fn ulid_of(time: Timestamp) -> String {
    let ms = u64::try_from(time.as_millisecond()).expect("a time after 1970");
    ulid::Ulid::from_parts(ms, rand_bits()).to_string()
}

fn rand_bits() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

/// Wall-clock time that goes on as tokio's does, so that a paused runtime
/// moves both.
#[derive(Debug)]
struct TokioClock {
    begun: ManualClock,
    since: Instant,
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.begun.now() + self.since.elapsed()
    }
}
