//! `cargo bench --features postgres --bench postgres`: what PostgreSQL costs, as
//! ratios against plain statements in the same run. `DATABASE_URL` names the
//! server; `tests/postgres.sh` starts one.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people to read"
)]

use sqlx::{Connection as _, PgConnection};

mod archive;
mod fresh;
mod plain;

/// Where the store's tables live.
const SCHEMA: &str = "axum_idempotency_bench";

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let url = std::env::var("DATABASE_URL");
        let url = url.expect("DATABASE_URL: a server, such as that of tests/postgres.sh");
        let connection = PgConnection::connect(&url).await;
        let mut connection = connection.expect("a connection");
        sqlx::raw_sql(include_str!("plain_schema.sql"))
            .execute(&mut connection)
            .await
            .expect("the plain table");
        fresh::requests(&url).await;
        archive::sweeps(&url).await;
        archive::beside_a_sweep(&url).await;
        archive::lookups(&url).await;
    });
}
