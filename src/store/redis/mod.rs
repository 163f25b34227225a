//! The Redis store: live records in the memory of Redis 7 or later, or Valkey,
//! on one server or a cluster, for production at low latency.
//!
//! 1. **One script for each call**, one key for each record: a claim, a
//!    completion and a replay are one round trip each, and a cluster may be
//!    resharded at any time.
//! 2. **The clock is the server's**, that of the node which holds the record.
//!    Keep the clocks of masters and replicas together, within a small part of
//!    a lease.
//! 3. **Completed records leave by themselves** when they expire: Redis drops
//!    them a minute later. So a completion is archived *before* it is recorded
//!    ([`Keeps::UntilExpired`]); a layer over this store with an
//!    archive does that. What was left in progress stays until a
//!    [`Sweeper`](crate::Sweeper) has archived it; without an archive it leaves
//!    by itself too.
//! 4. **Eviction.** A server whose `maxmemory-policy` is not `noeviction` may
//!    drop a record inside its window. Opening the store warns of it, or fails
//!    ([`Eviction`]); a layer over such a store is built only with an archive
//!    that it asks for all keys.
//! 5. **A full server** (`noeviction` at `maxmemory`) refuses new keys with
//!    `idempotency_store_full`. What was claimed is still renewed and completed,
//!    and replays go on.
//! 6. **TLS** takes a feature of the crate redis: add `redis` to your
//!    `Cargo.toml` with `tokio-rustls-comp` or `tokio-native-tls-comp`.
//!
//! # What Redis can lose
//!
//! Redis answers before its replicas, and as configured before its disk, have
//! what was written. A master that dies may take its last moments along, and a
//! server without an append-only file all since its last snapshot.
//!
//! | lost | with an archive and [`ArchiveLookup::AllKeys`] | with an archive and the default lookup | without an archive |
//! | --- | --- | --- | --- |
//! | a completed record | the retry gets `idempotency_key_expired` with status and resource id: it was archived first | the same for a key whose own timestamp is old; **else it runs again** | **it runs again** |
//! | that a record was completed, and not its claim: a replica had got that far | the retry is told that it is in progress until the lease lapses, then `idempotency_response_not_kept` with status and resource id | the same | **it runs again** when the lease has lapsed, and is told the attempt |
//! | a record in progress, whose handler is still running | **a retry that comes meanwhile runs beside it**: only Redis knew. The first is then fenced, and told so before its answer leaves. One that comes later is told: the outcome was archived | **a retry runs**, beside the first or after it, except for a key whose own timestamp is old | **a retry runs**, beside the first or after it |
//! | a record in progress, whose process died | **a retry runs again** as a first attempt, not as a takeover: `attempt` is 1 | the same | the same |
//! | the TTLs that processes published | the archive is asked for all keys anyway | **a key recorded under a shorter TTL than those in use may be taken for young, and run again**: for about a minute where its process goes on, else for good | there is nothing to ask |
//!
//! What makes the bold ones rarer is up to the server: `appendonly yes` with
//! `appendfsync always` survives a restart, `min-replicas-to-write 1` stops a
//! master that has been cut off from its replicas. What makes a second effect
//! impossible is a unique index in your own tables, as in the example `charges`.
//!
//! In a cluster the TTLs in force are on one master. While that one is out for
//! longer than half a minute, every process answers 503; one that has just
//! started, at once.
//!
//! With a policy of the `volatile-` family Redis evicts only completed records,
//! as long as there is an archive: a record in progress then has no expiry.
//!
//! ```no_run
//! # async fn open() -> Result<(), axum_idempotency::store::StoreError> {
//! use axum_idempotency::store::redis::RedisStore;
//!
//! let one = RedisStore::open("redis://:secret@localhost:6379").await?;
//! let cluster = RedisStore::open("redis+cluster://node-1:6379,node-2:6379").await?;
//! # Ok(()) }
//! ```
//!
//! [`ArchiveLookup::AllKeys`]: crate::ArchiveLookup::AllKeys

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use redis::{ScriptInvocation, Value};
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    error::store_error,
    link::Link,
    scripts::{Call, Scripts},
    sweep::ASKED_AT_ONCE,
};
use super::{
    Fenced, Keeps, Renewal, Renewed, Store, StoreError, StoreIdentity, TtlNotice,
    move_in_two_phases,
};
use crate::{
    archive::Archive,
    claim::{Claim, ClaimRequest},
    clock::{Clock, from_micros},
    inspect::InspectStore,
    record::{Completion, ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
};

mod claims;
mod error;
mod inspect;
mod link;
mod options;
mod renewals;
mod row;
mod scripts;
mod start;
mod sweep;

pub use self::options::{Eviction, RedisStoreBuilder};

#[cfg(doc)]
use super::StoreErrorKind;

/// Live records in Redis. Clones are handles to one store.
///
/// It lives on the runtime that opened it.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

struct Shared {
    identity: StoreIdentity,
    link: Link,
    scripts: Scripts,
    prefix: String,
    clock: Option<Arc<dyn Clock>>,
    patience: Duration,
    keeps: Keeps,
    is_closed: AtomicBool,
}

impl RedisStore {
    /// Connects to `redis://USER:PASSWORD@HOST:PORT/DATABASE`, or to a cluster,
    /// `redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT`.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Setup`] with the remedy, for a URL, a user, a password
    /// or a server that cannot be used. [`StoreErrorKind::Unavailable`] when no
    /// server can be reached.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::builder().url(url).open().await
    }

    /// A store with other settings than those of [`RedisStore::open`].
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    async fn open_with(options: RedisStoreBuilder) -> Result<Self, StoreError> {
        const REACHING: &str = "connecting to Redis: does it run, and are host and port of the \
                                URL right?";
        let target = options.target()?;
        let connected = async {
            let link = Link::connect(target, &options).await;
            let link = link.map_err(|error| store_error(REACHING, error))?;
            let keeps = start::check(&link, options.eviction).await?;
            Ok((link, keeps))
        };
        let connected = timeout(options.patience(), connected).await;
        let too_slow = |elapsed| Err(StoreError::unavailable(REACHING, elapsed));
        let (link, keeps) = connected.unwrap_or_else(too_slow)?;
        let store = Self {
            shared: Arc::new(Shared {
                identity: StoreIdentity::new(),
                link,
                scripts: Scripts::new(),
                patience: options.patience(),
                prefix: options.prefix,
                clock: options.clock,
                keeps,
                is_closed: AtomicBool::new(false),
            }),
        };
        store.probe().await?;
        Ok(store)
    }

    /// Finds out whether the scripts can run.
    async fn probe(&self) -> Result<(), StoreError> {
        let name = format!("idem:probe:{}", uuid::Uuid::new_v4());
        let shared = &self.shared;
        let probed = shared.call_named(&shared.scripts.probe, &name, |call| call);
        probed.await.map(drop)
    }

    /// The scoped key that a key in Redis is named after, if it is a record's.
    fn key_of(&self, name: &str) -> Option<ScopedKey> {
        name.strip_prefix(&self.shared.prefix)?.parse().ok()
    }

    async fn remove_one(&self, record: &ExpiredRecord) -> Result<u64, StoreError> {
        let tombstone = &record.tombstone;
        let shared = &self.shared;
        let removed = shared
            .call(&shared.scripts.remove, tombstone.key, |call| {
                call.arg(record.token.as_bytes())
                    .arg(tombstone.expired_at.as_microsecond())
                    .arg(tombstone.status)
            })
            .await?;
        Ok(u64::from(removed == Value::Int(1)))
    }
}

