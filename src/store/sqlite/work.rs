//! The record in a transaction of the handler's own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
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
    store::{
        Fenced, Renewal, Renewed, StoreError, StoreIdentity, Work, WorkError,
        work::{Ledger, Lock},
    },
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
    /// use axum::{
    ///     Router, extract::State, http::StatusCode, response::{IntoResponse, Response}, routing::post,
    /// };
    /// use axum_idempotency::{Idempotency, IdempotencyLayer, Recording, store::sqlite::SqliteStore};
    ///
    /// #[derive(Clone)]
    /// struct App {
    ///     store: SqliteStore, // that of the layer
    ///     pool: sqlx::SqlitePool,  // of the same database
    /// }
    ///
    /// async fn charge(State(app): State<App>, idempotency: Idempotency) -> Result<Response, NotDone> {
    ///     let psp_key = idempotency.derive("stripe"); // what takes its time comes first
    ///     let transaction = app.pool.begin_with("BEGIN IMMEDIATE").await?;
    ///     let mut work = app.store.enlist(&idempotency, transaction).await?;
    ///     sqlx::query("INSERT INTO charges (psp_key, amount) VALUES ($1, 4500)")
    ///         .bind(psp_key.as_str())
    ///         .execute(&mut *work)
    ///         .await?;
    ///     Ok(work.commit((StatusCode::CREATED, "charged")).await?)
    /// }
    ///
    /// /// Nothing was committed, so nothing is to be recorded: a retry runs again. Where
    /// /// the commit itself was cut off, the layer answers what the record says.
    /// struct NotDone(Box<dyn std::error::Error + Send + Sync>);
    ///
    /// impl<E: std::error::Error + Send + Sync + 'static> From<E> for NotDone {
    ///     fn from(error: E) -> Self {
    ///         Self(Box::new(error))
    ///     }
    /// }
    ///
    /// impl IntoResponse for NotDone {
    ///     fn into_response(self) -> Response {
    ///         eprintln!("not charged: {}", self.0);
    ///         (StatusCode::SERVICE_UNAVAILABLE, Recording::Forget, "try again").into_response()
    ///     }
    /// }
    ///
    /// fn router(app: App, idempotency: IdempotencyLayer) -> Router {
    ///     let charge = post(charge).layer(idempotency);
    ///     Router::new().route("/v1/charges", charge).with_state(app)
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
    ) -> Result<Lock, StoreError> {
        let renewal = Renewal {
            key,
            token,
            lease,
            confirmed: true,
        };
        let renewed = self.run(conn, Renew(vec![renewal])).await?;
        // Some failures undo the whole transaction, and what is written after
        // them is committed by itself. They undo this mark too.
        let mark = query(include_str!("sql/work_mark.sql")).execute(&mut *conn);
        let failed = |error| Failure::Statement(error).into_store_error(Renew::WHAT);
        mark.await.map_err(failed)?;
        Ok(match renewed.first() {
            Some(Renewed::Until(_)) => Lock::Ours,
            _ => Lock::Lost,
        })
    }

    async fn complete(
        &self,
        conn: &mut SqliteConnection,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        let mark = query(include_str!("sql/work_release.sql")).execute(&mut *conn);
        let gone = |error| Failure::Statement(error).into_store_error(ROLLED_BACK);
        mark.await.map_err(gone)?;
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

const ROLLED_BACK: &str = "a statement that failed has rolled the transaction back";
