//! The one connection that writes, and the task that owns it.
//!
//! 1. Operations wait in a channel. The task takes all that wait, up to
//!    [`LARGEST_BATCH`], and runs them in one transaction: one sync of the disk
//!    for all. A lone operation goes at once.
//! 2. The clock is read per operation, under the write lock, so that no lease
//!    is shortened by the wait for it.
//! 3. Answers are given after the commit. What was sent is run, whether or not
//!    its caller still waits.
//! 4. A transaction in which a statement fails is rolled back, and its
//!    operations run again, each in a transaction of its own.
//! 5. Nothing is run twice that may have been committed: a commit that fails
//!    is answered [`StoreErrorKind::Unavailable`].
//! 6. A broken connection is replaced. That of an in-memory database is not:
//!    the records went with it.

use std::{future::Future, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection, query, sqlite::SqliteConnectOptions,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::{Failure, is_broken, is_rolled_back, store_error};
use crate::{clock::Clock, metrics, store::StoreError};

#[cfg(doc)]
use crate::store::StoreErrorKind;

/// Something to do with a connection, whole or not at all.
pub(crate) trait Operation: Send + Sync + 'static {
    /// What was tried, for an error's text.
    const WHAT: &'static str;

    type Answer: Send + Sync + 'static;

    /// Runs once, or again after a rollback. `now` is the store's time.
    fn run(
        &self,
        conn: &mut SqliteConnection,
        now: Timestamp,
    ) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

/// The way to the writing task. The task ends when the last one is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
    closing: CancellationToken,
    closed: CancellationToken,
}

impl Writer {
    /// Hands the connection to a task of the current runtime. `reopen` is how
    /// to replace it.
    pub(super) fn spawn(
        conn: SqliteConnection,
        reopen: Option<SqliteConnectOptions>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (jobs, waiting) = mpsc::channel(LONGEST_QUEUE);
        let (closing, closed) = (CancellationToken::new(), CancellationToken::new());
        let task = Task {
            waiting,
            closing: closing.clone(),
            conn: Some(conn),
            reopen,
            clock,
            _closed: closed.clone().drop_guard(),
        };
        tokio::spawn(task.run());
        Self {
            jobs,
            closing,
            closed,
        }
    }

    /// Runs `operation` in some transaction and waits for its commit.
    pub(super) async fn run<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Submitted {
            operation,
            outcome: None,
            caller,
        });
        let sent = self.jobs.send(job).await;
        sent.map_err(|_| StoreError::unavailable(O::WHAT, "the store is closed"))?;
        answer
            .await
            .map_err(|_| StoreError::unavailable(O::WHAT, "the store's writing task has ended"))?
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing.is_cancelled() || self.jobs.is_closed()
    }

    /// Accepts nothing more, and returns when all that was accepted has been
    /// answered and the connection is closed.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.closed.cancelled().await;
    }
}

/// Most operations in one transaction.
const LARGEST_BATCH: usize = 256;

/// Most operations that wait; the next caller waits for a place.
const LONGEST_QUEUE: usize = 4096;

/// An operation with its caller.
#[async_trait]
trait Job: Send {
    /// Runs the operation and keeps its answer until the commit. An error
    /// means that the transaction has to be rolled back.
    async fn run(&mut self, conn: &mut SqliteConnection, now: Timestamp)
    -> Result<(), sqlx::Error>;

    /// Gives the kept answer.
    fn answer(self: Box<Self>);

    fn fail(self: Box<Self>, error: Arc<sqlx::Error>);
}

struct Submitted<O: Operation> {
    operation: O,
    outcome: Option<Result<O::Answer, StoreError>>,
    caller: oneshot::Sender<Result<O::Answer, StoreError>>,
}

#[async_trait]
impl<O: Operation> Job for Submitted<O> {
    async fn run(
        &mut self,
        conn: &mut SqliteConnection,
        now: Timestamp,
    ) -> Result<(), sqlx::Error> {
        self.outcome = Some(match self.operation.run(conn, now).await {
            Ok(answer) => Ok(answer),
            Err(Failure::Row(error)) => Err(error),
            Err(Failure::Statement(error)) => return Err(error),
        });
        Ok(())
    }

    fn answer(self: Box<Self>) {
        if let Some(outcome) = self.outcome {
            // A caller that has gone does not want to know.
            let _ = self.caller.send(outcome);
        }
    }

