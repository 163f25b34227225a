//! What an operator asks of the Redis store. There is no index: all but a single
//! record is found by a look through all keys.

use std::{collections::HashSet, future::Future, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use redis::Value;
use tokio::time::timeout;

use super::{
    NOTICES, RedisStore,
    error::store_error,
    row::{self, Fields},
    sweep::{ASKED_AT_ONCE, Sought},
};
use crate::{
    inspect::{
        InspectStore, LiveRecord, LiveState, Minutes, Oldest, OpenQuery, OpenRecord, PerMinute,
        PublishedTtls, StoreCensus, count, uncounted,
    },
    scope::ScopedKey,
    store::{Store as _, StoreError, StoreErrorKind},
};

#[async_trait]
impl InspectStore for RedisStore {
    /// Of what was left in progress: completed records leave by themselves.
    async fn backlog(&self) -> Result<u64, StoreError> {
        let mut expired = 0;
        let looked = self.for_each(Sought::Swept, |now, record| {
            expired += u64::from(record.is_expired(now));
        });
        in_time("counting expired records", looked).await?;
        Ok(expired)
    }

    /// Without the completed records that have expired, which wait for no sweep:
    /// Redis drops them within a minute.
    async fn census(&self) -> Result<StoreCensus, StoreError> {
        let mut census = uncounted(self.now().await?);
        let leaves = self.shared.clock.is_none();
        let looked = self.for_each(Sought::All, |now, record| {
            let is_completed = matches!(record.state, LiveState::Completed { .. });
            if !(leaves && is_completed && record.is_expired(now)) {
                count(&record, now, &mut census);
            }
        });
        in_time("counting records", looked).await?;
        census.ttls = self.published_ttls().await?;
        Ok(census)
    }

    async fn record(&self, key: ScopedKey) -> Result<Option<LiveRecord>, StoreError> {
        let shared = &self.shared;
        match shared
            .call(&shared.scripts.inspect, key, |call| call)
            .await?
        {
            Value::Nil => Ok(None),
            found => row::live(key, found).map(|(_, record)| Some(record)),
        }
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        let mut oldest = Oldest::new(query);
        let looked = self.for_each(Sought::All, |_, record| {
            if let Some(open) = query.judge(&record) {
                oldest.add(open);
            }
        });
        in_time("listing what was in flight", looked).await?;
        Ok(oldest.into_records())
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        let mut minutes = Minutes::new(from, until);
        let looked = self.for_each(Sought::All, |_, record| minutes.count(record.created_at));
        in_time("counting claims by the minute", looked).await?;
        Ok(minutes.into_minutes())
    }

    /// What is erased is gone from the memory of the master at once. Copies of
    /// it are left where this cannot reach: in the append-only file until that
    /// is rewritten, in snapshots, on replicas as far as they are behind, and in
    /// your backups.
    async fn erase_response(&self, key: ScopedKey) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let erased = shared.call(&shared.scripts.erase, key, |call| call);
        Ok(erased.await? == Value::Int(1))
    }
}

impl RedisStore {
    /// Shows every record that is sought, once, with the time of its server.
    async fn for_each(
        &self,
        sought: Sought,
        mut at: impl FnMut(Timestamp, LiveRecord) + Send,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        let what = shared.scripts.inspect.what;
        shared.check_open(what)?;
        let masters = shared.link.ask_masters(redis::cmd("DBSIZE")).await;
        let masters = masters.map_err(|error| store_error(what, error))?;
        // A look may come upon a key twice, and a slot may move on meanwhile.
        let mut seen = HashSet::new();
        for (master, _) in masters {
            let mut cursor = 0;
            loop {
                let (next, keys) = self.page(&master, cursor, sought).await?;
                let new = keys.into_iter().filter(|key| seen.insert(*key));
                let records: Vec<_> = new.map(|key| self.readable(key)).collect();
                let mut records = stream::iter(records).buffer_unordered(ASKED_AT_ONCE);
                while let Some(record) = records.next().await {
                    if let Some((now, record)) = record? {
                        at(now, record);
                    }
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        Ok(())
    }

    /// The record of a key, if there is one. One that cannot be read must not
    /// keep an operator from the others.
    async fn readable(
        &self,
        key: ScopedKey,
    ) -> Result<Option<(Timestamp, LiveRecord)>, StoreError> {
        let shared = &self.shared;
        let asked = shared.call(&shared.scripts.inspect, key, |call| call).await;
        let read = match asked {
            Ok(Value::Nil) => return Ok(None),
            Ok(found) => row::live(key, found),
            Err(error) => Err(error),
        };
        match read {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::error!(scoped_key = %key, error = %error.causes(), "a record cannot be read: it is left out");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn published_ttls(&self) -> Result<Option<PublishedTtls>, StoreError> {
        let shared = &self.shared;
        let ttls = shared.call_named(&shared.scripts.ttls, NOTICES, |call| call);
        match ttls.await? {
            Value::Nil => Ok(None),
            Value::Array(both) => {
                let mut both = Fields(both.into_iter());
                Ok(Some(PublishedTtls {
                    smallest: Duration::from_micros(both.number("smallest")?),
                    largest: Duration::from_micros(both.number("largest")?),
                }))
            }
            _ => Err(StoreError::corrupt("the TTLs in force")),
        }
    }
}

/// A look through many keys comes to its end, or is given up.
async fn in_time<T>(
    what: &'static str,
    look: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let looked = timeout(LONGEST_LOOK, look).await;
    looked.unwrap_or_else(|elapsed| Err(StoreError::unavailable(what, elapsed)))
}

const LONGEST_LOOK: Duration = Duration::from_secs(50);
