//! Archives of another database than the store's, in which something goes wrong
//! or happens at a bad time.

use std::{fmt, sync::Mutex, time::Duration};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::{
    archive::{Archive, MemoryArchive},
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
    store::{StoreError, StoreIdentity},
};

/// An archive that is down.
#[derive(Debug)]
pub(super) struct Unreachable;

impl Unreachable {
    fn error<T>() -> Result<T, StoreError> {
        Err(StoreError::unavailable("an archive", "it is down"))
    }
}

#[async_trait]
impl Archive for Unreachable {
    fn within(&self) -> Option<StoreIdentity> {
        None
    }

    fn retention(&self) -> Option<Duration> {
        None
    }

    async fn lookup(
        &self,
        _: ScopedKey,
        _: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        Self::error()
    }

    async fn insert(&self, _: &[Tombstone]) -> Result<(), StoreError> {
        Self::error()
    }

    async fn amend(&self, _: ScopedKey, _: u16, _: Option<ResourceId>) -> Result<bool, StoreError> {
        Self::error()
    }

    async fn prune(&self, _: Timestamp, _: u32) -> Result<u64, StoreError> {
        Self::error()
    }
}

/// An archive where something happens as a sweep first
/// writes to it.
pub(super) struct Midway {
    rows: MemoryArchive,
    event: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Midway {
    pub(super) fn new(event: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            rows: MemoryArchive::new(),
            event: Mutex::new(Some(Box::pin(event))),
        }
    }
}

impl fmt::Debug for Midway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Midway")
    }
}

#[async_trait]
impl Archive for Midway {
    fn within(&self) -> Option<StoreIdentity> {
        None
    }

    fn retention(&self) -> Option<Duration> {
        None
    }

    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        self.rows.lookup(key, not_before).await
    }

    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError> {
        let event = self.event.lock().expect("a lock").take();
        if let Some(event) = event {
            event.await;
        }
        self.rows.insert(rows).await
    }

    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        self.rows.amend(key, status, resource_id).await
    }

    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.rows.prune(now, limit).await
    }
}
