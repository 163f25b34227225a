//! What the faulty store and archive tell an operator: what those below tell,
//! unless [`Verb::Inspect`] fails.

use async_trait::async_trait;
use axum_idempotency::{
    ScopedKey, Tombstone,
    inspect::{
        ArchiveCensus, ArchiveGauges, InspectArchive, InspectStore, LiveRecord, OpenQuery,
        OpenRecord, PerMinute, StoreCensus,
    },
    store::StoreError,
};
use jiff::Timestamp;

use super::{FaultyArchive, FaultyStore, Verb};

#[async_trait]
impl InspectStore for FaultyStore {
    async fn backlog(&self) -> Result<u64, StoreError> {
        self.play(Verb::Inspect, self.inspected().backlog()).await
    }

    async fn census(&self) -> Result<StoreCensus, StoreError> {
        self.play(Verb::Inspect, self.inspected().census()).await
    }

    async fn record(&self, key: ScopedKey) -> Result<Option<LiveRecord>, StoreError> {
        self.play(Verb::Inspect, self.inspected().record(key)).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        let call = self.inspected().open_at(query);
        self.play(Verb::Inspect, call).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        let call = self.inspected().claimed_per_minute(from, until);
        self.play(Verb::Inspect, call).await
    }

    async fn erase_response(&self, key: ScopedKey) -> Result<bool, StoreError> {
        let call = self.inspected().erase_response(key);
        self.play(Verb::Inspect, call).await
    }
}

#[async_trait]
impl InspectArchive for FaultyArchive {
    async fn gauges(&self) -> Result<ArchiveGauges, StoreError> {
        self.play(Verb::Inspect, self.inspected().gauges()).await
    }

    async fn census(&self) -> Result<ArchiveCensus, StoreError> {
        self.play(Verb::Inspect, self.inspected().census()).await
    }

    async fn history(&self, key: ScopedKey) -> Result<Vec<Tombstone>, StoreError> {
        let call = self.inspected().history(key);
        self.play(Verb::Inspect, call).await
    }

    async fn newest(&self) -> Result<Option<Tombstone>, StoreError> {
        self.play(Verb::Inspect, self.inspected().newest()).await
    }

    async fn expired_since(&self, from: Timestamp) -> Result<u64, StoreError> {
        let call = self.inspected().expired_since(from);
        self.play(Verb::Inspect, call).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        let call = self.inspected().open_at(query);
        self.play(Verb::Inspect, call).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        let call = self.inspected().claimed_per_minute(from, until);
        self.play(Verb::Inspect, call).await
    }
}