    fn fail(self: Box<Self>, error: Arc<sqlx::Error>) {
        let _ = self.caller.send(Err(store_error(O::WHAT, error)));
    }
}

struct Task {
    waiting: mpsc::Receiver<Box<dyn Job>>,
    closing: CancellationToken,
    conn: Option<SqliteConnection>,
    reopen: Option<SqliteConnectOptions>,
    clock: Arc<dyn Clock>,
    _closed: DropGuard,
}

impl Task {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(LARGEST_BATCH);
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled(), if !self.waiting.is_closed() => self.waiting.close(),
                taken = self.waiting.recv_many(&mut batch, LARGEST_BATCH) => match taken {
                    0 => break,
                    _ => self.write(&mut batch).await,
                },
            }
        }
        if let Some(mut conn) = self.conn.take() {
            let checkpoint = query(include_str!("sql/checkpoint.sql"));
            let checkpointed = checkpoint.execute(&mut conn).await.map(drop);
            let closed = checkpointed.and(conn.close().await);
            if let Err(error) = closed {
                tracing::warn!(%error, "idempotency store: its log is left to whoever opens it next");
            }
        }
    }

    async fn write(&mut self, batch: &mut Vec<Box<dyn Job>>) {
        metrics::batch("transaction", batch.len());
        let Err(undone) = self.transact(batch).await else {
            for job in batch.drain(..) {
                job.answer();
            }
            return;
        };
        let again = undone.is_broken || (undone.stage == Stage::Run && batch.len() > 1);
        if undone.stage == Stage::Commit || !again {
            let error = Arc::new(undone.error);
            for job in batch.drain(..) {
                job.fail(Arc::clone(&error));
            }
            return;
        }
        tracing::warn!(
            error = %undone.error,
            operations = batch.len(),
            "idempotency store: a transaction failed, its operations are run one by one",
        );
        let mut unreachable = None;
        for mut job in batch.drain(..) {
            if let Some(error) = &unreachable {
                job.fail(Arc::clone(error));
                continue;
            }
            match self.transact(std::slice::from_mut(&mut job)).await {
                Ok(()) => job.answer(),
                Err(undone) => {
                    let error = Arc::new(undone.error);
                    if undone.stage == Stage::Begin {
                        unreachable = Some(Arc::clone(&error));
                    }
                    job.fail(error);
                }
            }
        }
    }

    /// Runs the jobs in one transaction, or leaves no trace of them, unless it
    /// is the commit that fails.
    async fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Undone> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.reopened().await.map_err(|error| Undone {
                stage: Stage::Begin,
                is_broken: false,
                error,
            })?,
        };
        let Err((stage, error)) = in_transaction(&mut conn, &*self.clock, jobs).await else {
            self.conn = Some(conn);
            return Ok(());
        };
        let mut broken = is_broken(&error);
        if stage != Stage::Begin {
            let rollback = query(include_str!("sql/rollback.sql"));
            let undone = rollback.execute(&mut conn).await;
            broken |= undone.is_err_and(|error| !is_rolled_back(&error));
        }
        // The records of an in-memory database live as long as its connection.
        if !broken || self.reopen.is_none() {
            self.conn = Some(conn);
        }
        Err(Undone {
            stage,
            is_broken: broken,
            error,
        })
    }

    async fn reopened(&self) -> Result<SqliteConnection, sqlx::Error> {
        match &self.reopen {
            Some(options) => {
                tracing::warn!("idempotency store: the writing connection is opened again");
                options.connect().await
            }
            None => Err(sqlx::Error::WorkerCrashed),
        }
    }
}

/// A transaction that was not committed, as far as is known.
struct Undone {
    stage: Stage,
    is_broken: bool,
    error: sqlx::Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Run,
    Commit,
}

async fn in_transaction(
    conn: &mut SqliteConnection,
    clock: &dyn Clock,
    jobs: &mut [Box<dyn Job>],
) -> Result<(), (Stage, sqlx::Error)> {
    // Not sqlx's own transactions: those lose count when SQLite rolls back by
    // itself.
    let begin = query(include_str!("sql/begin.sql")).execute(&mut *conn);
    begin.await.map_err(|error| (Stage::Begin, error))?;
    for job in jobs {
        let ran = job.run(conn, clock.now()).await;
        ran.map_err(|error| (Stage::Run, error))?;
    }
    let commit = query(include_str!("sql/commit.sql")).execute(&mut *conn);
    commit.await.map_err(|error| (Stage::Commit, error))?;
    Ok(())
}
