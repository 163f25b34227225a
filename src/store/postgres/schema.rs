//! The tables, and the bookkeeping of their versions.
//!
//! Migrations are run in one transaction under a transaction-level advisory
//! lock, so that processes that start together wait for each other, behind a
//! proxy too. A later version of this crate may add what this one need not know,
//! and says so in the name of its migration: such a schema is accepted, so that
//! old and new processes run side by side during a deploy.

use std::time::{Duration, Instant};

use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Postgres, Row as _, SqlSafeStr,
    error::DatabaseError,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    postgres::{PgArguments, PgRow},
    query,
    query::Query,
    raw_sql,
};
use tokio::time::sleep;

use super::{
    error::store_error,
    sql::{Schema, TABLES},
};
use crate::store::StoreError;

/// The migrations of this crate, for whoever runs them by hand. They are
/// recorded in `_axum_idempotency_migrations`; a `_sqlx_migrations` of the same
/// database is neither read nor written. They make their tables in the first
/// schema of the search path.
pub fn migrator() -> Migrator {
    let both = |version, name: &'static str, up: &'static str, down: &'static str| {
        let one = move |kind, sql: &'static str| {
            Migration::new(version, name.into(), kind, sql.into_sql_str(), false)
        };
        [
            one(MigrationType::ReversibleUp, up),
            one(MigrationType::ReversibleDown, down),
        ]
    };
    let all = [
        both(
            1,
            "idempotency",
            include_str!("../../../migrations/postgres/0001_idempotency.up.sql"),
            include_str!("../../../migrations/postgres/0001_idempotency.down.sql"),
        ),
        both(
            2,
            "additive: completed_at",
            include_str!("../../../migrations/postgres/0002_completed_at.up.sql"),
            include_str!("../../../migrations/postgres/0002_completed_at.down.sql"),
        ),
    ];
    let mut migrator = Migrator::with_migrations(all.concat());
    migrator.dangerous_set_table_name(BOOKKEEPING);
    migrator
}

/// Runs what is missing.
pub(super) async fn migrate(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<(), StoreError> {
    // A role that may not create anything may still use what is complete.
    if missing_in_own_transaction(conn, schema).await?.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + LONGEST_MIGRATION;
    while !migrate_once(conn, schema, Instant::now() >= deadline).await? {
        sleep(PAUSE).await;
    }
    Ok(())
}

/// False when somebody holds a table for longer than a migration is to wait,
/// since all claims wait behind it; an error when this is the last try.
async fn migrate_once(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
    is_last: bool,
) -> Result<bool, StoreError> {
    let failed = |error: sqlx::Error| store_error("migrating", error.into());
    let begin = conn.begin_with(include_str!("sql/schema/begin.sql"));
    let mut transaction = begin.await.map_err(failed)?;
    let lock = ask(include_str!("sql/schema/lock.sql")).bind(schema.map(Schema::name));
    let locked = lock.execute(&mut *transaction).await;
    locked.map_err(failed)?;
    if let Some(schema) = schema {
        enter(&mut transaction, schema).await.map_err(failed)?;
    }
    // Another process may have been faster. An advisory lock does not bring the
    // catalogue's caches up to date, so that to_regclass may still deny what was
    // made meanwhile: this does.
    let bookkeeping = raw_sql(include_str!("sql/schema/bookkeeping.sql"));
    let made = bookkeeping.execute(&mut *transaction).await;
    made.map_err(|error| setup_error(MigrateError::Execute(error)))?;
    for migration in missing(&mut transaction, schema).await? {
        match apply(&mut transaction, &migration).await {
            Err(error) if is_locked(&error) && !is_last => {
                transaction.rollback().await.map_err(failed)?;
                return Ok(false);
            }
            Err(error) if is_locked(&error) => return Err(failed(error)),
            Err(error) => {
                let failed = MigrateError::ExecuteMigration(error, migration.version);
                return Err(setup_error(failed));
            }
            Ok(()) => {}
        }
    }
    transaction.commit().await.map_err(failed)?;
    Ok(true)
}

/// Makes the schema if there is none, and what follows in it.
async fn enter(conn: &mut PgConnection, schema: &Schema) -> Result<(), sqlx::Error> {
    let exists: bool = ask(include_str!("sql/schema/exists.sql"))
        .bind(schema.name())
        .fetch_one(&mut *conn)
        .await?
        .try_get(0)?;
    let name = schema.quoted();
    if !exists {
        let create = AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {name}"));
        raw_sql(create).execute(&mut *conn).await?;
    }
    let path = AssertSqlSafe(format!("SET LOCAL search_path TO {name}"));
    raw_sql(path).execute(conn).await?;
    Ok(())
}

async fn apply(conn: &mut PgConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    raw_sql(migration.sql.clone()).execute(&mut *conn).await?;
    ask(include_str!("sql/schema/record.sql"))
        .bind(migration.version)
        .bind(&*migration.description)
        .bind(&*migration.checksum)
        .execute(conn)
        .await?;
    Ok(())
}

fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.as_deref() == Some("55P03")
}

/// A statement without a name, which a proxy would hand to another connection.
fn ask<'q>(sql: impl SqlSafeStr) -> Query<'q, Postgres, PgArguments> {
    query(sql).persistent(false)
}

