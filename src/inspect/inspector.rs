//! Asks the live store and the archive, and joins what they say.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use http::Method;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    ArchiveCensus, InspectArchive, InspectStore, LiveRecord, OpenQuery, OpenRecord, PerMinute,
    StoreCensus, gather::begin_of_minute,
};
use crate::{
    archive::Archive,
    clock::{after, before},
    key::IdempotencyKey,
    record::Tombstone,
    scope::{Principal, Scope, ScopedKey},
    store::{Keeps, Store, StoreError},
};

/// Asks a live store and its archive, for the people who carry the pager.
///
/// ```
/// use axum_idempotency::{inspect::Inspector, archive::MemoryArchive, store::MemoryStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let inspector = Inspector::new(MemoryStore::new()).archive(MemoryArchive::new());
/// let overview = inspector.overview().await?;
/// println!("{:?} records wait for a sweep", overview.store.map(|store| store.expired));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Inspector {
    store: Arc<dyn Store>,
    archive: Option<Arc<dyn Archive>>,
}

impl Inspector {
    /// Asks `store`.
    pub fn new(store: impl Store) -> Self {
        Self::new_dyn(Arc::new(store))
    }

    /// The same for a store that is chosen at run time.
    pub fn new_dyn(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            archive: None,
        }
    }

    /// Asks `archive` too.
    pub fn archive(self, archive: impl Archive) -> Self {
        self.archive_dyn(Arc::new(archive))
    }

    /// The same for an archive that is chosen at run time.
    pub fn archive_dyn(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self
    }

    /// The store's clock, by which every other answer is to be read.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    /// Counts and sizes.
    ///
    /// # Errors
    ///
    /// The first of the store's and the archive's.
    pub async fn overview(&self) -> Result<Overview, StoreError> {
        let store = match self.inspected_store() {
            Some(store) => Some(store.census().await?),
            None => None,
        };
        let archive = match self.inspected_archive() {
            Some(archive) => Some(archive.census().await?),
            None => None,
        };
        Ok(Overview { store, archive })
    }

    /// What happened to a key: its live record, and what is archived of it.
    ///
    /// # Errors
    ///
    /// The first of the store's and the archive's.
    pub async fn key(&self, key: ScopedKey) -> Result<KeyHistory, StoreError> {
        // In this order a sweep in between shows a row twice, and never not at
        // all.
        let live = match self.inspected_store() {
            Some(store) => store.record(key).await?,
            None => None,
        };
        let archived = match self.inspected_archive() {
            Some(archive) => archive.history(key).await?,
            None => Vec::new(),
        };
        let now = self.store.now().await?;
        let is_archived = |live: &LiveRecord| {
            let expired_at = live.expires_at;
            archived.iter().any(|row| row.expired_at == expired_at)
        };
        // Beside Redis an outcome is archived as it is recorded: until it has
        // expired, what the live record tells is more.
        let live = live.filter(|live| !live.is_expired(now) || !is_archived(live));
        let mut archived = archived;
        if let Some(live) = &live {
            archived.retain(|row| row.expired_at != live.expires_at);
        }
        Ok(KeyHistory {
            now,
            live,
            archived,
        })
    }

    /// How long one point lookup takes now, as each fresh key that has to be
    /// looked up in the archive waits for: of a key that is not there, in all that
    /// the archive has. `None` without an archive.
    ///
    /// # Errors
    ///
    /// Those of the archive.
    pub async fn time_a_lookup(&self) -> Result<Option<Duration>, StoreError> {
        let Some(archive) = &self.archive else {
            return Ok(None);
        };
        let nobodys = ScopedKey::derive(
            None,
            Scope::Principal,
            &Principal::constant("a lookup that is timed"),
            (&Method::GET, "/"),
            &IdempotencyKey::made(Uuid::new_v4().to_string()),
        );
        let begun = Instant::now();
        archive.lookup(nobodys, None).await?;
        Ok(Some(begun.elapsed()))
    }

    /// What was in flight at a moment: live records and archived ones, the
    /// oldest first.
    ///
    /// # Errors
    ///
    /// The first of the store's and the archive's.
    pub async fn in_flight(&self, query: &OpenQuery) -> Result<InFlightThen, StoreError> {
        let asked = OpenQuery {
            limit: query.limit.saturating_add(1),
            ..*query
        };
        let mut by_name = BTreeMap::new();
        if let Some(store) = self.inspected_store() {
            for record in store.open_at(&asked).await? {
                by_name.insert((record.created_at, record.key, record.expires_at), record);
            }
        }
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let mut is_truncated = false;
        if let Some(archive) = self.inspected_archive() {
            let now = self.store.now().await?;
            let archived = archive.open_at(&asked).await?;
            is_truncated = archived.len() > limit;
            for record in archived {
                let is_told = record.expires_at > now && self.tells_more_of(&record).await?;
                if !is_told {
                    by_name.insert((record.created_at, record.key, record.expires_at), record);
                }
            }
        }
        is_truncated |= by_name.len() > limit;
        Ok(InFlightThen {
            records: by_name.into_values().take(limit).collect(),
            is_truncated,
        })
    }

    /// Whether the live record of an archived row is there, which tells more: beside
    /// Redis an outcome is archived as it is recorded, while its window is open.
    async fn tells_more_of(&self, archived: &OpenRecord) -> Result<bool, StoreError> {
        let Some(store) = self.inspected_store() else {
            return Ok(false);
        };
        let live = store.record(archived.key).await?;
        Ok(live.is_some_and(|live| live.expires_at == archived.expires_at))
    }

    /// How many archived rows expired within the last `span`. `None` without an
    /// archive, or for one that cannot tell.
    ///
    /// # Errors
    ///
    /// The first of the store's and the archive's.
    pub async fn expired_within(&self, span: Duration) -> Result<Option<u64>, StoreError> {
        let Some(archive) = self.inspected_archive() else {
            return Ok(None);
        };
        let now = self.store.now().await?;
        let since = archive.expired_since(before(now, span)).await?;
        // Beside Redis there are rows whose window is still open.
        let still_to_come = archive.expired_since(now).await?;
        Ok(Some(since.saturating_sub(still_to_come)))
    }

    /// How many keys were first claimed in each minute from `from` until before
    /// `until`, the oldest minute first, minutes of none among them. Over a store
    /// like Redis, whose outcomes are archived as they are recorded, those without
    /// an outcome are not counted.
    ///
    /// # Errors
    ///
    /// The first of the store's and the archive's.
    pub async fn keys_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        let mut keys = BTreeMap::new();
        let mut minute = begin_of_minute(from);
        while minute < until {
            keys.insert(minute, 0);
            minute = after(minute, Duration::from_mins(1));
        }
        let mut counted = Vec::new();
        // Where outcomes are archived as they are recorded, the archive has them all.
        let is_archived_first =
            self.store.keeps() != Keeps::UntilSwept && self.inspected_archive().is_some();
        if let Some(store) = self.inspected_store().filter(|_| !is_archived_first) {
            counted.extend(store.claimed_per_minute(from, until).await?);
        }
        if let Some(archive) = self.inspected_archive() {
            counted.extend(archive.claimed_per_minute(from, until).await?);
        }
        for some in counted {
            *keys.entry(begin_of_minute(some.minute)).or_insert(0) += some.keys;
        }
        let keys = keys.into_iter();
        Ok(keys
            .map(|(minute, keys)| PerMinute { minute, keys })
            .collect())
    }

    /// The store's own view, where it has one.
    pub fn inspected_store(&self) -> Option<&dyn InspectStore> {
        self.store.inspect()
    }

    /// The archive's own view, where there is an archive and it has one.
    pub fn inspected_archive(&self) -> Option<&dyn InspectArchive> {
        self.archive.as_deref().and_then(Archive::inspect)
    }
}

/// Counts and sizes of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// `None` for a store that cannot tell.
    pub store: Option<StoreCensus>,
    /// `None` without an archive, or for one that cannot tell.
    pub archive: Option<ArchiveCensus>,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHistory {
    /// The store's clock as it was asked.
    pub now: Timestamp,
    /// Its live record.
    pub live: Option<LiveRecord>,
    /// What is archived of it, the oldest first.
    pub archived: Vec<Tombstone>,
}

/// What was in flight at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightThen {
    /// The records, the oldest first.
    pub records: Vec<OpenRecord>,
    /// Whether there are more than were asked for.
    pub is_truncated: bool,
}
