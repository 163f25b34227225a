//! The PostgreSQL archive: in the store's own database, or in another.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::Archive;
use crate::{
    clock::before,
    inspect::InspectArchive,
    partition::{Month, Partition},
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
    store::{
        StoreError, StoreErrorKind, StoreIdentity,
        postgres::{
            Database, Failure, IntoArchive, Operation, PostgresArchiveBuilder, PostgresBuilder,
            Time, list, prepare, prepare_ahead, retire, run_with_room, status_code, tombstone,
        },
    },
};

mod inspect;

/// Tombstones in a PostgreSQL database, in one partition a calendar month (UTC).
/// Clones are handles to one archive.
///
/// A [`Sweeper`](crate::Sweeper) makes the partitions ahead of time, and drops
/// those that are past the retention; the role needs to own the table for that.
/// A partition that is missing nevertheless is made when a row needs it.
///
/// That of [`PostgresStore::archive`](crate::store::postgres::PostgresStore::archive)
/// lives in the store's database and is closed with it.
#[derive(Clone, Debug)]
pub struct PostgresArchive {
    db: Arc<Database>,
    store: Option<StoreIdentity>,
    retention: Option<Duration>,
}

impl PostgresArchive {
    /// Opens an archive in a database of its own,
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`: runs the migrations, and
    /// makes the partitions of the next two months. It keeps its rows for ever.
    ///
    /// # Errors
    ///
    /// As for [`PostgresStore::open`](crate::store::postgres::PostgresStore::open).
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::builder().url(url).open().await
    }

    /// An archive with other settings than those of [`PostgresArchive::open`].
    pub fn builder() -> PostgresArchiveBuilder {
        PostgresBuilder::new()
    }

    /// Lets a month be dropped when all its rows expired so long ago. Default:
    /// never.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// The partitions that there are, oldest first.
    ///
    /// # Errors
    ///
    /// Those of a database that cannot be reached or used.
    pub async fn partitions(&self) -> Result<Vec<Partition>, StoreError> {
        list(&self.db).await
    }

    /// Finishes what was accepted and closes the database, together with the
    /// store when it lives there. Later calls are
    /// [unavailable](StoreErrorKind::Unavailable).
    pub async fn close(&self) {
        self.db.close().await;
    }

    pub(crate) fn within_store(db: Arc<Database>) -> Self {
        Self {
            store: Some(db.identity()),
            db,
            retention: None,
        }
    }
}

impl PostgresBuilder<PostgresArchive> {
    /// Opens the archive. With migrations on, the partitions of the next two
    /// months are made too.
    ///
    /// # Errors
    ///
    /// As for [`PostgresArchive::open`].
    pub async fn open(self) -> Result<PostgresArchive, StoreError> {
        let db = Database::open(&self.settings).await?;
        if self.settings.migrate {
            match prepare_ahead(&db).await {
                Err(error) if error.kind() != StoreErrorKind::Setup => {
                    tracing::error!(error = %error.causes(), "the archive's partitions could not be made: a sweeper tries again");
                }
                prepared => prepared?,
            }
        }
        Ok(PostgresArchive {
            db,
            store: None,
            retention: None,
        })
    }
}

#[async_trait]
impl Archive for PostgresArchive {
    fn within(&self) -> Option<StoreIdentity> {
        self.store
    }

    fn retention(&self) -> Option<Duration> {
        self.retention
    }

    async fn lookup(
        &self,
        key: ScopedKey,
        not_before: Option<Timestamp>,
    ) -> Result<Option<Tombstone>, StoreError> {
        self.db.run(&Lookup { key, not_before }).await
    }

    async fn insert(&self, rows: &[Tombstone]) -> Result<(), StoreError> {
        let rows = merged(rows);
        match rows.len() {
            0 => self.db.check_open(Insert::WHAT),
            1..=ROWS_AT_ONCE => run_with_room(&self.db, &Insert(rows)).await,
            _ => run_with_room(&self.db, &InsertMany(Insert(rows))).await,
        }
    }

    async fn amend(
        &self,
        key: ScopedKey,
        status: u16,
        resource_id: Option<ResourceId>,
    ) -> Result<bool, StoreError> {
        let amend = Amend {
            key,
            status,
            resource_id,
        };
        self.db.run(&amend).await
    }

    async fn prune(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        match self.retention {
            Some(retention) => retire(&self.db, before(now, retention), limit).await,
            None => self.db.check_open("pruning the archive").map(|()| 0),
        }
    }

    async fn prepare(&self, from: Timestamp, until: Timestamp) -> Result<(), StoreError> {
        prepare(&self.db, from, until).await
    }

    fn inspect(&self) -> Option<&dyn InspectArchive> {
        Some(self)
    }
}

#[derive(Debug)]
struct Lookup {
    key: ScopedKey,
    not_before: Option<Timestamp>,
}

impl Operation for Lookup {
    const WHAT: &'static str = "looking up the archive";
    const REPEATABLE: bool = true;

    type Answer = Option<Tombstone>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Option<Tombstone>, Failure> {
        let key = self.key.to_string();
        let query = match self.not_before {
            Some(bound) => db.query(&db.sql.archive_lookup).bind(key).bind(Time(bound)),
            None => db.query(&db.sql.archive_lookup_all).bind(key),
        };
        let found = query.fetch_optional(conn).await?;
        Ok(found.map(|row| tombstone(self.key, &row)).transpose()?)
    }
}

/// Rows without a pair of one name, in one statement.
struct Insert<'r>(Vec<&'r Tombstone>);

/// One statement knows no row twice: of those that are named alike an outcome
/// wins over none, else the first stays, as it would one by one.
fn merged(rows: &[Tombstone]) -> Vec<&Tombstone> {
    let mut merged = BTreeMap::new();
    for row in rows {
        match merged.entry((row.key, row.expired_at)) {
            Entry::Vacant(vacant) => {
                vacant.insert(row);
            }
            Entry::Occupied(mut occupied) => {
                let there: &&Tombstone = occupied.get();
                if !there.has_outcome() && row.has_outcome() {
                    occupied.insert(row);
                }
            }
        }
    }
    merged.into_values().collect()
}

impl Operation for Insert<'_> {
    const WHAT: &'static str = "archiving";
    const REPEATABLE: bool = true;

    type Answer = ();

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<(), Failure> {
        insert(&self.0, db, conn).await
    }
}

impl IntoArchive for Insert<'_> {
    async fn months(&self, _: &Database) -> Result<BTreeSet<Month>, StoreError> {
        Ok(self.0.iter().map(|row| Month::of(row.expired_at)).collect())
    }
}

/// The same in several statements of one transaction.
struct InsertMany<'r>(Insert<'r>);

impl Operation for InsertMany<'_> {
    const WHAT: &'static str = Insert::WHAT;
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_INSERTION);

    type Answer = ();

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<(), Failure> {
        for rows in self.0.0.chunks(ROWS_AT_ONCE) {
            insert(rows, db, conn).await?;
        }
        Ok(())
    }
}

impl IntoArchive for InsertMany<'_> {
    async fn months(&self, db: &Database) -> Result<BTreeSet<Month>, StoreError> {
        self.0.months(db).await
    }
}

async fn insert(
    rows: &[&Tombstone],
    db: &Database,
    conn: &mut PgConnection,
) -> Result<(), Failure> {
    let keys: Vec<String> = rows.iter().map(|row| row.key.to_string()).collect();
    let fingerprints: Vec<&[u8]> = rows.iter().map(|row| row.fingerprint.as_bytes()).collect();
    let statuses = rows.iter().map(|row| status_code(row.status));
    let statuses: Vec<i16> = statuses.collect::<Result<_, _>>()?;
    let ids = rows.iter().map(|row| row.resource_id.as_ref());
    let ids: Vec<Option<&str>> = ids.map(|id| id.map(ResourceId::as_str)).collect();
    let created: Vec<Time> = rows.iter().map(|row| Time(row.created_at)).collect();
    let expired: Vec<Time> = rows.iter().map(|row| Time(row.expired_at)).collect();
    db.query(&db.sql.archive_insert)
        .bind(keys)
        .bind(fingerprints)
        .bind(statuses)
        .bind(ids)
        .bind(created)
        .bind(expired)
        .execute(conn)
        .await?;
    Ok(())
}

struct Amend {
    key: ScopedKey,
    status: u16,
    resource_id: Option<ResourceId>,
}

impl Operation for Amend {
    const WHAT: &'static str = "amending an archived row";
    const REPEATABLE: bool = false;

    type Answer = bool;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<bool, Failure> {
        let done = db
            .query(&db.sql.archive_amend)
            .bind(self.key.to_string())
            .bind(status_code(self.status)?)
            .bind(self.resource_id.as_ref().map(ResourceId::as_str))
            .execute(conn)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

/// Of one statement.
const ROWS_AT_ONCE: usize = 2_000;

/// A batch may be large, and the disk slow.
const LONGEST_INSERTION: Duration = Duration::from_secs(50);
