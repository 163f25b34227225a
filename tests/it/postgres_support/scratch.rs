//! Schemas and databases of a test's own.

use super::{ask, connect, count_notes, make_notes, run, take_note};
use crate::support::{
    in_time,
    postgres::{Database, Schema, server_url},
};

#[tokio::test]
async fn what_is_made_in_a_schema_is_there_for_its_url_only() {
    in_time(async {
        let (one, other) = (Schema::new(), Schema::new());
        for schema in [&one, &other] {
            let mut client = connect(&schema.url()).await;
            make_notes(&mut client).await;
            take_note(&mut client, "a note").await.unwrap();
            assert_eq!(count_notes(&mut client).await, 1);
            let current: String = ask(&mut client, "SELECT current_schema()::text").await;
            assert_eq!(current, schema.name());
        }
    })
    .await;
}

#[tokio::test]
async fn a_schema_is_dropped_under_a_transaction_that_was_left_open() {
    in_time(async {
        let schema = Schema::new();
        let name = schema.name().to_owned();
        let mut client = connect(&schema.url()).await;
        make_notes(&mut client).await;
        run(&mut client, "BEGIN; LOCK TABLE notes").await;
        drop(schema);
        take_note(&mut client, "too late").await.unwrap_err();
        assert!(!exists("SELECT nspname::text FROM pg_namespace", &name).await);
    })
    .await;
}

#[tokio::test]
async fn a_database_is_dropped_with_everybody_in_it() {
    in_time(async {
        let database = Database::new();
        let name = database.name().to_owned();
        let mut client = connect(&database.url()).await;
        make_notes(&mut client).await;
        assert!(exists("SELECT datname::text FROM pg_database", &name).await);
        drop(database);
        take_note(&mut client, "too late").await.unwrap_err();
        assert!(!exists("SELECT datname::text FROM pg_database", &name).await);
    })
    .await;
}

#[tokio::test]
async fn a_database_has_parameters_of_its_own() {
    in_time(async {
        let database = Database::new().with("default_transaction_isolation", "serializable");
        let mut client = connect(&database.url()).await;
        let isolation: String = ask(&mut client, "SHOW transaction_isolation").await;
        assert_eq!(isolation, "serializable");
    })
    .await;
}

async fn exists(names: &'static str, name: &str) -> bool {
    let mut client = connect(&server_url()).await;
    let names: Vec<String> = sqlx::query_scalar(names)
        .fetch_all(&mut client)
        .await
        .unwrap();
    names.iter().any(|found| found == name)
}
