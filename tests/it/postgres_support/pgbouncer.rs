//! The pooler.

use sqlx::Row as _;
use tokio::time::timeout;

use super::{SILENCE, connect, run};
use crate::support::{
    in_time,
    postgres::{Database, PgBouncer},
};

#[tokio::test]
async fn a_connection_to_the_server_is_a_clients_for_one_transaction() {
    in_time(async {
        let database = Database::new();
        let pooler = PgBouncer::before(&database.url(), 1).await;
        let mut one = connect(&pooler.url()).await;
        let mut other = connect(&pooler.url()).await;
        run(&mut one, "SELECT 1").await;
        run(&mut other, "SELECT 1").await;

        run(&mut one, "BEGIN").await;
        let waits = timeout(SILENCE, run(&mut other, "SELECT 1")).await;
        waits.expect_err("the only connection is taken");
        run(&mut one, "COMMIT").await;
        let mut another = connect(&pooler.url()).await;
        run(&mut another, "SELECT 1").await;
    })
    .await;
}

#[tokio::test]
async fn pools_are_as_large_as_asked_for() {
    in_time(async {
        let database = Database::new();
        let pooler = PgBouncer::before(&database.url(), 3).await;
        let mut client = connect(&pooler.url()).await;
        run(&mut client, "SELECT 1").await;

        let mut console = connect(&pooler.console_url()).await;
        let databases = sqlx::raw_sql("SHOW DATABASES")
            .fetch_all(&mut console)
            .await;
        let databases = databases.expect("the console answers");
        let ours = |row: &&sqlx::postgres::PgRow| row.get::<String, _>("name") == database.name();
        let ours = databases
            .iter()
            .find(ours)
            .expect("a pool for the database");
        assert_eq!(ours.get::<i32, _>("pool_size"), 3);
        let pools = sqlx::raw_sql("SHOW POOLS").fetch_all(&mut console).await;
        let pools = pools.expect("the console answers");
        let mode = |row: &sqlx::postgres::PgRow| row.get::<String, _>("pool_mode");
        assert!(pools.iter().any(|row| mode(row) == "transaction"));
    })
    .await;
}
