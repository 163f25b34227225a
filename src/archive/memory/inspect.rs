//! What an operator asks of the memory archive.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::task::yield_now;

use super::MemoryArchive;
use crate::{
    inspect::{
        ArchiveCensus, ArchiveGauges, InspectArchive, Minutes, Oldest, OpenQuery, OpenRecord,
        PerMinute, month_of,
    },
    record::Tombstone,
    scope::ScopedKey,
    store::StoreError,
};

impl MemoryArchive {
    /// Shows every row, so many under one lock that a lookup hardly waits.
    async fn for_each(&self, mut at: impl FnMut(&Tombstone)) {
        let mut last = None;
        loop {
            let from = last.map_or(Unbounded, Excluded);
            let looked_at = {
                let rows = self.rows();
                let some = rows.by_name.range((from, Unbounded)).take(LOOK);
                some.fold(0, |looked_at, (name, row)| {
                    at(row);
                    last = Some(*name);
                    looked_at + 1
                })
            };
            if looked_at < LOOK {
                return;
            }
            yield_now().await;
        }
    }
}

#[async_trait]
impl InspectArchive for MemoryArchive {
    async fn gauges(&self) -> Result<ArchiveGauges, StoreError> {
        Ok(ArchiveGauges {
            rows: self.rows().by_name.len() as u64,
            bytes: None,
            newest_partition_until: None,
        })
    }

    async fn census(&self) -> Result<ArchiveCensus, StoreError> {
        let mut months = BTreeMap::new();
        self.for_each(|row| {
            let month = month_of(row.expired_at, 0);
            months.entry(month.from).or_insert(month).rows += 1;
        })
        .await;
        let months: Vec<_> = months.into_values().collect();
        Ok(ArchiveCensus {
            rows: months.iter().map(|month| month.rows).sum(),
            bytes: None,
            months,
            is_partitioned: false,
            columns: Vec::new(),
        })
    }

    async fn history(&self, key: ScopedKey) -> Result<Vec<Tombstone>, StoreError> {
        let rows = self.rows();
        let of_key = (key, Timestamp::MIN)..=(key, Timestamp::MAX);
        Ok(rows
            .by_name
            .range(of_key)
            .map(|(_, row)| row.clone())
            .collect())
    }

    async fn newest(&self) -> Result<Option<Tombstone>, StoreError> {
        let rows = self.rows();
        let newest = rows.by_expiry.last();
        let row = newest.and_then(|&(expired_at, key)| rows.by_name.get(&(key, expired_at)));
        Ok(row.cloned())
    }

    async fn expired_since(&self, from: Timestamp) -> Result<u64, StoreError> {
        let rows = self.rows();
        let newest_first = rows.by_expiry.iter().rev();
        let since = newest_first.take_while(|(expired_at, _)| *expired_at >= from);
        Ok(since.count() as u64)
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        let mut oldest = Oldest::new(query);
        self.for_each(|row| {
            if let Some(open) = query.judge_archived(row) {
                oldest.add(open);
            }
        })
        .await;
        Ok(oldest.into_records())
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        let mut minutes = Minutes::new(from, until);
        self.for_each(|row| minutes.count(row.created_at)).await;
        Ok(minutes.into_minutes())
    }
}

/// How many rows are looked at before the lock is let go of.
const LOOK: usize = 256;
