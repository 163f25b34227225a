//! `cargo bench --features postgres --bench postgres`: what PostgreSQL costs, as
//! ratios against plain statements in the same run. `DATABASE_URL` names the
//! server; `tests/postgres.sh` starts one. After `--` come the names of what is to
//! be measured: fresh, lookup, sweep, beside, size; without any, all are.

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
        let names: Vec<String> = std::env::args()
            .skip(1)
            .filter(|argument| !argument.starts_with('-'))
            .collect();
        let is_wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
        if is_wanted("fresh") {
            fresh::requests(&url).await;
        }
        if is_wanted("lookup") {
            archive::lookups(&url).await;
        }
        if is_wanted("sweep") {
            archive::sweeps(&url).await;
        }
        if is_wanted("beside") {
            archive::beside_a_sweep(&url).await;
        }
        if is_wanted("size") {
            archive::live_size(&url).await;
        }
    });
}
