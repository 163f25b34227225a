//! Handlers that commit their work with the record: of an item of a batch, of a
//! job.

use std::{sync::Arc, time::Duration};

use axum::{http::StatusCode, response::Response};
use axum_idempotency::{
    Idempotency, RecordState, ScopedKey,
    archive::Archive,
    store::{Store, WorkError},
    webhook::{Adyen, AdyenItem},
    worker::{Delivery, Job, Worker},
};
use tokio::time::timeout;

/// The named tests over each store that can commit with the work.
macro_rules! on_every_sql_store {
    ($($test:ident),+ $(,)?) => {
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                let books = super::Books::sqlite().await;
                crate::support::in_time(super::$test(books)).await;
            })+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                let books = super::Books::postgres().await;
                crate::support::in_time(super::$test(books)).await;
            })+
        }
    };
}

on_every_sql_store!(
    an_item_whose_work_was_committed_with_its_record_is_not_completed_twice,
    an_item_that_fails_after_its_commit_is_done,
    an_item_whose_handler_goes_on_after_its_commit_is_not_cut_off,
    a_job_whose_work_was_committed_is_told_of_no_loss,
);

/// A store, and a table beside its records.
#[derive(Clone)]
struct Books {
    store: Arc<dyn Store>,
    archive: Arc<dyn Archive>,
    table: Table,
    _held: Arc<dyn std::any::Any + Send + Sync>,
}

#[derive(Clone)]
enum Table {
    #[cfg(feature = "sqlite")]
    Sqlite(
        axum_idempotency::store::sqlite::SqliteStore,
        sqlx::SqlitePool,
    ),
    #[cfg(feature = "postgres")]
    Postgres(
        axum_idempotency::store::postgres::PostgresStore,
        sqlx::PgPool,
    ),
}

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS notes (note text NOT NULL)";
const NOTE: &str = "INSERT INTO notes VALUES ('paid')";
const COUNT: &str = "SELECT count(*) FROM notes";

impl Books {
    #[cfg(feature = "sqlite")]
    async fn sqlite() -> Self {
        let files = tempfile::TempDir::new().expect("a directory");
        let url = format!("sqlite:{}", files.path().join("books.db").display());
        let store = axum_idempotency::store::sqlite::SqliteStore::open(&url).await;
        let store = store.expect("a fresh database opens");
        let pool = sqlx::SqlitePool::connect(&url).await.expect("a pool");
        sqlx::query(SCHEMA).execute(&pool).await.expect("a table");
        Self {
            archive: Arc::new(store.archive()),
            store: Arc::new(store.clone()),
            table: Table::Sqlite(store, pool),
            _held: Arc::new(files),
        }
    }

    #[cfg(feature = "postgres")]
    async fn postgres() -> Self {
        let schema = crate::support::postgres::Schema::new();
        let url = schema.url();
        Self::in_postgres(&url.clone(), &url, schema).await
    }

    /// The store at one address, the handler's pool at another.
    #[cfg(feature = "postgres")]
    async fn in_postgres(store: &str, pool: &str, held: impl std::any::Any + Send + Sync) -> Self {
        let store = axum_idempotency::store::postgres::PostgresStore::open(store).await;
        let store = store.expect("a fresh schema opens");
        let pool = sqlx::PgPool::connect(pool).await.expect("a pool");
        sqlx::query(SCHEMA).execute(&pool).await.expect("a table");
        Self {
            archive: Arc::new(store.archive()),
            store: Arc::new(store.clone()),
            table: Table::Postgres(store, pool),
            _held: Arc::new(held),
        }
    }

    fn worker(&self) -> Worker {
        let worker = Adyen::worker_dyn(Arc::clone(&self.store));
        let worker = worker.archive_dyn(Arc::clone(&self.archive)).lease(LEASE);
        worker.build().expect("settings that work")
    }

    /// Takes a note, and commits it with the record.
    async fn note(&self, attempt: &Idempotency) -> Result<Response, WorkError> {
        let response = (StatusCode::CREATED, "noted");
        match &self.table {
            #[cfg(feature = "sqlite")]
            Table::Sqlite(store, pool) => {
                let begun = pool.begin_with("BEGIN IMMEDIATE").await;
                let mut work = store.enlist(attempt, begun.expect("begun")).await?;
                sqlx::query(NOTE).execute(&mut *work).await.expect("noted");
                work.commit(response).await
            }
            #[cfg(feature = "postgres")]
            Table::Postgres(store, pool) => {
                let begun = pool.begin().await.expect("begun");
                let mut work = store.enlist(attempt, begun).await?;
                sqlx::query(NOTE).execute(&mut *work).await.expect("noted");
                work.commit(response).await
            }
        }
    }

