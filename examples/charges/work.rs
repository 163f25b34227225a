//! What happens whole or not at all: with the record of its outcome where the
//! store is in the same database, else by itself.

use std::error::Error;

use axum::response::{IntoResponse, Response};
use axum_idempotency::Idempotency;
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool, Transaction};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use axum_idempotency::store::Work;

use super::support::{
    Tables,
    database::{PostgresStore, SqliteStore},
};

/// A transaction of a handler. A service that knows its store has no need of
/// this: it takes what `store.enlist(&idempotency, pool.begin().await?)` gives.
#[derive(Debug)]
pub(crate) enum Unit<DB: sqlx::Database> {
    /// Its effect and the record of its outcome commit together.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    Recorded(Work<'static, DB>),
    /// The layer records the outcome afterwards.
    Alone(Transaction<'static, DB>),
}

impl Tables<SqlitePool, SqliteStore> {
    /// Begins what is to happen whole or not at all.
    pub(crate) async fn begin(&self, attempt: &Idempotency) -> Result<Unit<Sqlite>, NotDone> {
        // Waits for other writers here, and not midway.
        let transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        Ok(match &self.store {
            #[cfg(feature = "sqlite")]
            Some(store) => Unit::Recorded(store.enlist(attempt, transaction).await?),
            #[cfg(not(feature = "sqlite"))]
            Some(none) => match (attempt, *none) {},
            None => Unit::Alone(transaction),
        })
    }
}

impl Tables<PgPool, PostgresStore> {
    /// Begins what is to happen whole or not at all.
    pub(crate) async fn begin(&self, attempt: &Idempotency) -> Result<Unit<Postgres>, NotDone> {
        // Whatever the server's default: a statement that has waited for a row
        // judges it as it is now, instead of failing.
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        let transaction = self.pool.begin_with(begin).await?;
        Ok(match &self.store {
            #[cfg(feature = "postgres")]
            Some(store) => Unit::Recorded(store.enlist(attempt, transaction).await?),
            #[cfg(not(feature = "postgres"))]
            Some(none) => match (attempt, *none) {},
            None => Unit::Alone(transaction),
        })
    }
}

impl<DB: sqlx::Database> Unit<DB> {
    /// For the handler's statements.
    pub(crate) fn conn(&mut self) -> &mut DB::Connection {
        match self {
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            Self::Recorded(work) => work,
            Self::Alone(transaction) => transaction,
        }
    }

    /// Commits, and gives back the response to return.
    pub(crate) async fn commit(self, response: impl IntoResponse) -> Result<Response, NotDone> {
        match self {
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            Self::Recorded(work) => Ok(work.commit(response).await?),
            Self::Alone(transaction) => {
                let committed = transaction.commit().await;
                committed.map_err(NotDone::Perhaps)?;
                Ok(response.into_response())
            }
        }
    }
}

/// Why a handler has no effect to tell of.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// Nothing happened; or, where the commit itself was cut off, the layer tells
    /// what the record says.
    Nothing(Box<dyn Error + Send + Sync>),
    /// The commit was cut off, and there is no record to ask.
    Perhaps(sqlx::Error),
}

impl From<sqlx::Error> for NotDone {
    fn from(error: sqlx::Error) -> Self {
        Self::Nothing(Box::new(error))
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl From<axum_idempotency::store::WorkError> for NotDone {
    fn from(error: axum_idempotency::store::WorkError) -> Self {
        Self::Nothing(Box::new(error))
    }
}

/// Compiles the body for the tables of either database.
macro_rules! with_tables {
    ($database:expr, |$tables:ident| $body:expr) => {
        match $database {
            $crate::support::Database::Sqlite($tables) => $body,
            $crate::support::Database::Postgres($tables) => $body,
        }
    };
}
pub(crate) use with_tables;
