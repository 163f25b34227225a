//! What is asked of the store beside the attempts: reading, amending, sweeping,
//! and the TTLs in force.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::{
    database::{Database, Operation},
    error::Failure,
    partitions::IntoArchive,
    row,
    time::Time,
};
use crate::{
    partition::Month,
    record::{Completion, ExpiredRecord, Record, ResourceId},
    scope::ScopedKey,
    store::{StoreError, TtlNotice, codec::encode_headers},
};

pub(super) struct Get(pub(super) ScopedKey);

impl Operation for Get {
    const WHAT: &'static str = "reading a record";
    const REPEATABLE: bool = true;

    type Answer = Option<Record>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Option<Record>, Failure> {
        let query = db.query(&db.sql.get).bind(self.0.to_string());
        let found = query.fetch_optional(conn).await?;
        Ok(found.map(|row| row::record(self.0, &row)).transpose()?)
    }
}

pub(super) struct Amend {
    pub(super) key: ScopedKey,
    pub(super) completion: Completion,
}

impl Operation for Amend {
    const WHAT: &'static str = "amending a record";
    const REPEATABLE: bool = false;

    type Answer = bool;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<bool, Failure> {
        let completion = &self.completion;
        let response = completion.response.as_ref();
        let done = db
            .query(&db.sql.amend)
            .bind(self.key.to_string())
            .bind(row::status_code(completion.status)?)
            .bind(completion.resource_id.as_ref().map(ResourceId::as_str))
            .bind(response.map(|kept| encode_headers(&kept.headers)))
            .bind(response.map(|kept| &kept.body[..]))
            .bind(db.test_time())
            .execute(conn)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

/// Moves the oldest expired rows into the archive of this database, or deletes
/// them.
pub(super) struct Sweep {
    pub(super) rows: u32,
    pub(super) into_archive: bool,
}

impl Operation for Sweep {
    const WHAT: &'static str = "sweeping";
    const REPEATABLE: bool = false;
    const PATIENCE: Option<Duration> = Some(LONGEST_SWEEP);

    type Answer = u64;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<u64, Failure> {
        let sql = if self.into_archive {
            &db.sql.sweep
        } else {
            &db.sql.discard
        };
        let swept: i64 = Database::query_once(sql)
            .bind(db.test_time())
            .bind(i64::from(self.rows))
            .fetch_one(conn)
            .await?
            .try_get(0)?;
        Ok(swept.unsigned_abs())
    }
}

impl IntoArchive for Sweep {
    async fn months(&self, db: &Database) -> Result<BTreeSet<Month>, StoreError> {
        db.run(&ExpiredMonths).await
    }
}

/// The months in which the rows expired that a sweep may move.
struct ExpiredMonths;

impl Operation for ExpiredMonths {
    const WHAT: &'static str = "listing the months of expired records";
    const REPEATABLE: bool = true;

    type Answer = BTreeSet<Month>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<BTreeSet<Month>, Failure> {
        let query = db.query(&db.sql.expired_months).bind(db.test_time());
        let rows = query.fetch_all(conn).await?;
        let months = rows
            .iter()
            .map(|row| Ok(Month::of(row::time(row, "expires_at")?)));
        Ok(months.collect::<Result<_, StoreError>>()?)
    }
}

/// Up to so many expired rows, oldest first.
pub(super) struct Expired(pub(super) u32);

impl Operation for Expired {
    const WHAT: &'static str = "listing expired records";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_SWEEP);

    type Answer = Vec<ExpiredRecord>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<ExpiredRecord>, Failure> {
        let wanted = i64::from(self.0);
        let mut unreadable = 0;
        loop {
            let rows = Database::query_once(&db.sql.expired)
                .bind(db.test_time())
                .bind(wanted + unreadable)
                .fetch_all(&mut *conn)
                .await?;
            let seen = rows.len();
            let expired: Vec<_> = rows
                .iter()
                .filter_map(|row| row::expired(row).ok())
                .collect();
            let found = i64::try_from(seen - expired.len()).unwrap_or(i64::MAX);
            // A row that cannot be read must not keep those behind it from
            // their archive.
            if found > unreadable {
                tracing::error!(
                    rows = found,
                    "expired records cannot be read: they are left where they are"
                );
                unreadable = found;
                continue;
            }
            return Ok(expired);
        }
    }
}

/// Removes those that are still the same.
pub(super) struct Remove<'r>(pub(super) &'r [ExpiredRecord]);

impl Operation for Remove<'_> {
    const WHAT: &'static str = "removing swept records";
    const REPEATABLE: bool = false;
    const PATIENCE: Option<Duration> = Some(LONGEST_SWEEP);

    type Answer = u64;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<u64, Failure> {
        let tombstones = || self.0.iter().map(|record| &record.tombstone);
        let keys: Vec<String> = tombstones().map(|one| one.key.to_string()).collect();
        let tokens: Vec<Uuid> = self.0.iter().map(|record| record.token.as_uuid()).collect();
        let expiries: Vec<Time> = tombstones().map(|one| Time(one.expired_at)).collect();
        let statuses = tombstones().map(|one| row::status_code(one.status));
        let statuses: Vec<i16> = statuses.collect::<Result<_, _>>()?;
        let done = Database::query_once(&db.sql.remove)
            .bind(keys)
            .bind(tokens)
            .bind(expiries)
            .bind(statuses)
            .bind(db.test_time())
            .execute(conn)
            .await?;
        Ok(done.rows_affected())
    }
}

impl Operation for TtlNotice {
    const WHAT: &'static str = "publishing the TTLs in force";
    const REPEATABLE: bool = true;

    type Answer = Duration;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Duration, Failure> {
        let smallest: i64 = db
            .query(&db.sql.publish_ttl)
            .bind(self.process)
            .bind(micros(self.smallest))
            .bind(micros(self.largest))
            .bind(db.test_time())
            .fetch_one(conn)
            .await?
            .try_get(0)?;
        let smallest = u64::try_from(smallest).map_err(|_| StoreError::corrupt("smallest"))?;
        Ok(Duration::from_micros(smallest))
    }
}

pub(super) struct Now;

impl Operation for Now {
    const WHAT: &'static str = "reading the clock";
    const REPEATABLE: bool = true;

    type Answer = Timestamp;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Timestamp, Failure> {
        let query = db.query(&db.sql.now).bind(db.test_time());
        let now: Time = query.fetch_one(conn).await?.try_get(0)?;
        Ok(now.0)
    }
}

/// Whole microseconds, as spans are stored.
fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// A batch may be large, and the disk slow.
const LONGEST_SWEEP: Duration = Duration::from_secs(50);