    async fn notes(&self) -> i64 {
        let counted = match &self.table {
            #[cfg(feature = "sqlite")]
            Table::Sqlite(_, pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await,
            #[cfg(feature = "postgres")]
            Table::Postgres(_, pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await,
        };
        counted.expect("a count")
    }

    /// The record holds what was committed, not what came after it.
    async fn is_recorded_as_committed(&self, key: ScopedKey) {
        let record = self.store.get(key).await.expect("an answer");
        let record = record.expect("a record");
        assert_eq!(record.attempt, 1);
        let RecordState::Completed(done) = record.state else {
            panic!("it has an outcome, and not {:?}", record.state);
        };
        assert_eq!(done.status, 201, "it was completed twice");
        assert!(done.response.is_some(), "it was completed twice");
    }
}

async fn claimed(worker: &Worker, id: &str) -> Job {
    match worker.claim(id).await.expect("the store answers") {
        Delivery::Claimed(job) => job,
        other => panic!("{id} is to be done, and is {other:?}"),
    }
}

/// What a handler does after its commit.
#[derive(Clone, Copy)]
enum Then {
    Ends,
    Fails,
    /// For longer than its lease, unless it hears that this is lost.
    GoesOn,
}

const BATCH: &[u8] = br#"{"notificationItems":[{"NotificationRequestItem":{
    "eventCode":"CAPTURE","pspReference":"8851","success":"true"}}]}"#;

/// The statuses of one delivery and of a second one.
async fn delivered(books: &Books, then: Then) -> [u16; 2] {
    let adyen = Adyen::new(books.worker());
    let mut statuses = [0; 2];
    for status in &mut statuses {
        let books = books.clone();
        let handler = move |item: AdyenItem| {
            let books = books.clone();
            async move {
                let attempt = item.idempotency();
                books.note(attempt).await.expect("it commits");
                let key = attempt.scoped_key();
                match then {
                    Then::Ends => Ok(()),
                    Then::Fails => Err("as the test asked"),
                    Then::GoesOn => {
                        let lost = timeout(2 * LEASE, attempt.lease_lost()).await;
                        lost.expect_err("what is committed cannot be lost");
                        books.is_recorded_as_committed(key).await;
                        Ok(())
                    }
                }
            }
        };
        *status = adyen.deliver(BATCH, handler).await.status().as_u16();
    }
    assert_eq!(books.notes().await, 1, "an item was done twice");
    let id = "7:CAPTURE,4:8851,4:true";
    let id = axum_idempotency::IdempotencyKey::from_id(id).expect("an id");
    let queue = axum_idempotency::Principal::queue("webhook:adyen");
    let endpoint = (&http::Method::POST, "/");
    let key = books.worker().layer().scoped_key(&queue, endpoint, &id);
    books.is_recorded_as_committed(key).await;
    statuses
}

async fn an_item_whose_work_was_committed_with_its_record_is_not_completed_twice(books: Books) {
    assert_eq!(delivered(&books, Then::Ends).await, [200, 200]);
}

/// Its provider is told that it failed, delivers it again, and hears that it is
/// done.
async fn an_item_that_fails_after_its_commit_is_done(books: Books) {
    assert_eq!(delivered(&books, Then::Fails).await, [500, 200]);
}

async fn an_item_whose_handler_goes_on_after_its_commit_is_not_cut_off(books: Books) {
    assert_eq!(delivered(&books, Then::GoesOn).await, [200, 200]);
}

async fn a_job_whose_work_was_committed_is_told_of_no_loss(books: Books) {
    let worker = books.worker();
    let job = claimed(&worker, "m").await;
    books.note(job.idempotency()).await.expect("it commits");
    let lost = timeout(2 * LEASE, job.idempotency().lease_lost()).await;
    lost.expect_err("what is committed cannot be lost");
    assert!(!job.idempotency().is_lease_lost());
    job.complete(None).await.expect("it is recorded");
    let delivery = worker.claim("m").await.expect("the store answers");
    assert!(matches!(delivery, Delivery::Done(_)), "{delivery:?}");
}

/// The commit takes effect, and its answer is lost: the outcome is this job's
/// own, and stands.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_job_whose_commit_nobody_saw_end_is_not_told_that_another_has_taken_over() {
    crate::support::in_time(async {
        let schema = crate::support::postgres::Schema::new();
        let proxy = crate::support::postgres::Proxy::before(&schema.url());
        let books = Books::in_postgres(&schema.url(), &proxy.url(), schema.url()).await;
        let job = claimed(&books.worker(), "m").await;
        let key = job.idempotency().scoped_key();
        proxy.cut_answer_to("COMMIT");
        let unknown = books.note(job.idempotency()).await;
        assert!(matches!(unknown, Err(WorkError::Unknown(_))), "{unknown:?}");
        job.complete(None)
            .await
            .expect("it has committed that itself");
        books.is_recorded_as_committed(key).await;
        assert_eq!(books.notes().await, 1);
    })
    .await;
}

const LEASE: Duration = Duration::from_millis(600);
