//! The record in a transaction of the handler's own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{PgConnection, Postgres, Transaction};

use super::{
    PostgresStore,
    database::{Database, Statement},
    error::is_broken,
    outcomes::{self, Fate},
};
use crate::{
    handler::Idempotency,
    record::{Completion, OwnerToken},
    scope::ScopedKey,
    store::{Fenced, Renewal, Renewed, StoreError, StoreIdentity, Work, WorkError, work::Ledger},
};

impl PostgresStore {
    /// Takes a transaction of yours, on this store's database, in which your
    /// effect and the record of its outcome are to commit together. It locks the
    /// record at once, so it is the first statement.
    ///
    /// ```no_run
    /// use axum::{http::StatusCode, response::Response};
    /// use axum_idempotency::{Idempotency, store::{WorkError, postgres::PostgresStore}};
    /// use sqlx::PgPool;
    ///
    /// async fn charge(
    ///     idempotency: Idempotency,
    ///     store: PostgresStore,
    ///     pool: PgPool,
    /// ) -> Result<Response, Box<dyn std::error::Error>> {
    ///     let mut work = store.enlist(&idempotency, pool.begin().await?).await?;
    ///     sqlx::query("INSERT INTO charges (amount) VALUES (4500)")
    ///         .execute(&mut *work)
    ///         .await?;
    ///     Ok(work.commit((StatusCode::CREATED, "charged")).await?)
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
        lease: Duration,
    ) -> Result<Renewed, StoreError> {
        let renewal = Renewal {
            key,
            token,
            lease,
            confirmed: true,
        };
        let renewed = outcomes::renew(Statement::Once, &[&renewal], &self.0, conn).await;
        let (renewed, fates) = renewed.map_err(|error| error.into_store_error(LOCKING))?;
        Ok(match (renewed.get(&key), fates.get(&key)) {
            (Some(&until), _) => Renewed::Until(until),
            (None, Some(Fate::InProgress)) => Renewed::Locked,
            (None, _) => Renewed::Lost,
        })
    }

    async fn complete(
        &self,
        conn: &mut PgConnection,
        (key, token): (ScopedKey, OwnerToken),
        _until: Timestamp,
        completion: Completion,
    ) -> Result<Fenced, StoreError> {
        let complete = outcomes::Complete {
            key,
            token,
            completion,
        };
        let done = outcomes::complete(Statement::Once, &[&complete], &self.0, conn).await;
        let (done, _) = done.map_err(|error| error.into_store_error(COMPLETING))?;
        Ok(if done.contains(&key) {
            Fenced::Owner
        } else {
            Fenced::Stale
        })
    }

    fn is_rolled_back(&self, error: &sqlx::Error) -> bool {
        error.as_database_error().is_some() && !is_broken(error)
    }
}

const LOCKING: &str = "locking the record";
const COMPLETING: &str = "completing the record with its work";
