//! What an operator asks of the SQLite archive.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection, query, query_scalar};

use super::SqliteArchive;
use crate::{
    clock::up_to_micros,
    inspect::{
        ArchiveCensus, ArchiveGauges, Column, InspectArchive, OpenQuery, OpenRecord,
        PartitionCensus, PerMinute, judged, month_of,
    },
    record::Tombstone,
    scope::ScopedKey,
    store::{
        StoreError,
        sqlite::{Failure, Minutes, Operation, Rows, bytes_of, tombstone_of},
    },
};

#[async_trait]
impl InspectArchive for SqliteArchive {
    /// SQLite keeps no count of its rows: they are counted along an index, and
    /// what they take up is read from all pages.
    async fn gauges(&self) -> Result<ArchiveGauges, StoreError> {
        self.db.inspect(Gauges).await
    }

    async fn census(&self) -> Result<ArchiveCensus, StoreError> {
        self.db.inspect(Census).await
    }

    async fn history(&self, key: ScopedKey) -> Result<Vec<Tombstone>, StoreError> {
        self.db.read(History(key)).await
    }

    async fn newest(&self) -> Result<Option<Tombstone>, StoreError> {
        self.db.read(Newest).await
    }

    async fn expired_since(&self, from: Timestamp) -> Result<u64, StoreError> {
        self.db.inspect(Since(from)).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        self.db.inspect(OpenAt(*query)).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        self.db
            .inspect(Minutes::of(Rows::Archived, from, until))
            .await
    }
}

const TABLE: &str = "idempotency_key_archive";

#[derive(Debug)]
struct Gauges;

impl Operation for Gauges {
    const WHAT: &'static str = "measuring the archive";
    type Answer = ArchiveGauges;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<ArchiveGauges, Failure> {
        let sql = include_str!("../../store/sqlite/sql/inspect_archive_rows.sql");
        let rows: i64 = query_scalar(sql).fetch_one(&mut *conn).await?;
        Ok(ArchiveGauges {
            rows: rows.unsigned_abs(),
            bytes: bytes_of(TABLE, conn).await?,
            newest_partition_until: None,
        })
    }
}

#[derive(Debug)]
struct Census;

impl Operation for Census {
    const WHAT: &'static str = "counting archived rows";
    type Answer = ArchiveCensus;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<ArchiveCensus, Failure> {
        let months = months(conn).await?;
        Ok(ArchiveCensus {
            rows: months.iter().map(|month| month.rows).sum(),
            bytes: bytes_of(TABLE, conn).await?,
            months,
            is_partitioned: false,
            columns: columns(conn).await?,
        })
    }
}

async fn months(conn: &mut SqliteConnection) -> Result<Vec<PartitionCensus>, Failure> {
    let sql = include_str!("../../store/sqlite/sql/inspect_archive_months.sql");
    let rows = query(sql).fetch_all(conn).await?;
    let months = rows.iter().map(|row| {
        let (first, counted): (i64, i64) = (row.try_get("expired_at")?, row.try_get("counted")?);
        let first = Timestamp::from_microsecond(first);
        let first = first.map_err(|_| StoreError::corrupt("expired_at"))?;
        Ok(month_of(first, counted.unsigned_abs()))
    });
    months.collect()
}

async fn columns(conn: &mut SqliteConnection) -> Result<Vec<Column>, Failure> {
    let sql = include_str!("../../store/sqlite/sql/inspect_archive_columns.sql");
    let rows = query(sql).fetch_all(conn).await?;
    let columns = rows.iter().map(|row| {
        Ok(Column {
            name: row.try_get("name")?,
            type_name: row.try_get("type")?,
        })
    });
    columns.collect()
}

#[derive(Debug)]
struct History(ScopedKey);

impl Operation for History {
    const WHAT: &'static str = "reading the archived rows of a key";
    type Answer = Vec<Tombstone>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Vec<Tombstone>, Failure> {
        let sql = include_str!("../../store/sqlite/sql/inspect_archive_history.sql");
        let rows = query(sql).bind(self.0.to_string()).fetch_all(conn).await?;
        let history = rows.iter().map(|row| Ok(tombstone_of(row)?));
        history.collect()
    }
}

#[derive(Debug)]
struct Newest;

impl Operation for Newest {
    const WHAT: &'static str = "reading the newest archived row";
    type Answer = Option<Tombstone>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Option<Tombstone>, Failure> {
        let sql = include_str!("../../store/sqlite/sql/inspect_archive_newest.sql");
        let found = query(sql).fetch_optional(conn).await?;
        Ok(found.as_ref().map(tombstone_of).transpose()?)
    }
}

#[derive(Debug)]
struct Since(Timestamp);

impl Operation for Since {
    const WHAT: &'static str = "counting archived rows from a moment on";
    type Answer = u64;

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<u64, Failure> {
        let sql = include_str!("../../store/sqlite/sql/inspect_archive_since.sql");
        let rows: i64 = query_scalar(sql)
            .bind(up_to_micros(self.0).as_microsecond())
            .fetch_one(conn)
            .await?;
        Ok(rows.unsigned_abs())
    }
}

#[derive(Debug)]
struct OpenAt(OpenQuery);

impl Operation for OpenAt {
    const WHAT: &'static str = "listing what was in flight by the archive";
    type Answer = Vec<OpenRecord>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Vec<OpenRecord>, Failure> {
        let Self(asked) = self;
        let sql = include_str!("../../store/sqlite/sql/inspect_archive_open_at.sql");
        let rows = query(sql)
            .bind(asked.at.as_microsecond())
            .bind(asked.claimed_from().as_microsecond())
            .bind(asked.limit)
            .fetch_all(conn)
            .await?;
        let rows = rows.iter().map(tombstone_of);
        Ok(judged(rows, |row| asked.judge_archived(row)))
    }
}
