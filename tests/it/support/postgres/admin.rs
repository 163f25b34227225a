//! Statements about the server that is there for all tests, run apart from
//! every test.
//!
//! A value that is dropped cannot await, and the runtime of its test may be
//! blocked or gone by then: so one thread of its own runs these statements,
//! over a few connections that it keeps, as connecting costs more than they do.

use std::sync::{LazyLock, mpsc};

use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{runtime, sync::mpsc as jobs};

use super::server_url;

/// Runs statements, and returns when they are done.
pub(super) fn run(statements: String) -> sqlx::Result<()> {
    let (done, result) = mpsc::channel();
    let sent = ADMIN.send(Job { statements, done });
    sent.unwrap_or_else(|_| panic!("the thread runs as long as the tests"));
    result.recv().expect("every job is answered")
}

struct Job {
    statements: String,
    done: mpsc::Sender<sqlx::Result<()>>,
}

static ADMIN: LazyLock<jobs::UnboundedSender<Job>> = LazyLock::new(|| {
    let (admin, mut waiting) = jobs::unbounded_channel();
    let options = server_url().parse::<PgConnectOptions>();
    let options = options.expect("DATABASE_URL is that of a PostgreSQL server");
    // Nothing here waits for a lock for ever, nor tells what it drops.
    let options = options.options([("lock_timeout", "20s"), ("client_min_messages", "warning")]);
    std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let server = PgPoolOptions::new()
                .max_connections(CONNECTIONS)
                .connect_lazy_with(options);
            while let Some(job) = waiting.recv().await {
                tokio::spawn(work(server.clone(), job));
            }
        });
    });
    admin
});

async fn work(server: PgPool, job: Job) {
    let statements = sqlx::raw_sql(AssertSqlSafe(job.statements));
    let result = statements.execute(&server).await;
    // A test that has given up no longer wants to know.
    let _gone = job.done.send(result.map(drop));
}

const CONNECTIONS: u32 = 4;
