//! The tables, and the bookkeeping of their versions.
//!
//! Migrations are run in one transaction under a transaction-level advisory
//! lock, so that processes that start together wait for each other, behind a
//! proxy too. A later version of this crate may add what this one need not know,
//! and says so in the name of its migration: such a schema is accepted, so that
//! old and new processes run side by side during a deploy.

use std::ops::DerefMut as _;

use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Row as _, SqlSafeStr as _,
    migrate::{Migrate as _, MigrateError, Migration, MigrationType, Migrator},
    query, query_scalar,
};

use super::{
    error::{Failure, store_error},
    sql::Schema,
};
use crate::store::StoreError;

/// The migrations of this crate, for whoever runs them by hand. They are
/// recorded in `_axum_idempotency_migrations`; a `_sqlx_migrations` of the same
/// database is neither read nor written. They make their tables in the first
/// schema of the search path.
pub fn migrator() -> Migrator {
    let migration = |kind, sql: &'static str| {
        Migration::new(1, "idempotency".into(), kind, sql.into_sql_str(), false)
    };
    let mut migrator = Migrator::with_migrations(vec![
        migration(
            MigrationType::ReversibleUp,
            include_str!("../../../migrations/postgres/0001_idempotency.up.sql"),
        ),
        migration(
            MigrationType::ReversibleDown,
            include_str!("../../../migrations/postgres/0001_idempotency.down.sql"),
        ),
    ]);
    migrator.dangerous_set_table_name(BOOKKEEPING);
    migrator
}

/// Runs what is missing.
pub(super) async fn migrate(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<(), StoreError> {
    // A role that may not create anything may still use what is complete.
    if missing(conn, schema).await?.is_empty() {
        return Ok(());
    }
    let failed = |error: sqlx::Error| store_error("migrating", error.into());
    let begin = conn.begin_with(include_str!("sql/migrate_begin.sql"));
    let mut transaction = begin.await.map_err(failed)?;
    let lock = query(include_str!("sql/migrate_lock.sql")).execute(&mut *transaction);
    lock.await.map_err(failed)?;
    if let Some(schema) = schema {
        let sql = format!("CREATE SCHEMA IF NOT EXISTS {}", schema.quoted());
        if !exists(&mut transaction, schema).await.map_err(failed)? {
            let made = query(AssertSqlSafe(sql)).execute(&mut *transaction);
            made.await.map_err(failed)?;
        }
        let sql = format!("SET LOCAL search_path TO {}", schema.quoted());
        let set = query(AssertSqlSafe(sql)).execute(&mut *transaction);
        set.await.map_err(failed)?;
    }
    // Another process may have been faster. An advisory lock does not bring the
    // catalogue's caches up to date, so that to_regclass may still deny what was
    // made meanwhile: this does.
    let conn = transaction.deref_mut();
    let bookkeeping = conn.ensure_migrations_table(BOOKKEEPING).await;
    bookkeeping.map_err(setup_error)?;
    for migration in missing(conn, schema).await? {
        let applied = conn.apply(BOOKKEEPING, &migration).await;
        applied.map_err(setup_error)?;
    }
    transaction.commit().await.map_err(failed)
}

async fn exists(conn: &mut PgConnection, schema: &Schema) -> Result<bool, sqlx::Error> {
    query_scalar(include_str!("sql/schema_exists.sql"))
        .bind(schema.name())
        .fetch_one(conn)
        .await
}

/// Finds out whether anything is missing, without a change.
pub(super) async fn verify(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<(), StoreError> {
    match missing(conn, schema).await?.first() {
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
    let probed = query(include_str!("sql/probe.sql"))
        .bind(&tables[..])
        .fetch_one(conn)
        .await;
    let probed = probed.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let (is_read_only, denied): (bool, Option<String>) =
        probed.map_err(|error| Failure::from(error).into_store_error("reading the permissions"))?;
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

/// The migrations of this crate that the database has not seen.
async fn missing(
    conn: &mut PgConnection,
    schema: Option<&Schema>,
) -> Result<Vec<Migration>, StoreError> {
    let failed = |error: sqlx::Error| store_error("reading the migrations", error.into());
    let bookkeeping = qualified(schema, BOOKKEEPING);
    let exists: bool = query_scalar(include_str!("sql/table_exists.sql"))
        .bind(&bookkeeping)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed)?;
    let applied = if exists {
        let sql = include_str!("sql/migrations.sql").replace(BOOKKEEPING, &bookkeeping);
        let applied = query(AssertSqlSafe(sql)).fetch_all(&mut *conn).await;
        applied.map_err(failed)?
    } else {
        Vec::new()
    };
    let migrator = migrator();
    let ups = || {
        let all = migrator.iter();
        all.filter(|known| known.migration_type.is_up_migration())
    };
    let mut seen = Vec::new();
    for row in &applied {
        let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (version, description, checksum): (i64, String, Vec<u8>) =
            read().map_err(|error| setup_error(MigrateError::Execute(error)))?;
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

const TABLES: [&str; 3] = [
    "idempotency_keys",
    "idempotency_key_archive",
    "idempotency_ttls",
];

/// How the name of a migration begins that older versions of this crate can
/// live with.
const ADDITIVE: &str = "additive";
