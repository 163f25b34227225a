//! What those gather their answers in that look at their records one by one.

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan as _, civil::DateTime, tz::Offset};

use super::{
    LiveRecord, LiveState, OpenQuery, OpenRecord, PartitionCensus, PerMinute, StoreCensus,
};
use crate::scope::ScopedKey;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::store::StoreError;

/// The oldest of the records that were open, as many as were asked for.
#[derive(Debug)]
pub(crate) struct Oldest {
    limit: usize,
    records: BTreeMap<(Timestamp, ScopedKey, Timestamp), OpenRecord>,
}

impl Oldest {
    pub(crate) fn new(query: &OpenQuery) -> Self {
        Self {
            limit: usize::try_from(query.limit).unwrap_or(usize::MAX),
            records: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, record: OpenRecord) {
        let name = (record.created_at, record.key, record.expires_at);
        self.records.insert(name, record);
        if self.records.len() > self.limit {
            self.records.pop_last();
        }
    }

    pub(crate) fn into_records(self) -> Vec<OpenRecord> {
        self.records.into_values().collect()
    }
}

/// How many keys were claimed in each minute of a span.
#[derive(Debug)]
pub(crate) struct Minutes {
    from: Timestamp,
    until: Timestamp,
    keys: BTreeMap<Timestamp, u64>,
}

impl Minutes {
    pub(crate) fn new(from: Timestamp, until: Timestamp) -> Self {
        Self {
            from,
            until,
            keys: BTreeMap::new(),
        }
    }

    pub(crate) fn count(&mut self, created_at: Timestamp) {
        if self.from <= created_at && created_at < self.until {
            *self.keys.entry(begin_of_minute(created_at)).or_insert(0) += 1;
        }
    }

    pub(crate) fn into_minutes(self) -> Vec<PerMinute> {
        let keys = self.keys.into_iter();
        keys.map(|(minute, keys)| PerMinute { minute, keys })
            .collect()
    }
}

pub(super) fn begin_of_minute(time: Timestamp) -> Timestamp {
    let second = time.as_second();
    Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(time)
}

/// What there is in a store of which nothing has been counted yet.
pub(crate) fn uncounted(now: Timestamp) -> StoreCensus {
    StoreCensus {
        now,
        running: 0,
        lapsed: 0,
        completed: 0,
        expired: 0,
        oldest_expired: None,
        bytes: None,
        ttls: None,
    }
}

/// Counts a record by its state at `now`.
pub(crate) fn count(record: &LiveRecord, now: Timestamp, census: &mut StoreCensus) {
    let expires_at = record.expires_at;
    if record.is_expired(now) {
        census.expired += 1;
        let oldest = census.oldest_expired.get_or_insert(expires_at);
        *oldest = expires_at.min(*oldest);
        return;
    }
    match record.state {
        LiveState::InProgress { .. } if record.has_live_lease(now) => census.running += 1,
        LiveState::InProgress { .. } => census.lapsed += 1,
        LiveState::Completed { .. } => census.completed += 1,
    }
}

/// The calendar month (UTC) of a time, with so many rows.
pub(crate) fn month_of(time: Timestamp, rows: u64) -> PartitionCensus {
    let first = Offset::UTC.to_datetime(time).date().first_of_month();
    let at = |begin: DateTime| Offset::UTC.to_timestamp(begin).ok();
    let next = first.checked_add(1.month()).ok();
    PartitionCensus {
        name: format!("{:04}-{:02}", first.year(), first.month()),
        from: at(first.into()).unwrap_or(Timestamp::MIN),
        // The calendar ends in its last month.
        until: next
            .and_then(|next| at(next.into()))
            .unwrap_or(Timestamp::MAX),
        rows,
        bytes: None,
    }
}

/// What the rule lets pass of what was read. A row that cannot be read must not
/// keep an operator from the others.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn judged<T>(
    rows: impl Iterator<Item = Result<T, StoreError>>,
    judge: impl Fn(&T) -> Option<OpenRecord>,
) -> Vec<OpenRecord> {
    let readable = rows.filter_map(|row| {
        let told = |error: &StoreError| {
            tracing::error!(error = %error.causes(), "a row cannot be read: it is left out");
        };
        row.inspect_err(told).ok()
    });
    readable.filter_map(|row| judge(&row)).collect()
}
