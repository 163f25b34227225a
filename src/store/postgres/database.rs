//! One PostgreSQL database: a pool, and how a statement is run on it.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, SqlSafeStr as _, SqlStr,
    pool::PoolConnection, postgres::PgArguments, query::Query,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    error::Failure,
    options::{self, Session, Settings, Source},
    schema,
    sql::{Schema, Statements},
    time::Time,
};
use crate::{
    clock::Clock,
    store::{StoreError, StoreIdentity},
};

/// What a store, or an archive of its own, is a handle to.
pub(crate) struct Database {
    identity: StoreIdentity,
    pub(super) pool: PgPool,
    owns_pool: bool,
    session: Session,
    begin: SqlStr,
    acquire_timeout: Duration,
    pub(super) statement_timeout: Duration,
    pub(crate) sql: Statements,
    schema: Option<Schema>,
    clock: Option<Arc<dyn Clock>>,
    pub(super) closing: CancellationToken,
    /// The lanes, and what goes on beside them.
    pub(super) tasks: TaskTracker,
}

/// Something to do with a connection, whole or not at all.
pub(crate) trait Operation: Send + Sync {
    /// What was tried, for an error's text.
    const WHAT: &'static str;

    /// Whether it may be run again when it is unknown whether it was run: a
    /// repetition changes nothing and is answered the same.
    const REPEATABLE: bool;

    /// For how long the server may work at it. Default: the statement timeout.
    const PATIENCE: Option<Duration> = None;

    type Answer: Send;

    /// Told that it was sent on a connection that broke, and is about to be run
    /// again.
    fn runs_again(&self) {}

    fn run(
        &self,
        db: &Database,
        conn: &mut PgConnection,
    ) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;
}

/// A connection that an operation is run on. It is closed when the operation
/// does not come to its end, broken or dropped: dropped while its transaction
/// begins, it would go back into the pool within it.
struct Taken(Kept);

impl Drop for Taken {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

/// A connection that is kept from one statement to the next, if there is one.
pub(super) type Kept = Option<PoolConnection<Postgres>>;

impl Database {
    /// Connects, and brings the schema up to date or finds out whether it is.
    pub(crate) async fn open(settings: &Settings) -> Result<Arc<Self>, StoreError> {
        let schema = settings.checked_schema()?;
        let (pool, session, mut conn) = options::connect(settings).await?;
        if settings.migrate {
            schema::migrate(&mut conn, schema.as_ref()).await?;
        } else {
            schema::verify(&mut conn, schema.as_ref()).await?;
        }
        schema::probe(&mut conn, schema.as_ref()).await?;
        let _already_gone = conn.close().await;
        let acquire_timeout = pool.options().get_acquire_timeout();
        Ok(Arc::new(Self {
            identity: StoreIdentity::new(),
            pool,
            owns_pool: matches!(settings.source, Source::Url(_)),
            session,
            begin: AssertSqlSafe(options::begin(session, settings.statement_timeout))
                .into_sql_str(),
            acquire_timeout,
            statement_timeout: settings.statement_timeout,
            sql: Statements::of(schema.as_ref()),
            schema,
            clock: settings.clock.clone(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }))
    }

    pub(crate) fn identity(&self) -> StoreIdentity {
        self.identity
    }

    pub(crate) fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// The time of a test's clock; none when the server's decides.
    pub(crate) fn test_time(&self) -> Option<Time> {
        let clock = self.clock.as_ref()?;
        Some(Time(clock.now()))
    }

    /// A statement, prepared for as long as the connection is ours to keep it.
    pub(crate) fn query<'q>(&self, sql: &SqlStr) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(sql.clone()).persistent(self.session.keeps_statements())
    }

    /// A statement that is planned every time, since a plan for an empty table
    /// may read all of a large one.
    pub(crate) fn query_once<'q>(sql: &SqlStr) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(sql.clone()).persistent(false)
    }

    /// Runs `operation` on some connection of the pool; it is committed when
    /// this returns.
    pub(crate) async fn run<O: Operation>(&self, operation: &O) -> Result<O::Answer, StoreError> {
        self.check_open(O::WHAT)?;
        let ran = self.run_on(&mut None, operation).await;
        ran.map_err(|failure| failure.into_store_error(O::WHAT))
    }

