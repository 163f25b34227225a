//! The steps in the life of a partition, each a transaction of its own.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _, query, query_scalar, raw_sql};

use super::{
    database::{Database, Operation},
    error::Failure,
    inspect::read_whole_tables,
    row, schema,
};
use crate::{
    inspect::PartitionCensus,
    partition::{Month, Partition},
    record::Tombstone,
    store::StoreError,
};

/// All that there are, oldest first.
pub(super) struct List;

pub(super) struct Attached {
    pub(super) partition: Partition,
    /// Its table with its schema, quoted.
    place: String,
}

impl Operation for List {
    const WHAT: &'static str = "reading the archive's partitions";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_STEP);

    type Answer = Vec<Attached>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Vec<Attached>, Failure> {
        set_up(conn).await?;
        attached(db, conn).await
    }
}

/// Brings the partition of a month one step nearer.
pub(super) struct Make(pub(super) Month);

#[derive(PartialEq, Eq)]
pub(super) enum Made {
    Whole,
    ToBeContinued,
}

impl Operation for Make {
    const WHAT: &'static str = "making a partition of the archive";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_STEP);

    type Answer = Made;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Made, Failure> {
        let archive = Archive::lock(db, conn).await?;
        let table = archive.beside(&self.0.table());
        let found = query(include_str!("sql/partitions/find.sql"))
            .persistent(false)
            .bind(archive_of(db))
            .bind(self.0.table())
            .fetch_optional(&mut *conn)
            .await?;
        let step = match found {
            None => include_str!("sql/partitions/create.sql"),
            Some(found) if found.try_get("is_attached")? => return Ok(Made::Whole),
            Some(found) if found.try_get::<Option<String>, _>("mark")? == Some(archive.mark()) => {
                include_str!("sql/partitions/drop.sql")
            }
            Some(_) => include_str!("sql/partitions/attach.sql"),
        };
        let step = step
            .replace("{begins}", &self.0.begins())
            .replace("{ends}", &self.0.ends());
        archive.alter(conn, &step, &table).await?;
        Ok(Made::ToBeContinued)
    }
}

/// Detaches the oldest partition that is past the retention, and marks it for
/// [`DropRetired`].
pub(super) struct Detach {
    pub(super) expired_by: Timestamp,
}

pub(super) struct Detached {
    pub(super) name: String,
    pub(super) rows: u64,
}

impl Operation for Detach {
    const WHAT: &'static str = "retiring a partition of the archive";
    const REPEATABLE: bool = false;
    const PATIENCE: Option<Duration> = Some(LONGEST_STEP);

    type Answer = Option<Detached>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Option<Detached>, Failure> {
        let archive = Archive::lock(db, conn).await?;
        let oldest = attached(db, conn).await?.into_iter().next();
        let Some(Attached { partition, place }) =
            oldest.filter(|oldest| oldest.partition.until <= self.expired_by)
        else {
            return Ok(None);
        };
        // Before the lock that lookups would wait for.
        let count = include_str!("sql/partitions/count.sql").replace("{table}", &place);
        let rows: i64 = query_scalar(AssertSqlSafe(count))
            .persistent(false)
            .bind(&place)
            .fetch_one(&mut *conn)
            .await?;
        for step in [
            include_str!("sql/partitions/detach.sql"),
            include_str!("sql/partitions/mark.sql"),
        ] {
            archive.alter(conn, step, &place).await?;
        }
        Ok(Some(Detached {
            name: partition.name,
            rows: rows.unsigned_abs(),
        }))
    }
}

/// Drops one table that was retired. False when there is none.
pub(super) struct DropRetired;

impl Operation for DropRetired {
    const WHAT: &'static str = "dropping a retired partition of the archive";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_STEP);

    type Answer = bool;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<bool, Failure> {
        let archive = Archive::lock(db, conn).await?;
        let retired: Option<String> = query_scalar(include_str!("sql/partitions/retired.sql"))
            .persistent(false)
            .bind(archive.mark())
            .fetch_optional(&mut *conn)
            .await?;
        let Some(table) = retired else {
            return Ok(false);
        };
        let step = include_str!("sql/partitions/drop.sql");
        archive.alter(conn, step, &table).await?;
        Ok(true)
    }
}

