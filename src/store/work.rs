//! Commit with the work: a handler's effect and its record in one transaction.

use std::{
    error::Error,
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

use async_trait::async_trait;
use axum::response::{IntoResponse, Response};
use sqlx::{Database, Transaction};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::Instant;

use super::{Fenced, StoreError, StoreIdentity};
use crate::{
    handler::{Committed, Idempotency, WorkState},
    record::{Completion, OwnerToken},
    scope::ScopedKey,
};

/// A transaction of a handler in which its effect and the record of its outcome
/// commit together, or not at all. Made by
/// [`PostgresStore::enlist`](super::postgres::PostgresStore::enlist) and
/// [`SqliteStore::enlist`](super::sqlite::SqliteStore::enlist); no other store
/// can, and so has no such method:
///
/// ```compile_fail,E0599
/// # fn enlisted() {
/// let store = axum_idempotency::store::MemoryStore::new();
/// store.enlist();
/// # }
/// ```
///
/// It derefs to the connection, for the handler's statements. Dropped, or where
/// [`Work::commit`] refuses, it is rolled back.
///
/// 1. **The record is locked first**, and belongs to this attempt from then on:
///    nobody takes it over, and one that has been taken over before is
///    [`WorkError::Fenced`].
/// 2. **No longer than a lease.** What takes its time, such as a call to another
///    service, is done before; a commit after more than a lease is refused. In
///    SQLite nobody else writes meanwhile.
/// 3. **A crash** before the commit leaves neither effect nor outcome, and the
///    next attempt runs; after it, a retry gets the recorded response.
/// 4. **The recorded response is what leaves**, whatever layers in between, a
///    timeout or a panic make of it after the commit.
pub struct Work<'t, DB: Database> {
    transaction: Transaction<'t, DB>,
    idempotency: Idempotency,
    ledger: Box<dyn Ledger<DB>>,
    since: Instant,
}

/// Whose the lock on a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Ours,
    /// The token owns the record, and another transaction holds it. Not in SQLite,
    /// where that is an error.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code))]
    Held,
    /// The token owns it no longer.
    Lost,
}

/// What a store does with its record in somebody else's transaction.
#[async_trait]
pub(super) trait Ledger<DB: Database>: fmt::Debug + Send + Sync {
    fn store(&self) -> StoreIdentity;

    /// Locks the record of `token` to the end of the transaction, with a new lease
    /// where that can be seen before.
    async fn lock(
        &self,
        conn: &mut DB::Connection,
        key: ScopedKey,
        token: OwnerToken,
        lease: Duration,
    ) -> Result<Lock, StoreError>;

    /// Completes the record that was locked. An error where the transaction has
    /// come to its end since.
    async fn complete(
        &self,
        conn: &mut DB::Connection,
        key: ScopedKey,
        token: OwnerToken,
        completion: Completion,
    ) -> Result<Fenced, StoreError>;

    /// Whether a commit that failed so was surely rolled back.
    fn is_rolled_back(&self, error: &sqlx::Error) -> bool;
}

impl<'t, DB: Database> Work<'t, DB> {
    /// Locks the record of the attempt, as the first statement of the
    /// transaction.
    pub(super) async fn begin(
        ledger: Box<dyn Ledger<DB>>,
        idempotency: &Idempotency,
        mut transaction: Transaction<'t, DB>,
    ) -> Result<Self, WorkError> {
        let is_nested = DB::TransactionManager::get_transaction_depth(&transaction) != 1;
        if is_nested || ledger.store() != idempotency.store() {
            undo(transaction).await;
            return Err(if is_nested {
                WorkError::Nested
            } else {
                WorkError::OtherStore
            });
        }
        let (key, token) = (idempotency.scoped_key(), idempotency.token());
        let lease = idempotency.lease();
        let begun = Instant::now();
        loop {
            let since = Instant::now();
            let locked = ledger.lock(&mut transaction, key, token, lease).await;
            let refused = match locked {
                Ok(Lock::Ours) => {
                    return Ok(Self {
                        transaction,
                        idempotency: idempotency.clone(),
                        ledger,
                        since,
                    });
                }
                // A renewal, or somebody who looks at the row.
                Ok(Lock::Held) if begun.elapsed() < lease / 4 => {
                    tokio::time::sleep(LOCKED_PAUSE).await;
                    continue;
                }
                Ok(Lock::Held) => {
                    let why = "another transaction holds the record locked";
                    WorkError::Store(StoreError::unavailable(LOCKING, why))
                }
                Ok(Lock::Lost) => WorkError::Fenced,
                Err(error) => WorkError::Store(error),
            };
            undo(transaction).await;
            return Err(refused);
        }
    }

