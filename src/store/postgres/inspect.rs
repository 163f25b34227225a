//! What an operator asks of the PostgreSQL store.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    PostgresStore,
    database::{Database, Operation},
    error::Failure,
    row, schema,
    time::Time,
};
use crate::{
    clock::up_to_micros,
    inspect::{
        InspectStore, LiveRecord, OpenQuery, OpenRecord, PerMinute, PublishedTtls, StoreCensus,
        judged,
    },
    scope::ScopedKey,
    store::StoreError,
};

#[async_trait]
impl InspectStore for PostgresStore {
    async fn backlog(&self) -> Result<u64, StoreError> {
        self.db.run(&Backlog).await
    }

    async fn census(&self) -> Result<StoreCensus, StoreError> {
        self.db.run(&Census).await
    }

    async fn record(&self, key: ScopedKey) -> Result<Option<LiveRecord>, StoreError> {
        self.db.run(&One(key)).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        self.db.run(&OpenAt(*query)).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        self.db.run(&Minutes::of(Rows::Live, from, until)).await
    }

    /// What is erased no statement reads any more. Copies of it are left where
    /// this cannot reach: in the row's old version until it is vacuumed and
    /// written over, in the write-ahead log, on replicas as far as they are
    /// behind, and in your backups.
    async fn erase_response(&self, key: ScopedKey) -> Result<bool, StoreError> {
        self.db.run(&Erase(key)).await
    }
}

struct Backlog;

impl Operation for Backlog {
    const WHAT: &'static str = "counting expired records";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_QUESTION);

    type Answer = u64;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<u64, Failure> {
        let query = Database::query_once(&db.sql.inspect_backlog).bind(db.test_time());
        Ok(row::count(&query.fetch_one(conn).await?, "count")?)
    }
}

struct Census;

impl Operation for Census {
    const WHAT: &'static str = "counting records";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_QUESTION);

    type Answer = StoreCensus;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<StoreCensus, Failure> {
        read_whole_tables(db, conn).await?;
        let counts = Database::query_once(&db.sql.inspect_counts)
            .bind(db.test_time())
            .fetch_one(&mut *conn)
            .await?;
        let ttls = Database::query_once(&db.sql.inspect_ttls)
            .bind(db.test_time())
            .fetch_one(&mut *conn)
            .await?;
        let bytes: i64 = Database::query_once(&db.sql.inspect_bytes)
            .bind(schema::qualified(db.schema(), "idempotency_keys"))
            .fetch_one(conn)
            .await?
            .try_get(0)?;
        Ok(StoreCensus {
            now: row::time(&counts, "now")?,
            running: row::count(&counts, "running")?,
            lapsed: row::count(&counts, "lapsed")?,
            completed: row::count(&counts, "completed")?,
            expired: row::count(&counts, "expired")?,
            oldest_expired: row::optional_time(&counts, "oldest_expired")?,
            bytes: Some(bytes.unsigned_abs()),
            ttls: published(&ttls)?,
        })
    }
}

/// The store's connections are set up to read by indexes alone, which is slower
/// for whoever wants every row.
pub(crate) async fn read_whole_tables(
    db: &Database,
    conn: &mut PgConnection,
) -> Result<(), Failure> {
    let settings = Database::query_once(&db.sql.inspect_settings);
    settings.execute(conn).await?;
    Ok(())
}

fn published(row: &PgRow) -> Result<Option<PublishedTtls>, Failure> {
    let span = |micros: i64| Duration::from_micros(micros.unsigned_abs());
    let smallest: Option<i64> = row.try_get("smallest")?;
    let largest: Option<i64> = row.try_get("largest")?;
    let both = smallest.zip(largest);
    Ok(both.map(|(smallest, largest)| PublishedTtls {
        smallest: span(smallest),
        largest: span(largest),
    }))
}

struct One(ScopedKey);

impl Operation for One {
    const WHAT: &'static str = "reading a record for an operator";
    const REPEATABLE: bool = true;

    type Answer = Option<LiveRecord>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Option<LiveRecord>, Failure> {
        let query = Database::query_once(&db.sql.inspect_record).bind(self.0.to_string());
        let found = query.fetch_optional(conn).await?;
        Ok(found.as_ref().map(row::live).transpose()?)
    }
}

struct OpenAt(OpenQuery);

impl Operation for OpenAt {
    const WHAT: &'static str = "listing what was in flight";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_QUESTION);

    type Answer = Vec<OpenRecord>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<OpenRecord>, Failure> {
        let Self(asked) = self;
        read_whole_tables(db, conn).await?;
        let rows = Database::query_once(&db.sql.inspect_open_at)
            .bind(Time(asked.at))
            .bind(Time(asked.claimed_from()))
            .bind(i64::from(asked.limit))
            .fetch_all(conn)
            .await?;
        let records = rows.iter().map(row::live);
        Ok(judged(records, |record| asked.judge(record)))
    }
}

/// Counts claims by the minute.
pub(crate) struct Minutes {
    rows: Rows,
    from: Timestamp,
    until: Timestamp,
}

/// Of which table.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    Live,
    Archived,
}

impl Minutes {
    pub(crate) fn of(rows: Rows, from: Timestamp, until: Timestamp) -> Self {
        let (from, until) = (up_to_micros(from), up_to_micros(until));
        Self { rows, from, until }
    }
}

impl Operation for Minutes {
    const WHAT: &'static str = "counting claims by the minute";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_QUESTION);

    type Answer = Vec<PerMinute>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Vec<PerMinute>, Failure> {
        read_whole_tables(db, conn).await?;
        let sql = match self.rows {
            Rows::Live => &db.sql.inspect_minutes,
            Rows::Archived => &db.sql.inspect_archive_minutes,
        };
        let rows = Database::query_once(sql)
            .bind(Time(self.from))
            .bind(Time(self.until))
            .fetch_all(conn)
            .await?;
        per_minute(&rows)
    }
}

/// Minutes since 1970, with what was counted in each.
fn per_minute(rows: &[PgRow]) -> Result<Vec<PerMinute>, Failure> {
    let minutes = rows.iter().map(|found| {
        let minute: i64 = row::column(found, "minute")?;
        let begin = Timestamp::from_second(minute.saturating_mul(60));
        Ok(PerMinute {
            minute: begin.map_err(|_| StoreError::corrupt("created_at"))?,
            keys: row::count(found, "keys")?,
        })
    });
    Ok(minutes.collect::<Result<_, StoreError>>()?)
}

struct Erase(ScopedKey);

impl Operation for Erase {
    const WHAT: &'static str = "erasing an answer";
    const REPEATABLE: bool = false;

    type Answer = bool;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<bool, Failure> {
        let erase = Database::query_once(&db.sql.inspect_erase).bind(self.0.to_string());
        let done = erase.execute(conn).await?;
        Ok(done.rows_affected() == 1)
    }
}

/// A table may be large, and the disk slow.
pub(crate) const LONGEST_QUESTION: Duration = Duration::from_secs(50);
