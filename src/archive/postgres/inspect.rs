//! What an operator asks of the PostgreSQL archive.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{PgConnection, Row as _};

use super::PostgresArchive;
use crate::{
    clock::up_to_micros,
    inspect::{
        ArchiveCensus, ArchiveGauges, Column, InspectArchive, OpenQuery, OpenRecord,
        PartitionCensus, PerMinute, judged,
    },
    record::Tombstone,
    scope::ScopedKey,
    store::{
        StoreError,
        postgres::{
            Database, Failure, LONGEST_QUESTION, Minutes, Operation, Rows, Time, archive_of,
            measure, newest, read_whole_tables, tombstone, tombstone_of,
        },
    },
};

#[async_trait]
impl InspectArchive for PostgresArchive {
    /// The rows of a partition are as many as the server's statistics have,
    /// where those tell of more than 100,000; else they are counted.
    async fn gauges(&self) -> Result<ArchiveGauges, StoreError> {
        let partitions = measure(&self.db).await?;
        Ok(ArchiveGauges {
            rows: rows_of(&partitions),
            bytes: Some(bytes_of(&partitions)),
            newest_partition_until: partitions.iter().map(|one| one.until).max(),
        })
    }

    /// With the rows of a partition as [`gauges`](Self::gauges) has them.
    async fn census(&self) -> Result<ArchiveCensus, StoreError> {
        let columns = self.db.run(&Columns).await?;
        let months = measure(&self.db).await?;
        Ok(ArchiveCensus {
            rows: rows_of(&months),
            bytes: Some(bytes_of(&months)),
            months,
            is_partitioned: true,
            columns,
        })
    }

    async fn history(&self, key: ScopedKey) -> Result<Vec<Tombstone>, StoreError> {
        self.db.run(&History(key)).await
    }

    async fn newest(&self) -> Result<Option<Tombstone>, StoreError> {
        newest(&self.db).await
    }

    async fn expired_since(&self, from: Timestamp) -> Result<u64, StoreError> {
        self.db.run(&Since(from)).await
    }

    async fn open_at(&self, query: &OpenQuery) -> Result<Vec<OpenRecord>, StoreError> {
        self.db.run(&OpenAt(*query)).await
    }

    async fn claimed_per_minute(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<PerMinute>, StoreError> {
        self.db.run(&Minutes::of(Rows::Archived, from, until)).await
    }
}

fn rows_of(partitions: &[PartitionCensus]) -> u64 {
    partitions.iter().map(|one| one.rows).sum()
}

fn bytes_of(partitions: &[PartitionCensus]) -> u64 {
    partitions.iter().filter_map(|one| one.bytes).sum()
}

struct Columns;

impl Operation for Columns {
    const WHAT: &'static str = "reading the archive's columns";
    const REPEATABLE: bool = true;

    type Answer = Vec<Column>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Vec<Column>, Failure> {
        let rows = Database::query_once(&db.sql.inspect_archive_columns)
            .bind(archive_of(db))
            .fetch_all(conn)
            .await?;
        let columns = rows.iter().map(|row| {
            Ok(Column {
                name: row.try_get("name")?,
                type_name: row.try_get("type")?,
            })
        });
        columns.collect()
    }
}

struct History(ScopedKey);

impl Operation for History {
    const WHAT: &'static str = "reading the archived rows of a key";
    const REPEATABLE: bool = true;

    type Answer = Vec<Tombstone>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Vec<Tombstone>, Failure> {
        let rows = Database::query_once(&db.sql.inspect_archive_history)
            .bind(self.0.to_string())
            .fetch_all(conn)
            .await?;
        let history = rows.iter().map(|row| tombstone(self.0, row));
        Ok(history.collect::<Result<_, _>>()?)
    }
}

struct Since(Timestamp);

impl Operation for Since {
    const WHAT: &'static str = "counting archived rows from a moment on";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_QUESTION);

    type Answer = u64;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<u64, Failure> {
        read_whole_tables(db, conn).await?;
        let rows: i64 = Database::query_once(&db.sql.inspect_archive_since)
            .bind(Time(up_to_micros(self.0)))
            .fetch_one(conn)
            .await?
            .try_get(0)?;
        Ok(rows.unsigned_abs())
    }
}

struct OpenAt(OpenQuery);

impl Operation for OpenAt {
    const WHAT: &'static str = "listing what was in flight by the archive";
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
        let rows = Database::query_once(&db.sql.inspect_archive_open_at)
            .bind(Time(asked.at))
            .bind(Time(asked.claimed_from()))
            .bind(i64::from(asked.limit))
            .fetch_all(conn)
            .await?;
        let rows = rows.iter().map(tombstone_of);
        Ok(judged(rows, |row| asked.judge_archived(row)))
    }
}
