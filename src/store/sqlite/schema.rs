//! The tables, and the bookkeeping of their versions.
//!
//! A later version of this crate may add what this one need not know, and says
//! so in the name of its migration: such a schema is accepted, so that old and
//! new processes run side by side during a deploy.

use sqlx::{
    Connection as _, SqlSafeStr as _, SqliteConnection,
    migrate::{Migrate as _, MigrateError, Migration, MigrationType, Migrator},
    query, query_scalar,
};

use super::error::{is_missing_table, store_error};
use crate::store::StoreError;

/// The migrations of this crate, for whoever runs them by hand. They are
/// recorded in `_axum_idempotency_migrations`; a `_sqlx_migrations` of the same
/// database is neither read nor written.
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
            include_str!("../../../migrations/sqlite/0001_idempotency.up.sql"),
            include_str!("../../../migrations/sqlite/0001_idempotency.down.sql"),
        ),
        both(
            2,
            "additive: completed_at",
            include_str!("../../../migrations/sqlite/0002_completed_at.up.sql"),
            include_str!("../../../migrations/sqlite/0002_completed_at.down.sql"),
        ),
    ];
    let mut migrator = Migrator::with_migrations(all.concat());
    migrator.dangerous_set_table_name(BOOKKEEPING);
    migrator
}

/// Runs what is missing. Processes that start together wait for each other.
pub(super) async fn migrate(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| store_error("migrating", error.into());
    let begin = conn.begin_with(include_str!("sql/begin.sql"));
    let mut transaction = begin.await.map_err(failed)?;
    let bookkeeping = transaction.ensure_migrations_table(BOOKKEEPING);
    bookkeeping.await.map_err(setup_error)?;
    for migration in missing(&mut transaction).await? {
        let applied = transaction.apply(BOOKKEEPING, &migration);
        applied.await.map_err(setup_error)?;
    }
    probe(&mut transaction).await?;
    transaction.commit().await.map_err(failed)
}

/// SQLite lets a transaction begin on a file that may only be read, and fails
/// with the first write: let that be here, and not in a request.
async fn probe(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let probed = query(include_str!("sql/probe_write.sql"))
        .execute(conn)
        .await;
    let failed = |error: sqlx::Error| store_error("writing to the database", error.into());
    probed.map(drop).map_err(failed)
}

/// Finds out whether anything is missing, without a change.
pub(super) async fn verify(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| store_error("opening the database", error.into());
    let begin = conn.begin_with(include_str!("sql/begin.sql"));
    let mut transaction = begin.await.map_err(failed)?;
    match missing(&mut transaction).await?.first() {
        None => {
            probe(&mut transaction).await?;
            transaction.rollback().await.map_err(failed)
        }
        Some(migration) => Err(StoreError::setup(
            "a migration is missing: open the store with migrations on (the default), or run \
             those of store::sqlite::migrator",
            MigrateError::VersionNotPresent(migration.version),
        )),
    }
}

/// The migrations of this crate that the database has not seen.
async fn missing(conn: &mut SqliteConnection) -> Result<Vec<Migration>, StoreError> {
    let migrator = migrator();
    let applied = match conn.list_applied_migrations(BOOKKEEPING).await {
        Ok(applied) => applied,
        Err(MigrateError::Execute(error)) if is_missing_table(&error) => Vec::new(),
        Err(error) => return Err(setup_error(error)),
    };
    let ups = || {
        let all = migrator.iter();
        all.filter(|known| known.migration_type.is_up_migration())
    };
    for one in &applied {
        match ups().find(|known| known.version == one.version) {
            Some(known) if known.checksum == one.checksum => {}
            Some(_) => return Err(setup_error(MigrateError::VersionMismatch(one.version))),
            None if is_additive(one.version, conn).await? => {}
            None => return Err(setup_error(MigrateError::VersionMissing(one.version))),
        }
    }
    let is_applied = |known: &&Migration| applied.iter().any(|one| one.version == known.version);
    Ok(ups().filter(|known| !is_applied(known)).cloned().collect())
}

/// Whether older versions of this crate can live with a migration, as its name
/// says.
async fn is_additive(version: i64, conn: &mut SqliteConnection) -> Result<bool, StoreError> {
    let additive = query_scalar::<_, bool>(include_str!("sql/schema_is_additive.sql"))
        .bind(version)
        .fetch_optional(conn)
        .await;
    let additive = additive.map_err(|error| setup_error(MigrateError::Execute(error)))?;
    Ok(additive.unwrap_or(false))
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
             made it, or a new database",
            error,
        ),
        MigrateError::ExecuteMigration(..) => StoreError::setup(
            "a migration failed: rename or remove tables of the database that are called \
             idempotency_keys, idempotency_key_archive or idempotency_ttls",
            error,
        ),
        error => StoreError::setup(
            "the record of migrations cannot be used: repair the table \
             _axum_idempotency_migrations",
            error,
        ),
    }
}

const BOOKKEEPING: &str = "_axum_idempotency_migrations";