    /// Records the response and commits, and gives back the response to return.
    /// Effect and record are on the disk together when this returns it.
    ///
    /// The body is collected first, as the layer does it; one that cannot be
    /// kept is recorded as not kept.
    ///
    /// For a [`Job`](crate::worker::Job) the response is only a carrier: commit
    /// `(resource_id, ())`, or `()`. Its status is not looked at.
    ///
    /// # Errors
    ///
    /// All but [`WorkError::Unknown`] say that the transaction was rolled back.
    /// What the handler answers then is recorded as any other answer is: where
    /// nothing happened but what was rolled back, let a retry run again with
    /// [`Recording::Forget`](crate::Recording::Forget).
    pub async fn commit(mut self, response: impl IntoResponse) -> Result<Response, WorkError> {
        let mut response = response.into_response();
        self.idempotency.mark(&mut response);
        if self.idempotency.forgets(&response) {
            undo(self.transaction).await;
            return Err(WorkError::NotRecorded);
        }
        let (completion, response) = self.idempotency.completion(response).await;
        if let Err(refused) = self.complete(completion.clone()).await {
            undo(self.transaction).await;
            return Err(refused);
        }
        if let Err(error) = self.transaction.commit().await {
            if self.ledger.is_rolled_back(&error) {
                self.idempotency.end_commit(WorkState::Open);
                return Err(WorkError::Store(StoreError::unavailable(COMMITTING, error)));
            }
            return Err(WorkError::Unknown(error));
        }
        let committed = Committed {
            completion,
            headers: response.headers().clone(),
        };
        let committed = WorkState::Committed(Box::new(committed));
        self.idempotency.end_commit(committed);
        Ok(response)
    }

    /// Completes the record. With no error the commit is to be sent.
    async fn complete(&mut self, completion: Completion) -> Result<(), WorkError> {
        if self.since.elapsed() >= self.idempotency.lease() {
            return Err(WorkError::TooLate);
        }
        let (key, token) = (self.idempotency.scoped_key(), self.idempotency.token());
        let told = self
            .ledger
            .complete(&mut self.transaction, key, token, completion)
            .await;
        match told {
            Ok(Fenced::Owner) if self.idempotency.begin_commit() => Ok(()),
            Ok(Fenced::Owner) => Err(WorkError::TooLate),
            Ok(Fenced::Stale) => Err(WorkError::Fenced),
            Err(error) => Err(WorkError::Store(error)),
        }
    }

    /// Undoes what was done, and leaves the attempt as it was before. Dropping
    /// it does the same, the next time that the connection is used.
    ///
    /// # Errors
    ///
    /// That of the database; the transaction is rolled back all the same, by
    /// the end of its connection if not sooner.
    pub async fn roll_back(self) -> Result<(), sqlx::Error> {
        self.transaction.rollback().await
    }
}

impl<DB: Database> Deref for Work<'_, DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.transaction
    }
}

impl<DB: Database> DerefMut for Work<'_, DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.transaction
    }
}

impl<DB: Database> fmt::Debug for Work<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("idempotency", &self.idempotency)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

/// Why work was not committed with its record.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkError {
    /// Another attempt owns the record, or there is none: this attempt must
    /// not have an effect. Whatever the handler answers, its client gets the
    /// other attempt's answer or `idempotency_outcome_unknown`.
    Fenced,
    /// The layer's claim is in another store than this one.
    OtherStore,
    /// The transaction is a savepoint of another: its commit would not be one.
    Nested,
    /// The record was locked for longer than a lease, or the handler had ended
    /// before.
    TooLate,
    /// The policy, or the response itself, says that it is not to be recorded
    /// ([`Recording::Forget`](crate::Recording::Forget)), while its effect was
    /// to be kept.
    NotRecorded,
    /// The database refused, or the connection to it broke, before the commit.
    Store(StoreError),
    /// The connection broke at the commit, and it may have taken effect.
    /// Whatever the handler answers, its client is told what the record says, or
    /// that the outcome is unknown. Where the commit is found to have been rolled
    /// back, the answer counts.
    Unknown(sqlx::Error),
}

impl WorkError {
    /// Whether surely nothing was committed.
    pub fn is_rolled_back(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fenced => "another attempt owns the record: the work was rolled back",
            Self::OtherStore => {
                "the claim was made in another store than the one that was to record the work"
            }
            Self::Nested => {
                "the transaction is a savepoint of another: give the outermost one"
            }
            Self::TooLate => {
                "the record was locked for longer than its lease, or the handler had ended: the work was rolled back"
            }
            Self::NotRecorded => {
                "the response is not to be recorded, so its work was rolled back"
            }
            Self::Store(_) => "the record could not be written: the work was rolled back",
            Self::Unknown(_) => "the connection broke at the commit, which may have taken effect",
        })
    }
}

impl Error for WorkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Unknown(error) => Some(error),
            _ => None,
        }
    }
}

/// Rolls back at once, so that nobody has to wait for the record. A connection
/// that cannot be told takes its transaction with it.
async fn undo<DB: Database>(transaction: Transaction<'_, DB>) {
    if let Err(error) = transaction.rollback().await {
        tracing::debug!(%error, "a refused transaction ends with its connection");
    }
}

/// How long until a row that somebody holds locked is tried again.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

const LOCKING: &str = "locking the record";
const COMMITTING: &str = "committing the work with its record";