impl Shared {
    fn check_open(&self, what: &'static str) -> Result<(), StoreError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::unavailable(what, "the store is closed"));
        }
        Ok(())
    }

    /// Runs a script on the record of `key`.
    async fn call(
        &self,
        call: &Call,
        key: ScopedKey,
        args: impl for<'c, 's> FnOnce(&'c mut ScriptInvocation<'s>) -> &'c mut ScriptInvocation<'s>,
    ) -> Result<Value, StoreError> {
        self.call_named(call, &key.to_string(), args).await
    }

    /// The same on what has a name of its own; again when the connection broke,
    /// for what may be repeated.
    async fn call_named(
        &self,
        call: &Call,
        name: &str,
        args: impl for<'c, 's> FnOnce(&'c mut ScriptInvocation<'s>) -> &'c mut ScriptInvocation<'s>,
    ) -> Result<Value, StoreError> {
        let what = call.what;
        self.check_open(what)?;
        let now = self
            .clock
            .as_ref()
            .map(|clock| clock.now().as_microsecond());
        let now = now.map_or_else(String::new, |now| now.to_string());
        let mut script = call.script.key(format!("{}{name}", self.prefix));
        args(script.arg(now));
        let deadline = Instant::now() + self.patience;
        let mut lost = 0;
        loop {
            match timeout_at(deadline, self.link.run(&script)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error))
                    if error::is_lost(&error) && call.is_repeatable && lost < MOST_LOST =>
                {
                    lost += 1;
                }
                Ok(Err(error)) => return Err(store_error(what, error)),
                Err(elapsed) => return Err(StoreError::unavailable(what, elapsed)),
            }
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    fn identity(&self) -> StoreIdentity {
        self.shared.identity
    }

    fn keeps(&self) -> Keeps {
        self.shared.keeps
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        claims::claim(&self.shared, &request).await
    }

    async fn complete(
        &self,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        let shared = &self.shared;
        let completed = shared.call(&shared.scripts.complete, key, |call| {
            call.arg(token.as_bytes())
                .arg(completion.status)
                .arg(row::answer(&completion))
        });
        Ok(fenced(&completed.await?))
    }

    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError> {
        let shared = &self.shared;
        let released = shared.call(&shared.scripts.release, key, |call| {
            call.arg(token.as_bytes())
                .arg(OwnerToken::random().as_bytes())
        });
        Ok(fenced(&released.await?))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        renewals::renew(&self.shared, renewals).await
    }

    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        let shared = &self.shared;
        match shared.call(&shared.scripts.get, key, |call| call).await? {
            Value::Nil => Ok(None),
            found => row::record(key, found).map(Some),
        }
    }

    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let amended = shared.call(&shared.scripts.amend, key, |call| {
            call.arg(OwnerToken::random().as_bytes())
                .arg(completion.status)
                .arg(row::answer(&completion))
        });
        Ok(amended.await? == Value::Int(1))
    }

    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError> {
        move_in_two_phases(self, archive, limit).await
    }

    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError> {
        self.oldest_expired(usize::try_from(limit).unwrap_or(usize::MAX))
            .await
    }

    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError> {
        let removals: Vec<_> = records
            .iter()
            .map(|record| self.remove_one(record))
            .collect();
        let mut removals = stream::iter(removals).buffer_unordered(ASKED_AT_ONCE);
        let mut removed = 0;
        while let Some(one) = removals.next().await {
            removed += one?;
        }
        Ok(removed)
    }

    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError> {
        let shared = &self.shared;
        let smallest = shared.call_named(&shared.scripts.publish_ttl, NOTICES, |call| {
            call.arg(notice.process.as_bytes())
                .arg(micros(notice.smallest))
                .arg(micros(notice.largest))
        });
        match smallest.await? {
            Value::Int(smallest) => Ok(Duration::from_micros(smallest.unsigned_abs())),
            _ => Err(StoreError::corrupt("the TTLs in force")),
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let shared = &self.shared;
        let now = shared.call_named(&shared.scripts.now, NOTICES, |call| call);
        match now.await? {
            Value::Int(now) => Ok(from_micros(now)),
            _ => Err(StoreError::corrupt("the time")),
        }
    }

    async fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }

    fn inspect(&self) -> Option<&dyn InspectStore> {
        Some(self)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("identity", &self.shared.identity)
            .field("is_cluster", &matches!(self.shared.link, Link::Cluster(_)))
            .field("prefix", &self.shared.prefix)
            .field("keeps", &self.shared.keeps)
            .finish_non_exhaustive()
    }
}

fn fenced(answer: &Value) -> Fenced {
    if *answer == Value::Int(1) {
        Fenced::Owner
    } else {
        Fenced::Stale
    }
}

/// A span as the scripts take it.
fn micros(span: Duration) -> String {
    span.as_micros().to_string()
}

/// The name that holds the TTLs in force. It is no scoped key.
const NOTICES: &str = "idem:ttls:v1";

/// How often a call is repeated on a connection that came up again.
const MOST_LOST: usize = 2;
