//! What cannot be seen from outside: the settings of every connection, and
//! what the writer does when one breaks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection, query, query_scalar};
use tempfile::TempDir;
use tokio::sync::Barrier;

use super::{Database, Failure, Operation, Settings};
use crate::{
    clock::ManualClock,
    store::{StoreError, StoreErrorKind},
};

fn settings(url: String, readers: u32) -> Settings {
    Settings {
        url,
        clock: Arc::new(ManualClock::default()),
        readers,
        migrate: true,
    }
}

async fn on_file(readers: u32) -> (TempDir, Arc<Database>) {
    let dir = TempDir::new().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("a.db").display());
    let db = Database::open(settings(url, readers)).await;
    (dir, db.expect("a database"))
}

/// Reads settings; with a barrier, on as many connections at once.
struct Pragmas(Option<Arc<Barrier>>);

impl Operation for Pragmas {
    const WHAT: &'static str = "reading the settings";
    type Answer = (String, i64, i64, i64);

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Self::Answer, Failure> {
        if let Some(barrier) = &self.0 {
            barrier.wait().await;
        }
        let read = |name: &str| query_scalar(AssertSqlSafe(format!("PRAGMA {name}")));
        Ok((
            query_scalar("PRAGMA journal_mode")
                .fetch_one(&mut *conn)
                .await?,
            read("synchronous").fetch_one(&mut *conn).await?,
            read("busy_timeout").fetch_one(&mut *conn).await?,
            read("query_only").fetch_one(&mut *conn).await?,
        ))
    }
}

const FULL: i64 = 2;

#[tokio::test]
async fn every_connection_has_its_settings() {
    let (_dir, db) = on_file(3).await;
    let pragmas = |query_only| ("wal".to_owned(), FULL, 2_000, query_only);
    assert_eq!(
        db.write(Pragmas(None)).await.expect("an answer"),
        pragmas(0)
    );

    // No reader is given back before all three have been taken.
    let barrier = Arc::new(Barrier::new(3));
    let read = || db.read(Pragmas(Some(Arc::clone(&barrier))));
    let (a, b, c) = tokio::join!(read(), read(), read());
    for answer in [a, b, c] {
        assert_eq!(answer.expect("an answer"), pragmas(1));
    }

    db.write(Break::times(1)).await.expect("a new connection");
    assert_eq!(
        db.write(Pragmas(None)).await.expect("an answer"),
        pragmas(0)
    );
}

/// Writes a row, and then fails as often as it is told to, as if the connection
/// had broken.
struct Break {
    remaining: AtomicU32,
}

impl Break {
    fn times(times: u32) -> Self {
        Self {
            remaining: AtomicU32::new(times),
        }
    }
}

impl Operation for Break {
    const WHAT: &'static str = "breaking";
    type Answer = ();

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<(), Failure> {
        query("INSERT INTO idempotency_ttls VALUES (randomblob(16), 1, 1, 1)")
            .execute(&mut *conn)
            .await?;
        let left = self.remaining.load(Ordering::SeqCst);
        if left > 0 {
            self.remaining.store(left - 1, Ordering::SeqCst);
            return Err(sqlx::Error::WorkerCrashed.into());
        }
        Ok(())
    }
}

struct Count;

impl Operation for Count {
    const WHAT: &'static str = "counting";
    type Answer = i64;

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<i64, Failure> {
        let count = query_scalar("SELECT count(*) FROM idempotency_ttls");
        Ok(count.fetch_one(conn).await?)
    }
}

#[tokio::test]
async fn a_broken_connection_is_replaced_and_nothing_runs_twice() {
    let (_dir, db) = on_file(1).await;
    let jobs = (
        db.write(Break::times(0)),
        db.write(Break::times(1)),
        db.write(Count),
    );
    let (before, broken, after) = tokio::join!(jobs.0, jobs.1, jobs.2);
    before.expect("run again on a new connection");
    broken.expect("run again on a new connection");
    assert_eq!(after.expect("a count"), 2);

    let error = db.write(Break::times(2)).await.expect_err("broken again");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(db.write(Count).await.expect("a count"), 2);
    assert_eq!(db.read(Count).await.expect("a count"), 2);
}