/// Finds out whether anything is missing, without a change.
pub(super) async fn verify(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<(), StoreError> {
    match missing_in_own_transaction(conn, schema).await?.first() {
        None => Ok(()),
        Some(migration) => Err(StoreError::setup(
            "a migration is missing: open the store with migrations on (the default), or run \
             those of store::postgres::migrator",
            MigrateError::VersionNotPresent(migration.version),
        )),
    }
}

/// Finds out at the start, and not in a request, whether this role may do what
/// a store does.
pub(super) async fn probe(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<(), StoreError> {
    let tables = TABLES.map(|table| qualified(schema, table));
    let probed = async {
        let mut transaction = conn.begin().await?;
        let row = ask(include_str!("sql/schema/probe.sql"))
            .bind(&tables[..])
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    };
    let failed = |error: sqlx::Error| store_error("reading the permissions", error.into());
    let (is_read_only, denied, is_durable): (bool, Option<String>, bool) =
        probed.await.map_err(failed)?;
    if !is_durable {
        tracing::warn!(
            "synchronous_commit is off: when the server crashes, the last claims and answers are \
             forgotten, and their requests run again"
        );
    }
    if is_read_only {
        return Err(StoreError::setup(
            "the database is read-only: connect to the primary, with a role that may write",
            "transaction_read_only is on",
        ));
    }
    match denied {
        None => Ok(()),
        Some(denied) => Err(StoreError::setup(
            "a permission is missing: grant this role SELECT, INSERT, UPDATE and DELETE on the \
             tables of the store",
            format!("not granted: {denied}"),
        )),
    }
}

async fn missing_in_own_transaction(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<Vec<Migration>, StoreError> {
    let failed = |error: sqlx::Error| store_error("reading the migrations", error.into());
    let mut transaction = conn.begin().await.map_err(failed)?;
    let missing = missing(&mut transaction, schema).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(missing)
}

/// The migrations of this crate that the database has not seen.
async fn missing(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<Vec<Migration>, StoreError> {
    let failed = |error: sqlx::Error| store_error("reading the migrations", error.into());
    let migrator = migrator();
    let ups = || {
        let all = migrator.iter();
        all.filter(|known| known.migration_type.is_up_migration())
    };
    let mut seen = Vec::new();
    for (version, description, checksum) in applied(conn, schema).await.map_err(failed)? {
        match ups().find(|known| known.version == version) {
            Some(known) if *known.checksum == *checksum => seen.push(version),
            Some(_) => return Err(setup_error(MigrateError::VersionMismatch(version))),
            None if description.starts_with(ADDITIVE) => {}
            None => return Err(setup_error(MigrateError::VersionMissing(version))),
        }
    }
    let is_seen = |known: &&Migration| seen.contains(&known.version);
    Ok(ups().filter(|known| !is_seen(known)).cloned().collect())
}

/// Version, name and checksum of what the database has seen.
async fn applied(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<Vec<(i64, String, Vec<u8>)>, sqlx::Error> {
    let bookkeeping = qualified(schema, BOOKKEEPING);
    let exists: bool = ask(include_str!("sql/schema/table_exists.sql"))
        .bind(&bookkeeping)
        .fetch_one(&mut *conn)
        .await?
        .try_get(0)?;
    if !exists {
        return Ok(Vec::new());
    }
    let sql = include_str!("sql/schema/applied.sql").replace(BOOKKEEPING, &bookkeeping);
    let rows = ask(AssertSqlSafe(sql)).fetch_all(conn).await?;
    let read = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    rows.iter().map(read).collect()
}

pub(super) fn qualified(schema: Option<&Schema>, table: &str) -> String {
    schema.map_or_else(
        || table.to_owned(),
        |schema| format!("{}.{table}", schema.quoted()),
    )
}

fn setup_error(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) => store_error("migrating", error.into()),
        MigrateError::VersionMissing(_) => StoreError::setup(
            "the schema is of a later version of axum-idempotency: update this process to it",
            error,
        ),
        MigrateError::VersionMismatch(_) => StoreError::setup(
            "the schema is of another build of axum-idempotency: use the released version that \
             made it, or a new schema",
            error,
        ),
        MigrateError::ExecuteMigration(ref cause, _) => {
            let denied = cause.as_database_error();
            if denied.is_some_and(|error| error.code().as_deref() == Some("42501")) {
                return StoreError::setup(
                    "a permission is missing: let this role create in the schema, or run the \
                     migrations as its owner",
                    error,
                );
            }
            StoreError::setup(
                "a migration failed: rename or remove tables of the schema that are called \
                 idempotency_keys, idempotency_key_archive or idempotency_ttls, or give the store \
                 a schema of its own",
                error,
            )
        }
        error => StoreError::setup(
            "the record of migrations cannot be used: repair the table \
             _axum_idempotency_migrations",
            error,
        ),
    }
}

const BOOKKEEPING: &str = "_axum_idempotency_migrations";

/// For how long a migration tries to get hold of its table, and how long others
/// come first in between.
const LONGEST_MIGRATION: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(300);

/// How the name of a migration begins that older versions of this crate can
/// live with.
const ADDITIVE: &str = "additive";
