//! The database of the service's own tables: that of the store where it is SQL,
//! that of the archive beside a store in Redis.

use std::{str::FromStr, time::Duration};

use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use axum_idempotency::connect::Connection;
#[cfg(feature = "postgres")]
pub(crate) use axum_idempotency::store::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub(crate) use axum_idempotency::store::sqlite::SqliteStore;

/// There is none in this build.
#[cfg(not(feature = "postgres"))]
pub(crate) type PostgresStore = std::convert::Infallible;
#[cfg(not(feature = "sqlite"))]
pub(crate) type SqliteStore = std::convert::Infallible;

#[derive(Clone, Debug)]
pub(crate) enum Database {
    Sqlite(Tables<SqlitePool, SqliteStore>),
    Postgres(Tables<PgPool, PostgresStore>),
}

/// The service's own tables.
#[derive(Clone, Debug)]
pub(crate) struct Tables<P, S> {
    pub(crate) pool: P,
    /// The store, if its records are in the same database.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "there is none in this build")
    )]
    pub(crate) store: Option<S>,
}

impl Database {
    /// Opens the database of a store's or an archive's URL; for `memory:` one in
    /// memory. The store of `connection` may be in it.
    pub(crate) async fn open(url: &str, connection: &Connection) -> Result<Self, sqlx::Error> {
        match url.split_once(':') {
            Some(("memory", _)) => sqlite("sqlite::memory:", None).await,
            // Of a database in memory each connection has its own.
            Some(("sqlite", place)) if is_in_memory(place) => sqlite(url, None).await,
            Some(("sqlite", _)) => sqlite(url, sqlite_store(connection)).await,
            _ => postgres(url, postgres_store(connection)).await,
        }
    }

    /// The one in the SQL of this database, where the two differ.
    pub(crate) fn dialect(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self {
            Self::Sqlite(_) => sqlite,
            Self::Postgres(_) => postgres,
        }
    }
}

/// Compiles the body for the pool of either database.
macro_rules! with_pool {
    ($database:expr, |$pool:ident| $body:expr) => {
        match $database {
            $crate::support::Database::Sqlite($crate::support::Tables { pool: $pool, .. }) => $body,
            $crate::support::Database::Postgres($crate::support::Tables {
                pool: $pool, ..
            }) => $body,
        }
    };
}
pub(crate) use with_pool;

async fn sqlite(url: &str, store: Option<SqliteStore>) -> Result<Database, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5));
    // A database in memory lives as long as its one connection.
    let connections = if is_in_memory(url) { 1 } else { 4 };
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None);
    let pool = pool.connect_with(options).await?;
    Ok(Database::Sqlite(Tables { pool, store }))
}

#[cfg(feature = "sqlite")]
fn sqlite_store(connection: &Connection) -> Option<SqliteStore> {
    connection.sqlite_store().cloned()
}

#[cfg(not(feature = "sqlite"))]
fn sqlite_store(_: &Connection) -> Option<SqliteStore> {
    None
}

#[cfg(feature = "postgres")]
fn postgres_store(connection: &Connection) -> Option<PostgresStore> {
    connection.postgres_store().cloned()
}

#[cfg(not(feature = "postgres"))]
fn postgres_store(_: &Connection) -> Option<PostgresStore> {
    None
}

fn is_in_memory(url: &str) -> bool {
    url.contains(":memory:") || url.contains("mode=memory")
}

async fn postgres(url: &str, store: Option<PostgresStore>) -> Result<Database, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(8)
        .acquire_timeout(Duration::from_secs(5));
    let pool = pool.connect(url).await?;
    Ok(Database::Postgres(Tables { pool, store }))
}