#[tokio::test]
async fn a_database_in_memory_is_never_replaced_by_an_empty_one() {
    let db = Database::open(settings("sqlite::memory:".into(), 4)).await;
    let db = db.expect("a database");
    let answer = db.write(Break::times(1)).await;
    answer.expect("the connection had not really broken");
    assert_eq!(db.read(Count).await.expect("a count"), 1);
}

/// A transaction that somebody left open, or that SQLite ended by itself.
struct Stray(&'static str);

impl Operation for Stray {
    const WHAT: &'static str = "straying";
    type Answer = ();

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<(), Failure> {
        query(self.0).execute(conn).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_transaction_that_ended_by_itself_harms_nobody_after_it() {
    let (_dir, db) = on_file(1).await;
    for statement in ["ROLLBACK", "COMMIT", "no SQL", "BEGIN"] {
        let error = db.write(Stray(statement)).await.expect_err(statement);
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{statement}");
        db.write(Count).await.expect(statement);
    }
}

/// Runs one statement, with sixty-four kilobytes to put somewhere.
struct Run(&'static str);

impl Operation for Run {
    const WHAT: &'static str = "running";
    type Answer = ();

    async fn run(&self, conn: &mut SqliteConnection, _now: Timestamp) -> Result<(), Failure> {
        query(self.0).bind(vec![0; 1 << 16]).execute(conn).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_full_disk_refuses_what_does_not_fit_and_nothing_else() {
    let (_dir, db) = on_file(1).await;
    let limit = Run("PRAGMA max_page_count = 24");
    db.write(limit).await.expect("a limit");
    let too_much = Run("INSERT INTO idempotency_ttls VALUES (?1, 1, 1, 1)");
    let (before, full, after) = tokio::join!(
        db.write(Break::times(0)),
        db.write(too_much),
        db.write(Break::times(0)),
    );
    before.expect("it fits");
    after.expect("it fits");
    let error = full.expect_err("too much");
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert_eq!(db.read(Count).await.expect("a count"), 2);
}

#[tokio::test]
async fn a_corrupt_row_costs_its_batch_nothing() {
    struct Corrupt;
    impl Operation for Corrupt {
        const WHAT: &'static str = "reading";
        type Answer = ();

        async fn run(&self, _: &mut SqliteConnection, _: Timestamp) -> Result<(), Failure> {
            Err(StoreError::corrupt("token").into())
        }
    }
    let (_dir, db) = on_file(1).await;
    let (corrupt, written) = tokio::join!(db.write(Corrupt), db.write(Break::times(0)));
    let error = corrupt.expect_err("corrupt");
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    written.expect("written");
    assert_eq!(db.read(Count).await.expect("a count"), 1);
}

#[tokio::test]
async fn errors_of_a_read_only_database_name_the_remedy() {
    let (dir, db) = on_file(1).await;
    db.close().await;
    let url = format!("sqlite:{}?mode=ro", dir.path().join("a.db").display());
    let mut conn = SqliteConnection::connect(&url).await.expect("a connection");
    let insert = query("INSERT INTO idempotency_ttls VALUES (randomblob(16), 1, 1, 1)");
    let error = insert.execute(&mut conn).await.expect_err("read-only");
    let error = Failure::Statement(error).into_store_error("writing");
    assert_eq!(error.kind(), StoreErrorKind::Setup);
    assert!(
        error.to_string().contains("let this process write"),
        "{error}"
    );
}

/// A question that has no end.
struct Endless;

impl Operation for Endless {
    const WHAT: &'static str = "counting without an end";
    type Answer = i64;

    async fn run(&self, conn: &mut SqliteConnection, _: Timestamp) -> Result<i64, Failure> {
        let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                       SELECT count(*) FROM n";
        Ok(query_scalar(endless).fetch_one(conn).await?)
    }
}

#[tokio::test]
async fn a_question_that_takes_too_long_is_given_up() {
    let (_dir, db) = on_file(1).await;
    let given_up = db.inspect_within(Duration::ZERO, Endless).await;
    let error = given_up.expect_err("no answer");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains(Endless::WHAT), "{error}");
    db.close().await;
}
