//! What an operator asks of the memory store.

use std::sync::PoisonError;

use async_trait::async_trait;
use jiff::Timestamp;

use super::MemoryStore;
use crate::{
    clock::from_micros,
    inspect::{
        InspectStore, LiveRecord, Minutes, Oldest, OpenQuery, OpenRecord, PerMinute, StoreCensus,
        count, uncounted,
    },
    scope::ScopedKey,
    store::StoreError,
};

#[async_trait]
impl InspectStore for MemoryStore {
    async fn backlog(&self) -> Result<u64, StoreError> {
        let table = &self.open()?.table;
        Ok(table.count_expired(table.now()))
    }

    async fn census(&self) -> Result<StoreCensus, StoreError> {
        let shared = self.open()?;
        let now = from_micros(shared.table.now());
        let mut census = uncounted(now);
        shared
            .table
            .for_each(|key, row| count(&row.live(key), now, &mut census))
            .await;
        let notices = shared.notices.lock();
        let notices = notices.unwrap_or_else(PoisonError::into_inner);
        census.ttls = notices.in_force(now);
        census.bytes = Some(shared.table.room.bytes() as u64);
        Ok(census)
    }

    async fn record(&self, key: ScopedKey) -> Result<Option<LiveRecord>, StoreError> {
        Ok(self.open()?.table.live(key))
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        let mut oldest = Oldest::new(query);
        let judge = |key, row: &super::row::Row| {
            if let Some(open) = query.judge(&row.live(key)) {
                oldest.add(open);
            }
        };
        self.open()?.table.for_each(judge).await;
        Ok(oldest.into_records())
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        let mut minutes = Minutes::new(from, until);
        let table = &self.open()?.table;
        table
            .for_each(|_, row| minutes.count(from_micros(row.created_at)))
            .await;
        Ok(minutes.into_minutes())
    }

    async fn erase_response(&self, key: ScopedKey) -> Result<bool, StoreError> {
        Ok(self.open()?.table.erase_response(&key))
    }
}
