//! What an operator asks of the SQLite store.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection, query, query_scalar, sqlite::SqliteRow};

use super::{
    SqliteStore,
    error::{Failure, is_missing_table},
    row,
    writer::Operation,
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
impl InspectStore for SqliteStore {
    async fn backlog(&self) -> Result<u64, StoreError> {
        self.db.inspect(Backlog).await
    }

    async fn census(&self) -> Result<StoreCensus, StoreError> {
        self.db.inspect(Census).await
    }

    async fn record(&self, key: ScopedKey) -> Result<Option<LiveRecord>, StoreError> {
        self.db.read(One(key)).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        self.db.inspect(OpenAt(*query)).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        self.db.inspect(Minutes::of(Rows::Live, from, until)).await
    }

    /// What is erased is overwritten in the database. Copies of it are left
    /// where this cannot reach: in the write-ahead log until that is
    /// checkpointed and written over (closing the store does both), on pages
    /// that it was moved from before, until they are used again or the database
    /// is vacuumed, and in your backups.
    async fn erase_response(&self, key: ScopedKey) -> Result<bool, StoreError> {
        self.db.write(Erase(key)).await
    }
}

#[derive(Debug)]
struct Backlog;

impl Operation for Backlog {
    const WHAT: &'static str = "counting expired records";
    type Answer = u64;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<u64, Failure> {
        let expired: i64 = query_scalar(include_str!("sql/inspect_backlog.sql"))
            .bind(now.as_microsecond())
            .fetch_one(conn)
            .await?;
        Ok(expired.unsigned_abs())
    }
}

#[derive(Debug)]
struct Census;

impl Operation for Census {
    const WHAT: &'static str = "counting records";
    type Answer = StoreCensus;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        now: Timestamp,
    ) -> Result<StoreCensus, Failure> {
        let counts = query(include_str!("sql/inspect_counts.sql"))
            .bind(now.as_microsecond())
            .fetch_one(&mut *conn)
            .await?;
        let ttls = query(include_str!("sql/inspect_ttls.sql"))
            .bind(now.as_microsecond())
            .fetch_one(&mut *conn)
            .await?;
        Ok(StoreCensus {
            now,
            running: row::count(&counts, "running")?,
            lapsed: row::count(&counts, "lapsed")?,
            completed: row::count(&counts, "completed")?,
            expired: row::count(&counts, "expired")?,
            oldest_expired: row::optional_time(&counts, "oldest_expired")?,
            bytes: bytes_of("idempotency_keys", conn).await?,
            ttls: published(&ttls)?,
        })
    }
}

/// What a table takes up with its indexes; `None` where this SQLite was built
/// without the means to tell.
pub(crate) async fn bytes_of(
    table: &'static str,
    conn: &mut SqliteConnection,
) -> Result<Option<u64>, Failure> {
    let bytes = query_scalar::<_, i64>(include_str!("sql/inspect_bytes.sql"))
        .bind(table)
        .fetch_one(conn)
        .await;
    match bytes {
        Ok(bytes) => Ok(Some(bytes.unsigned_abs())),
        Err(error) if is_missing_table(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn published(row: &SqliteRow) -> Result<Option<PublishedTtls>, Failure> {
    let span = |micros: i64| Duration::from_micros(micros.unsigned_abs());
    let smallest: Option<i64> = row.try_get("smallest")?;
    let largest: Option<i64> = row.try_get("largest")?;
    let both = smallest.zip(largest);
    Ok(both.map(|(smallest, largest)| PublishedTtls {
        smallest: span(smallest),
        largest: span(largest),
    }))
}

#[derive(Debug)]
struct One(ScopedKey);

impl Operation for One {
    const WHAT: &'static str = "reading a record for an operator";
    type Answer = Option<LiveRecord>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Option<LiveRecord>, Failure> {
        let found = query(include_str!("sql/inspect_record.sql"))
            .bind(self.0.to_string())
            .fetch_optional(conn)
            .await?;
        Ok(found.as_ref().map(row::live).transpose()?)
    }
}

#[derive(Debug)]
struct OpenAt(OpenQuery);

impl Operation for OpenAt {
    const WHAT: &'static str = "listing what was in flight";
    type Answer = Vec<OpenRecord>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Vec<OpenRecord>, Failure> {
        let Self(asked) = self;
        let rows = query(include_str!("sql/inspect_open_at.sql"))
            .bind(asked.at.as_microsecond())
            .bind(asked.claimed_from().as_microsecond())
            .bind(asked.limit)
            .fetch_all(conn)
            .await?;
        let records = rows.iter().map(row::live);
        Ok(judged(records, |record| asked.judge(record)))
    }
}

/// Counts claims by the minute.
#[derive(Debug)]
pub(crate) struct Minutes {
    rows: Rows,
    from: Timestamp,
    until: Timestamp,
}

/// Of which table.
#[derive(Clone, Copy, Debug)]
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
    type Answer = Vec<PerMinute>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Vec<PerMinute>, Failure> {
        let sql = match self.rows {
            Rows::Live => include_str!("sql/inspect_minutes.sql"),
            Rows::Archived => include_str!("sql/inspect_archive_minutes.sql"),
        };
        let rows = query(sql)
            .bind(self.from.as_microsecond())
            .bind(self.until.as_microsecond())
            .fetch_all(conn)
            .await?;
        per_minute(&rows)
    }
}

fn per_minute(rows: &[SqliteRow]) -> Result<Vec<PerMinute>, Failure> {
    let minutes = rows.iter().map(|found| {
        Ok(PerMinute {
            minute: row::time(found, "minute")?,
            keys: row::count(found, "keys")?,
        })
    });
    minutes.collect()
}

#[derive(Debug)]
struct Erase(ScopedKey);

impl Operation for Erase {
    const WHAT: &'static str = "erasing an answer";
    type Answer = bool;

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<bool, Failure> {
        // SQLite gives pages and parts of them back as they are, unless it is
        // told to write over them.
        let before: i64 = query_scalar(include_str!("sql/inspect_secure_delete.sql"))
            .fetch_one(&mut *conn)
            .await?;
        query(include_str!("sql/inspect_secure_delete_on.sql"))
            .execute(&mut *conn)
            .await?;
        let erased = query(include_str!("sql/inspect_erase.sql"))
            .bind(self.0.to_string())
            .execute(&mut *conn)
            .await;
        if before == 0 {
            query(include_str!("sql/inspect_secure_delete_off.sql"))
                .execute(conn)
                .await?;
        }
        Ok(erased?.rows_affected() == 1)
    }
}
