//! The record in a transaction of the handler's own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{Sqlite, SqliteConnection, Transaction, query};

use super::{
    SqliteStore,
    claims::{Complete, Renew},
    database::Database,
    error::{Failure, is_broken},
    writer::Operation,
};
use crate::{
    handler::Idempotency,
    record::{Completion, OwnerToken},
    scope::ScopedKey,
    store::{Fenced, Renewal, Renewed, StoreError, StoreIdentity, Work, WorkError, work::Ledger},
};

impl SqliteStore {
    /// Takes a transaction of yours, on this store's database, in which your
    /// effect and the record of its outcome are to commit together. It locks the
    /// record at once, so it is the first statement.
    ///
    /// Begin it with `BEGIN IMMEDIATE`, and with a busy timeout, since it waits
    /// for other writers. Until it ends nobody else writes, and claims that wait
    /// for more than two seconds fail: keep it short.
    ///
    /// ```
    /// use axum::{http::StatusCode, response::Response};
    /// use axum_idempotency::{Idempotency, store::{WorkError, sqlite::SqliteStore}};
    /// use sqlx::SqlitePool;
    ///
    /// async fn charge(
    ///     idempotency: Idempotency,
    ///     store: SqliteStore,
    ///     pool: SqlitePool,
    /// ) -> Result<Response, Box<dyn std::error::Error>> {
    ///     let transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    ///     let mut work = store.enlist(&idempotency, transaction).await?;
    ///     sqlx::query("INSERT INTO charges (amount) VALUES (4500)")
    ///         .execute(&mut *work)
    ///         .await?;
    ///     Ok(work.commit((StatusCode::CREATED, "charged")).await?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`WorkError::Fenced`] when the attempt no longer owns its record;
    /// [`WorkError::OtherStore`], [`WorkError::Nested`] for a claim or a
    /// transaction that cannot be used; [`WorkError::Store`] for the database's
    /// own. The transaction is rolled back.
    pub async fn enlist<'t>(
        &self,
        idempotency: &Idempotency,
        transaction: Transaction<'t, Sqlite>,
    ) -> Result<Work<'t, Sqlite>, WorkError> {
        let ledger = Box::new(SqliteLedger(Arc::clone(&self.db)));
        Work::begin(ledger, idempotency, transaction).await
    }
}

/// Whether the record is as it was locked.
struct StillLocked {
    key: ScopedKey,
    token: OwnerToken,
    until: Timestamp,
}

impl Operation for StillLocked {
    const WHAT: &'static str = "looking at a locked record";
    type Answer = bool;

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<bool, Failure> {
        let found = query(include_str!("sql/is_leased_until.sql"))
            .bind(self.key.to_string())
            .bind(&self.token.as_bytes()[..])
            .bind(self.until.as_microsecond())
            .fetch_optional(conn)
            .await?;
        Ok(found.is_some())
    }
}

#[derive(Debug)]
struct SqliteLedger(Arc<Database>);

impl SqliteLedger {
    async fn run<O: Operation>(
        &self,
        conn: &mut SqliteConnection,
        operation: O,
    ) -> Result<O::Answer, StoreError> {
        let answer = operation.run(conn, self.0.clock.now()).await;
        answer.map_err(|failure| failure.into_store_error(O::WHAT))
    }
}

#[async_trait]
impl Ledger<Sqlite> for SqliteLedger {
    fn store(&self) -> StoreIdentity {
        self.0.identity()
    }

    async fn lock(
        &self,
        conn: &mut SqliteConnection,
        key: ScopedKey,
        token: OwnerToken,
        lease: Duration,
    ) -> Result<Renewed, StoreError> {
        let renewal = Renewal {
            key,
            token,
            lease,
            confirmed: true,
        };
        let renewed = self.run(conn, Renew(vec![renewal])).await?;
        Ok(renewed.first().copied().unwrap_or(Renewed::Lost))
    }

    async fn complete(
        &self,
        conn: &mut SqliteConnection,
        (key, token): (ScopedKey, OwnerToken),
        until: Timestamp,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        // Some failures undo the whole transaction, and what is written after
        // them would be committed by itself.
        if !self.run(conn, StillLocked { key, token, until }).await? {
            let why = "a statement that failed has rolled the transaction back";
            return Err(StoreError::unavailable(Complete::WHAT, why));
        }
        let complete = Complete {
            key,
            token,
            completion,
        };
        self.run(conn, complete).await
    }

    fn is_rolled_back(&self, error: &sqlx::Error) -> bool {
        // Whatever else stops a commit leaves the transaction open, and its end
        // undoes it.
        !is_broken(error)
    }
}
