//! Whether what the tests of the PostgreSQL store stand on holds: scratch
//! places, servers that crash, proxies that cut, and a pooler.

mod cluster;
mod pgbouncer;
mod proxy;
mod scratch;

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

async fn connect(url: &str) -> PgConnection {
    let connected = PgConnection::connect(url).await;
    connected.expect("the server takes a connection")
}

/// Runs statements that must succeed, by the simple protocol.
async fn run(client: &mut PgConnection, statements: &str) {
    let run = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
    run.execute(client).await.expect("statements that succeed");
}

/// The one value that a query gives, by the extended protocol.
async fn ask<T>(client: &mut PgConnection, query: &'static str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let asked = sqlx::query_scalar(query).fetch_one(client).await;
    asked.expect("a query that succeeds")
}

/// Makes a table of notes, and counts those that are in it.
async fn make_notes(client: &mut PgConnection) {
    run(client, "CREATE TABLE notes (note text NOT NULL)").await;
}

async fn count_notes(client: &mut PgConnection) -> i64 {
    ask(client, "SELECT count(*) FROM notes").await
}

/// Takes a note by the extended protocol, as stores do.
async fn take_note(client: &mut PgConnection, note: &str) -> sqlx::Result<()> {
    let insert = sqlx::query("INSERT INTO notes VALUES ($1)").bind(note);
    insert.execute(client).await.map(drop)
}

/// How long nothing may come from a server that does not answer.
const SILENCE: Duration = Duration::from_millis(300);