    /// The same on the connection that is kept, or on another, which is then
    /// kept: again for as long as transactions were in each other's way or
    /// connections turn out to be broken.
    pub(super) async fn run_on<O: Operation>(
        &self,
        kept: &mut Kept,
        operation: &O,
    ) -> Result<O::Answer, Failure> {
        let deadline = Instant::now() + self.patience();
        let (mut conflicts, mut broken) = (0, 0);
        // Others that were idle when the server went are broken too.
        let most_broken = self.pool.options().get_max_connections();
        loop {
            let failure = match self.attempt(kept, operation).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let is_over = Instant::now() >= deadline;
            if failure.is_conflict() && conflicts < MOST_CONFLICTS && !is_over {
                conflicts += 1;
                sleep(pause_after(conflicts)).await;
            } else if failure.is_lost() && O::REPEATABLE && broken < most_broken && !is_over {
                broken += 1;
                operation.runs_again();
            } else {
                return Err(failure);
            }
        }
    }

    async fn attempt<O: Operation>(
        &self,
        kept: &mut Kept,
        operation: &O,
    ) -> Result<O::Answer, Failure> {
        let conn = match kept.take() {
            Some(conn) => conn,
            None => self.pool.acquire().await?,
        };
        let mut taken = Taken(None);
        let conn = taken.0.insert(conn);
        let patience = O::PATIENCE.unwrap_or(self.statement_timeout);
        // The server gives up first, where it can.
        let ran = timeout(patience + GRACE, self.on(conn, operation, patience)).await;
        let ran = ran.unwrap_or(Err(Failure::TooSlow));
        if !ran.as_ref().is_err_and(Failure::is_broken) {
            *kept = taken.0.take();
        }
        ran
    }

    async fn on<O: Operation>(
        &self,
        conn: &mut PgConnection,
        operation: &O,
        patience: Duration,
    ) -> Result<O::Answer, Failure> {
        if self.session == Session::Own && O::PATIENCE.is_none() {
            return operation.run(self, conn).await;
        }
        let begin = if patience == self.statement_timeout {
            self.begin.clone()
        } else {
            AssertSqlSafe(options::begin(self.session, patience)).into_sql_str()
        };
        let mut transaction = conn.begin_with(begin).await?;
        let ran = operation.run(self, &mut transaction).await;
        match &ran {
            Ok(_) => transaction.commit().await?,
            // The server tells of an error before it lets go of the rows: the
            // next try must not find them locked.
            Err(failure) if !failure.is_broken() => transaction.rollback().await?,
            Err(_) => {}
        }
        ran
    }

    /// How long a call may take in all.
    pub(super) fn patience(&self) -> Duration {
        self.acquire_timeout + self.statement_timeout
    }

    /// Whether a connection may be kept without one to do something with it.
    pub(super) fn has_connections_to_spare(&self) -> bool {
        let pool = &self.pool;
        pool.num_idle() > 0 || pool.size() < pool.options().get_max_connections()
    }

    pub(crate) fn check_open(&self, what: &'static str) -> Result<(), StoreError> {
        if self.closing.is_cancelled() {
            return Err(StoreError::unavailable(what, "the store is closed"));
        }
        Ok(())
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        const WHAT: &str = "migrating";
        self.check_open(WHAT)?;
        let conn = self.pool.acquire().await;
        let mut conn = conn.map_err(|error| Failure::from(error).into_store_error(WHAT))?;
        schema::migrate(&mut conn, self.schema()).await
    }

    /// Lets what was accepted come to its end, then closes the pool if it is
    /// ours.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if self.owns_pool {
            self.pool.close().await;
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.pool.connect_options();
        f.debug_struct("Database")
            .field("identity", &self.identity)
            .field("host", &options.get_host())
            .field("port", &options.get_port())
            .field("database", &options.get_database())
            .field("schema", &self.schema.as_ref().map(Schema::name))
            .field("session", &self.session)
            .field("connections", &self.pool.size())
            .finish_non_exhaustive()
    }
}

/// Longer and longer, and never the same for two who are in each other's way.
fn pause_after(conflicts: u32) -> Duration {
    let jitter = uuid::Uuid::new_v4().as_bytes()[0];
    Duration::from_micros(u64::from(conflicts) * (200 + 8 * u64::from(jitter)))
}

/// How much longer than the server's own limit an answer is waited for.
pub(super) const GRACE: Duration = Duration::from_millis(250);

const MOST_CONFLICTS: u32 = 20;
