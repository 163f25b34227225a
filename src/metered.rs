//! A store whose calls are timed.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    archive::Archive,
    claim::{Claim, ClaimRequest},
    identity::StoreIdentity,
    inspect::InspectStore,
    metrics,
    record::{Completion, ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
    store::{Fenced, Keeps, Renewal, Renewed, Store, StoreError, TtlNotice},
};

/// Passes every call on, and tells how long it took.
#[derive(Clone, Debug)]
pub(crate) struct Metered(pub(crate) Arc<dyn Store>);

async fn timed<T>(
    call: &'static str,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = Call {
        name: call,
        asked: Instant::now(),
        result: "given_up",
    };
    let answer = answer.await;
    call.result = if answer.is_ok() { "ok" } else { "error" };
    answer
}

/// Told of when it ends, also where that is by its caller's patience.
struct Call {
    name: &'static str,
    asked: Instant,
    result: &'static str,
}

impl Drop for Call {
    fn drop(&mut self) {
        metrics::store_call(self.name, self.asked.elapsed(), self.result);
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Metered {
    fn identity(&self) -> StoreIdentity {
        self.0.identity()
    }

    fn keeps(&self) -> Keeps {
        self.0.keeps()
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        timed("claim", self.0.claim(request)).await
    }

    async fn complete(
        &self,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        timed("complete", self.0.complete(key, token, completion)).await
    }

    async fn release(&self, key: ScopedKey, token: OwnerToken) -> Result<Fenced, StoreError> {
        timed("release", self.0.release(key, token)).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        timed("renew", self.0.renew(renewals)).await
    }

    async fn get(&self, key: ScopedKey) -> Result<Option<Record>, StoreError> {
        timed("get", self.0.get(key)).await
    }

    async fn amend(&self, key: ScopedKey, completion: Completion) -> Result<bool, StoreError> {
        timed("amend", self.0.amend(key, completion)).await
    }

    async fn sweep(&self, archive: Option<&dyn Archive>, limit: u32) -> Result<u64, StoreError> {
        timed("sweep", self.0.sweep(archive, limit)).await
    }

    async fn expired(&self, limit: u32) -> Result<Vec<ExpiredRecord>, StoreError> {
        timed("expired", self.0.expired(limit)).await
    }

    async fn remove(&self, records: &[ExpiredRecord]) -> Result<u64, StoreError> {
        timed("remove", self.0.remove(records)).await
    }

    async fn publish_ttl(&self, notice: TtlNotice) -> Result<Duration, StoreError> {
        timed("publish_ttl", self.0.publish_ttl(notice)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        timed("now", self.0.now()).await
    }

    async fn close(&self) {
        self.0.close().await;
    }

    fn inspect(&self) -> Option<&dyn InspectStore> {
        self.0.inspect()
    }
}