/// The rows and the size of all that there are, oldest first.
pub(super) struct Measure;

impl Operation for Measure {
    const WHAT: &'static str = "measuring the archive's partitions";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_STEP);

    type Answer = Vec<PartitionCensus>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<PartitionCensus>, Failure> {
        set_up(conn).await?;
        read_whole_tables(db, conn).await?;
        let mut measured = Vec::new();
        for Attached { partition, place } in attached(db, conn).await? {
            let sql = include_str!("sql/partitions/measure.sql").replace("{table}", &place);
            let found = query(AssertSqlSafe(sql))
                .persistent(false)
                .bind(&place)
                .fetch_one(&mut *conn)
                .await?;
            measured.push(PartitionCensus {
                name: partition.name,
                from: partition.from,
                until: partition.until,
                rows: row::count(&found, "counted")?,
                bytes: Some(row::count(&found, "bytes")?),
            });
        }
        Ok(measured)
    }
}

/// The row that expired last, looked for from the newest partition on.
pub(super) struct Newest;

impl Operation for Newest {
    const WHAT: &'static str = "reading the newest archived row";
    const REPEATABLE: bool = true;
    const PATIENCE: Option<Duration> = Some(LONGEST_STEP);

    type Answer = Option<Tombstone>;

    async fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Option<Tombstone>, Failure> {
        set_up(conn).await?;
        read_whole_tables(db, conn).await?;
        for Attached { place, .. } in attached(db, conn).await?.into_iter().rev() {
            let sql = include_str!("sql/partitions/newest.sql").replace("{table}", &place);
            let found = query(AssertSqlSafe(sql))
                .persistent(false)
                .fetch_optional(&mut *conn)
                .await?;
            if let Some(found) = found {
                return Ok(Some(row::tombstone_of(&found)?));
            }
        }
        Ok(None)
    }
}

/// The archive's table, as long as nobody else changes its partitions.
struct Archive {
    /// Quoted. That of the table itself, whatever the search path says first.
    schema: String,
}

impl Archive {
    async fn lock(db: &Database, conn: &mut PgConnection) -> Result<Self, Failure> {
        set_up(conn).await?;
        let schema = query_scalar(include_str!("sql/partitions/lock.sql"))
            .persistent(false)
            .bind(archive_of(db))
            .fetch_one(conn)
            .await?;
        Ok(Self { schema })
    }

    fn place(&self) -> String {
        self.beside("idempotency_key_archive")
    }

    fn beside(&self, table: &str) -> String {
        format!("{}.{table}", self.schema)
    }

    /// The comment of a table that was detached to be dropped.
    fn mark(&self) -> String {
        format!("axum-idempotency: retired from {}", self.place())
    }

    async fn alter(&self, conn: &mut PgConnection, step: &str, table: &str) -> Result<(), Failure> {
        let sql = step
            .replace("{mark}", &self.mark().replace('\'', "''"))
            .replace("{archive}", &self.place())
            .replace("{table}", table);
        conn.execute(AssertSqlSafe(sql)).await?;
        Ok(())
    }
}

async fn set_up(conn: &mut PgConnection) -> Result<(), Failure> {
    raw_sql(include_str!("sql/partitions/settings.sql"))
        .execute(conn)
        .await?;
    Ok(())
}

/// The name of the archive's table, as the settings have it.
pub(crate) fn archive_of(db: &Database) -> String {
    schema::qualified(db.schema(), "idempotency_key_archive")
}

async fn attached(db: &Database, conn: &mut PgConnection) -> Result<Vec<Attached>, Failure> {
    let rows = query(include_str!("sql/partitions/list.sql"))
        .persistent(false)
        .bind(archive_of(db))
        .fetch_all(conn)
        .await?;
    let attached = rows.iter().map(|found| {
        let partition = Partition::new(
            row::column(found, "name")?,
            row::time(found, "begins")?,
            row::time(found, "ends")?,
        );
        let place = row::column(found, "place")?;
        Ok(Attached { partition, place })
    });
    Ok(attached.collect::<Result<_, StoreError>>()?)
}

/// A table that already has rows is read when it is attached.
const LONGEST_STEP: Duration = Duration::from_secs(50);
