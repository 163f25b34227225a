//! The database of the service's own tables: that of the store where it is SQL,
//! that of the archive beside a store in Redis.

use std::{str::FromStr, time::Duration};

use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

#[derive(Clone, Debug)]
pub(crate) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Database {
    /// Opens the database of a store's or an archive's URL; for `memory:` one in
    /// memory.
    pub(crate) async fn open(url: &str) -> Result<Self, sqlx::Error> {
        match url.split_once(':') {
            Some(("memory", _)) => sqlite("sqlite::memory:").await.map(Self::Sqlite),
            Some(("sqlite", _)) => sqlite(url).await.map(Self::Sqlite),
            _ => postgres(url).await.map(Self::Postgres),
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
            $crate::support::Database::Sqlite($pool) => $body,
            $crate::support::Database::Postgres($pool) => $body,
        }
    };
}
pub(crate) use with_pool;

async fn sqlite(url: &str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5));
    // A database in memory lives as long as its one connection.
    let connections = if url.contains(":memory:") { 1 } else { 4 };
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None);
    pool.connect_with(options).await
}

async fn postgres(url: &str) -> Result<PgPool, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(8)
        .acquire_timeout(Duration::from_secs(5));
    pool.connect(url).await
}
