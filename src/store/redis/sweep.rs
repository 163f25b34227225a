//! The expired records, found by looking through all keys.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use redis::{Cmd, Value, from_redis_value};

use super::{RedisStore, error::store_error, link::Master, row};
use crate::{
    record::ExpiredRecord,
    scope::ScopedKey,
    store::{StoreError, StoreErrorKind},
};

/// Sorts by age: the time of expiry, then the key.
type Oldest = BTreeMap<(Timestamp, ScopedKey), ExpiredRecord>;

impl RedisStore {
    /// Those that were left in progress: what was completed Redis drops by
    /// itself. Under a test's clock, by which nothing is dropped, both.
    pub(super) async fn oldest_expired(
        &self,
        limit: usize,
    ) -> Result<Vec<ExpiredRecord>, StoreError> {
        let mut oldest = Oldest::new();
        let dbsize = redis::cmd("DBSIZE");
        let masters = self.shared.link.ask_masters(dbsize).await;
        let masters =
            masters.map_err(|error| store_error(self.shared.scripts.expired.what, error))?;
        for (master, _) in masters {
            let mut cursor = 0;
            loop {
                let (next, keys) = self.page(&master, cursor, Sought::Swept).await?;
                self.add_expired(&keys, &mut oldest).await?;
                while oldest.len() > limit {
                    oldest.pop_last();
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        Ok(oldest.into_values().collect())
    }

    /// Where a look through the keys of a server goes on, and those that it saw;
    /// the same one more than once where the server makes room meanwhile.
    pub(super) async fn page(
        &self,
        master: &Master,
        cursor: u64,
        sought: Sought,
    ) -> Result<(u64, Vec<ScopedKey>), StoreError> {
        let page = self
            .shared
            .link
            .ask(master, self.scan(cursor, sought))
            .await;
        let page = page.and_then(|page| Ok(from_redis_value::<(u64, Vec<String>)>(page)?));
        let (next, names) =
            page.map_err(|error| store_error(self.shared.scripts.expired.what, error))?;
        let keys = names.iter().filter_map(|name| self.key_of(name));
        Ok((next, keys.collect()))
    }

    fn scan(&self, cursor: u64, sought: Sought) -> Cmd {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(format!(
                "{}{}*",
                literally(&self.shared.prefix),
                ScopedKey::PREFIX
            ))
            .arg("COUNT")
            .arg(LOOKED_AT_ONCE);
        if sought == Sought::Swept && self.shared.clock.is_none() {
            scan.arg("TYPE").arg("hash");
        }
        scan
    }

    async fn add_expired(&self, keys: &[ScopedKey], to: &mut Oldest) -> Result<(), StoreError> {
        let records: Vec<_> = keys.iter().map(|key| self.expired_record(*key)).collect();
        let mut records = stream::iter(records).buffer_unordered(ASKED_AT_ONCE);
        while let Some(record) = records.next().await {
            if let Some(record) = record? {
                to.insert((record.tombstone.expired_at, record.tombstone.key), record);
            }
        }
        Ok(())
    }

    /// One that cannot be read must not keep the others from being swept.
    async fn expired_record(&self, key: ScopedKey) -> Result<Option<ExpiredRecord>, StoreError> {
        let shared = &self.shared;
        let asked = shared.call(&shared.scripts.expired, key, |call| call).await;
        let read = match asked {
            Ok(Value::Nil) => return Ok(None),
            Ok(found) => row::record(key, found),
            Err(error) => Err(error),
        };
        match read {
            Ok(record) => Ok(Some(row::expired(&record))),
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::error!(scoped_key = %key, error = %error.causes(), "a record cannot be swept");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Which keys are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    /// Those that a sweep may move.
    Swept,
    /// Those of all records.
    All,
}

/// A text as a pattern that matches nothing else.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// How many keys a server looks at in one step, in which it serves nobody else:
/// about a millisecond.
const LOOKED_AT_ONCE: u32 = 1_000;

/// How many scripts are under way at a time.
pub(super) const ASKED_AT_ONCE: usize = 64;
