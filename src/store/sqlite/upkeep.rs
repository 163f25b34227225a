//! What becomes of records past their time, and the TTLs in force.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection, query, query_scalar};

use super::{error::Failure, row, writer::Operation};
use crate::{
    record::ExpiredRecord,
    store::{StoreError, TtlNotice},
};

/// Most bytes of bodies that one transaction deletes: SQLite has to read a long
/// body in order to free its pages.
const BYTES_AT_ONCE: i64 = 16 << 20;

/// Moves the oldest expired rows, or deletes them.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) rows: u32,
    /// Whether the archive in this database takes them.
    pub(super) into_archive: bool,
}

impl Operation for Sweep {
    const WHAT: &'static str = "sweeping";
    type Answer = u64;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<u64, Failure> {
        let now = now.as_microsecond();
        let last = query(include_str!("sql/sweep_until.sql"))
            .bind(now)
            .bind(self.rows)
            .bind(BYTES_AT_ONCE)
            .fetch_optional(&mut *conn)
            .await?;
        let Some(last) = last else {
            return Ok(0);
        };
        let (expires_at, row): (i64, i64) = (last.try_get(0)?, last.try_get(1)?);
        let batch = |sql| query(sql).bind(now).bind(expires_at).bind(row);
        if self.into_archive {
            let archive = batch(include_str!("sql/sweep_archive.sql"));
            archive.execute(&mut *conn).await?;
        }
        let deleted = batch(include_str!("sql/sweep_delete.sql"))
            .execute(conn)
            .await?;
        Ok(deleted.rows_affected())
    }
}

/// Up to so many expired rows, oldest first.
#[derive(Debug)]
pub(super) struct Expired(pub(super) u32);

impl Operation for Expired {
    const WHAT: &'static str = "listing expired records";
    type Answer = Vec<ExpiredRecord>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        now: Timestamp,
    ) -> Result<Vec<ExpiredRecord>, Failure> {
        let limit = usize::try_from(self.0).unwrap_or(usize::MAX);
        let mut expired = Vec::new();
        let mut rows = query(include_str!("sql/expired.sql"))
            .bind(now.as_microsecond())
            .fetch(conn);
        while expired.len() < limit
            && let Some(row) = rows.try_next().await?
        {
            match row::expired(&row) {
                Ok(record) => expired.push(record),
                // It must not keep the rows behind it from their archive.
                Err(error) => {
                    let scoped_key = row.try_get::<&str, _>("scoped_key").unwrap_or("unreadable");
                    tracing::error!(scoped_key, %error, "an expired record is left where it is");
                }
            }
        }
        Ok(expired)
    }
}

#[derive(Debug)]
pub(super) struct Remove(pub(super) Vec<ExpiredRecord>);

impl Operation for Remove {
    const WHAT: &'static str = "removing swept records";
    type Answer = u64;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<u64, Failure> {
        let mut removed = 0;
        for record in &self.0 {
            let done = query(include_str!("sql/remove.sql"))
                .bind(record.tombstone.key.to_string())
                .bind(&record.token.as_bytes()[..])
                .bind(record.tombstone.expired_at.as_microsecond())
                .bind(record.tombstone.status)
                .bind(now.as_microsecond())
                .execute(&mut *conn)
                .await?;
            removed += done.rows_affected();
        }
        Ok(removed)
    }
}

impl Operation for TtlNotice {
    const WHAT: &'static str = "publishing the TTLs in force";
    type Answer = Duration;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<Duration, Failure> {
        let now = now.as_microsecond();
        query(include_str!("sql/ttl_publish.sql"))
            .bind(&self.process.as_bytes()[..])
            .bind(micros(self.smallest))
            .bind(micros(self.largest))
            .bind(now)
            .execute(&mut *conn)
            .await?;
        query(include_str!("sql/ttl_forget.sql"))
            .bind(now)
            .execute(&mut *conn)
            .await?;
        let smallest: i64 = query_scalar(include_str!("sql/ttl_smallest.sql"))
            .fetch_one(conn)
            .await?;
        let smallest = u64::try_from(smallest).map_err(|_| StoreError::corrupt("smallest"))?;
        Ok(Duration::from_micros(smallest))
    }
}

/// Whole microseconds, as times are stored.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
