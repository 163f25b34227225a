//! A store and the table of a handler's effects, in one database.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use axum::response::{IntoResponse, Response};
use axum_idempotency::{
    Idempotency, ManualClock,
    store::{self, WorkError, postgres::PostgresStore, sqlite::SqliteStore},
};
use sqlx::{
    AssertSqlSafe, PgPool, Postgres, Sqlite, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use tempfile::TempDir;

use crate::support::{Backend, postgres::Schema};

/// Where handlers have their effects. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct Base {
    store: Store,
    url: String,
    /// The files, or the schema.
    _held: Arc<dyn Send + Sync + std::any::Any>,
}

#[derive(Clone, Debug)]
enum Store {
    Sqlite(SqliteStore, SqlitePool),
    Postgres(PostgresStore, PgPool),
}

/// The work of a handler.
#[derive(Debug)]
pub(super) enum Work {
    Sqlite(store::Work<'static, Sqlite>),
    Postgres(store::Work<'static, Postgres>),
}

/// What is told of an effect that was had twice.
pub(super) const EFFECTS: &str = "CREATE TABLE effects (name TEXT UNIQUE)";

impl Base {
    pub(super) async fn sqlite() -> (Self, Backend) {
        let clock = ManualClock::default();
        let files = TempDir::new().expect("a directory");
        let url = format!("sqlite:{}", files.path().join("shop.db").display());
        let store = SqliteStore::builder().url(&url).clock(clock.clone());
        let store = store.open().await.expect("a fresh database opens");
        let options = SqliteConnectOptions::from_str(&url).expect("a URL");
        let pool = SqlitePoolOptions::new()
            .max_connections(32)
            .connect_with(options.busy_timeout(BUSY));
        let base = Self {
            store: Store::Sqlite(store.clone(), pool.await.expect("a pool")),
            url,
            _held: Arc::new(files),
        };
        base.run(EFFECTS).await;
        let archive = store.archive();
        let backend = Backend::over(store, archive, ()).under(clock);
        (base, backend)
    }

    pub(super) async fn postgres() -> (Self, Backend) {
        let schema = Schema::new();
        let url = schema.url();
        Self::postgres_by_way_of(schema, &url).await
    }

    /// In a schema, of which the handler's transactions know by this URL.
    pub(super) async fn postgres_by_way_of(schema: Schema, handlers: &str) -> (Self, Backend) {
        let clock = ManualClock::default();
        let builder = PostgresStore::builder().url(schema.url());
        let store = builder.clock(clock.clone()).open().await;
        let store = store.expect("a fresh schema opens");
        let pool = PgPoolOptions::new().max_connections(8).connect(handlers);
        let base = Self {
            store: Store::Postgres(store.clone(), pool.await.expect("a pool")),
            url: schema.url(),
            _held: Arc::new(schema),
        };
        base.run(EFFECTS).await;
        let archive = store.archive();
        let backend = Backend::over(store, archive, ()).under(clock);
        (base, backend)
    }

    /// The same, as another process has it.
    pub(super) async fn reopened(&self, clock: ManualClock) -> (Self, Backend) {
        let (store, backend) = match &self.store {
            Store::Sqlite(_, pool) => {
                let store = SqliteStore::builder().url(&self.url).clock(clock.clone());
                let store = store.open().await.expect("it is there");
                let backend = Backend::over(store.clone(), store.archive(), ());
                (Store::Sqlite(store, pool.clone()), backend)
            }
            Store::Postgres(_, pool) => {
                let store = PostgresStore::builder().url(&self.url).clock(clock.clone());
                let store = store.open().await.expect("it is there");
                let backend = Backend::over(store.clone(), store.archive(), ());
                (Store::Postgres(store, pool.clone()), backend)
            }
        };
        let base = Self {
            store,
            ..self.clone()
        };
        (base, backend.under(clock))
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Begins work, or says why not.
    pub(super) async fn try_begin(&self, idempotency: &Idempotency) -> Result<Work, WorkError> {
        Ok(match &self.store {
            Store::Sqlite(store, pool) => {
                let transaction = pool.begin_with("BEGIN IMMEDIATE").await;
                let transaction = transaction.map_err(store_error)?;
                Work::Sqlite(store.enlist(idempotency, transaction).await?)
            }
            Store::Postgres(store, pool) => {
                let transaction = pool.begin().await.map_err(store_error)?;
                Work::Postgres(store.enlist(idempotency, transaction).await?)
            }
        })
    }

    pub(super) async fn begin(&self, idempotency: &Idempotency) -> Work {
        let begun = self.try_begin(idempotency).await;
        begun.expect("the attempt owns its record")
    }

    /// Why a savepoint, or another store on the same records, is not taken.
    pub(super) async fn refusals(&self, idempotency: &Idempotency) -> [WorkError; 2] {
        match &self.store {
            Store::Sqlite(store, pool) => {
                let mut outer = pool.begin().await.expect("a transaction");
                let nested = sqlx::Acquire::begin(&mut outer).await.expect("a savepoint");
                let nested = store.enlist(idempotency, nested).await;
                let nested = nested.expect_err("a savepoint is no transaction");
                drop(outer);
                let other = SqliteStore::open(&self.url).await.expect("a store");
                let other = other.enlist(idempotency, pool.begin().await.expect("one"));
                [nested, other.await.expect_err("another store")]
            }
            Store::Postgres(store, pool) => {
                let mut outer = pool.begin().await.expect("a transaction");
                let nested = sqlx::Acquire::begin(&mut outer).await.expect("a savepoint");
                let nested = store.enlist(idempotency, nested).await;
                let nested = nested.expect_err("a savepoint is no transaction");
                drop(outer);
                let other = PostgresStore::open(&self.url).await.expect("a store");
                let other = other.enlist(idempotency, pool.begin().await.expect("one"));
                [nested, other.await.expect_err("another store")]
            }
        }
    }

    pub(super) async fn run(&self, sql: &str) {
        let sql = AssertSqlSafe(sql);
        let done = match &self.store {
            Store::Sqlite(_, pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
            Store::Postgres(_, pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
        };
        done.expect("the statement runs");
    }

    /// How many effects there are.
    pub(super) async fn effects(&self) -> i64 {
        const COUNT: &str = "SELECT count(*) FROM effects";
        let count = match &self.store {
            Store::Sqlite(_, pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await,
            Store::Postgres(_, pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await,
        };
        count.expect("the table is there")
    }

    /// Whether one writer keeps all others waiting.
    pub(super) fn has_one_writer(&self) -> bool {
        matches!(self.store, Store::Sqlite(..))
    }
}

impl Work {
    /// Has the effect of this name.
    pub(super) async fn have_effect(&mut self, name: &str) {
        let had = self.try_effect(name).await;
        had.expect("nobody had it before");
    }

    pub(super) async fn try_effect(&mut self, name: &str) -> sqlx::Result<()> {
        self.run(&format!("INSERT INTO effects (name) VALUES ('{name}')"))
            .await
    }

    pub(super) async fn run(&mut self, sql: &str) -> sqlx::Result<()> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Sqlite(work) => sql.execute(&mut **work).await.map(drop),
            Self::Postgres(work) => sql.execute(&mut **work).await.map(drop),
        }
    }

    pub(super) async fn try_commit(
        self,
        response: impl IntoResponse,
    ) -> Result<Response, WorkError> {
        match self {
            Self::Sqlite(work) => work.commit(response).await,
            Self::Postgres(work) => work.commit(response).await,
        }
    }

    pub(super) async fn commit(self, response: impl IntoResponse) -> Response {
        self.try_commit(response).await.expect("it is committed")
    }

    pub(super) async fn roll_back(self) {
        let rolled_back = match self {
            Self::Sqlite(work) => work.roll_back().await,
            Self::Postgres(work) => work.roll_back().await,
        };
        rolled_back.expect("it is rolled back");
    }
}

fn store_error(error: sqlx::Error) -> WorkError {
    WorkError::Store(store::StoreError::unavailable("beginning", error))
}

/// Shorter than that of the store's own writer.
const BUSY: Duration = Duration::from_secs(5);
