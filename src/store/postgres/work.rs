//! The record in a transaction of the handler's own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{PgConnection, Postgres, Row as _, Transaction};

use super::{
    PostgresStore,
    database::Database,
    error::{Failure, is_broken},
    row,
};
use crate::{
    handler::Idempotency,
    record::{Completion, OwnerToken, ResourceId},
    scope::ScopedKey,
    store::{
        Fenced, StoreError, StoreIdentity, Work, WorkError,
        codec::encode_headers,
        work::{Ledger, Lock},
    },
};

impl PostgresStore {
    /// Takes a transaction of yours, on this store's database, in which your
    /// effect and the record of its outcome are to commit together. It locks the
    /// record at once, so it is the first statement.
    ///
    /// ```no_run
    /// use axum::{
    ///     Router, extract::State, http::StatusCode, response::{IntoResponse, Response}, routing::post,
    /// };
    /// use axum_idempotency::{Idempotency, IdempotencyLayer, Recording, store::postgres::PostgresStore};
    ///
    /// #[derive(Clone)]
    /// struct App {
    ///     store: PostgresStore, // that of the layer
    ///     pool: sqlx::PgPool,  // of the same database
    /// }
    ///
    /// async fn charge(State(app): State<App>, idempotency: Idempotency) -> Result<Response, NotDone> {
    ///     let psp_key = idempotency.derive("stripe"); // what takes its time comes first
    ///     let transaction = app.pool.begin().await?;
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
    /// A pool for that transaction beside the store's own keeps handlers from
    /// waiting for the claims of others. Its `synchronous_commit` has to be on
    /// (the default).
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
        transaction: Transaction<'t, Postgres>,
    ) -> Result<Work<'t, Postgres>, WorkError> {
        let ledger = Box::new(PostgresLedger(Arc::clone(&self.db)));
        Work::begin(ledger, idempotency, transaction).await
    }
}

#[derive(Debug)]
struct PostgresLedger(Arc<Database>);

#[async_trait]
impl Ledger<Postgres> for PostgresLedger {
    fn store(&self) -> StoreIdentity {
        self.0.identity()
    }

    async fn lock(
        &self,
        conn: &mut PgConnection,
        key: ScopedKey,
        token: OwnerToken,
        _lease: Duration,
    ) -> Result<Lock, StoreError> {
        let locked = self.lock_on_conn(conn, key, token).await;
        locked.map_err(|error| Failure::from(error).into_store_error(LOCKING))
    }

    async fn complete(
        &self,
        conn: &mut PgConnection,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        let status = row::status_code(completion.status)?;
        let response = completion.response.as_ref();
        // In somebody else's session nothing is prepared.
        let done = Database::query_once(&self.0.sql.work_complete)
            .bind(key.to_string())
            .bind(token.as_uuid())
            .bind(status)
            .bind(completion.resource_id.as_ref().map(ResourceId::as_str))
            .bind(response.map(|kept| encode_headers(&kept.headers)))
            .bind(response.map(|kept| &kept.body[..]))
            .bind(self.0.test_time())
            .execute(conn)
            .await;
        let done = done.map_err(|error| Failure::from(error).into_store_error(COMPLETING))?;
        Ok(match done.rows_affected() {
            0 => Fenced::Stale,
            _ => Fenced::Owner,
        })
    }

    fn is_rolled_back(&self, error: &sqlx::Error) -> bool {
        error.as_database_error().is_some() && !is_broken(error)
    }
}

impl PostgresLedger {
    async fn lock_on_conn(
        &self,
        conn: &mut PgConnection,
        key: ScopedKey,
        token: OwnerToken,
    ) -> Result<Lock, sqlx::Error> {
        let Self(db) = self;
        let locked = Database::query_once(&db.sql.work_lock)
            .bind(key.to_string())
            .bind(token.as_uuid())
            .bind(db.test_time())
            .fetch_optional(&mut *conn)
            .await?;
        if locked.is_some() {
            return Ok(Lock::Ours);
        }
        let fate = Database::query_once(&db.sql.fate)
            .bind(vec![key.to_string()])
            .bind(vec![token.as_uuid()])
            .bind(db.test_time())
            .fetch_optional(conn)
            .await?;
        let Some(fate) = fate else {
            return Ok(Lock::Lost);
        };
        let is_over = fate.try_get("is_completed")? || fate.try_get("is_expired")?;
        Ok(if is_over { Lock::Lost } else { Lock::Held })
    }
}

const LOCKING: &str = "locking the record";
const COMPLETING: &str = "completing the record with its work";
