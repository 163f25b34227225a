//! A store and an archive that fail as a script says.

use std::{
    collections::HashSet,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum_idempotency::{
    Completion, ExpiredRecord, OwnerToken, Record, ResourceId, ScopedKey, Tombstone,
    archive::Archive,
    claim::{Claim, ClaimRequest},
    inspect::{InspectArchive, InspectStore},
    store::{Fenced, Keeps, Renewal, Renewed, Store, StoreError, StoreIdentity, TtlNotice},
};
use jiff::Timestamp;

use super::{Script, Verb};

/// A handle of a store with an identity of its own: to the layers over it, the
/// store as another process sees it. Clones are one handle.
#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    identity: StoreIdentity,
    keeps: Keeps,
    script: Arc<Script>,
    renewals: Arc<Mutex<Vec<Vec<Renewal>>>>,
    poisoned: Arc<Mutex<HashSet<ScopedKey>>>,
}

impl FaultyStore {
    pub(crate) fn over(inner: Arc<dyn Store>) -> Self {
        Self {
            keeps: inner.keeps(),
            inner,
            identity: StoreIdentity::new(),
            script: Arc::new(Script::new()),
            renewals: Arc::default(),
            poisoned: Arc::default(),
        }
    }

    /// The store itself: with its identity, so that effects can be committed with
    /// its records.
    pub(crate) fn with_its_identity(mut self) -> Self {
        self.identity = self.inner.identity();
        self
    }

    /// The same records, said to leave by themselves.
    pub(crate) fn keeping_until_expired(mut self) -> Self {
        self.keeps = Keeps::UntilExpired;
        self
    }

    /// The view of the store below, which has one.
    pub(super) fn inspected(&self) -> &dyn InspectStore {
        self.inner.inspect().expect("the store has a view")
    }

    /// From now on no completion of this key succeeds.
    pub(crate) fn poison(&self, key: ScopedKey) {
        let mut poisoned = self.poisoned.lock().expect("nothing panics here");
        poisoned.insert(key);
    }

    /// What each call to renew asked for.
    pub(crate) fn renewals(&self) -> Vec<Vec<Renewal>> {
        self.renewals.lock().expect("nothing panics here").clone()
    }
}

impl Deref for FaultyStore {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.script
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn identity(&self) -> StoreIdentity {
        self.identity
    }

    fn keeps(&self) -> Keeps {
        self.keeps
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        let inner = Arc::clone(&self.inner);
        let call = async move { inner.claim(request).await };
        self.script.play_detached(Verb::Claim, call).await
    }

    async fn complete(
        &self,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        let is_poisoned = self
            .poisoned
            .lock()
            .expect("nothing panics here")
            .contains(&key);
        let call = async {
            if is_poisoned {
                return Err(StoreError::unavailable("this row", "as the test asked"));
            }
            self.inner.complete(key, token, completion).await
        };
        self.script.play(Verb::Complete, call).await
    }

    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError> {
        let call = self.inner.release(key, token);
        self.script.play(Verb::Release, call).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        self.renewals
            .lock()
            .expect("nothing panics here")
            .push(renewals.to_vec());
        let call = self.inner.renew(renewals);
        self.script.play(Verb::Renew, call).await
    }

    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        let call = self.inner.get(key);
        self.script.play(Verb::Get, call).await
    }

    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError> {
        self.inner.amend(key, completion).await
    }

    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError> {
        self.inner.sweep(archive, limit).await
    }

    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError> {
        self.inner.expired(limit).await
    }

    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError> {
        self.inner.remove(records).await
    }

    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError> {
        let call = self.inner.publish_ttl(notice);
        self.script.play(Verb::Publish, call).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    async fn close(&self) {
        let call = async {
            self.inner.close().await;
            Ok(())
        };
        let _closed = self.script.play(Verb::Close, call).await;
    }

    fn inspect(&self) -> Option<&dyn InspectStore> {
        self.inner.inspect().is_some().then_some(self)
    }
}

/// An archive that fails as a script says. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct FaultyArchive {
    inner: Arc<dyn Archive>,
    script: Arc<Script>,
    retention: Option<Duration>,
}

impl FaultyArchive {
    pub(crate) fn over(inner: Arc<dyn Archive>) -> Self {
        Self {
            retention: inner.retention(),
            inner,
            script: Arc::new(Script::new()),
        }
    }

    /// The view of the archive below, which has one.
    pub(super) fn inspected(&self) -> &dyn InspectArchive {
        self.inner.inspect().expect("the archive has a view")
    }

    /// The same rows, said to be kept for so long only.
    pub(crate) fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }
}

impl Deref for FaultyArchive {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.script
    }
}

#[async_trait]
impl Archive for FaultyArchive {
    fn within(&self) -> Option<StoreIdentity> {
        self.inner.within()
    }

    fn retention(&self) -> Option<Duration> {
        self.retention
    }

    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        let call = self.inner.lookup(key, not_before);
        self.script.play(Verb::Lookup, call).await
    }

    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError> {
        let call = self.inner.insert(rows);
        self.script.play(Verb::Insert, call).await
    }

    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        self.inner.amend(key, status, resource_id).await
    }

    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.inner.prune(now, limit).await
    }

    async fn prepare(&self, from: Timestamp, until: Timestamp) -> Result<(), StoreError> {
        self.inner.prepare(from, until).await
    }

    fn inspect(&self) -> Option<&dyn InspectArchive> {
        self.inner.inspect().is_some().then_some(self)
    }
}
