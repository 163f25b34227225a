//! Migrations, beside those of the user.

use std::collections::BTreeSet;

use axum_idempotency::store::{
    Store as _, StoreErrorKind,
    postgres::{PostgresStore, migrator},
};
use futures_util::future::join_all;
use sqlx::{
    SqlSafeStr as _,
    migrate::{Migration, MigrationType, Migrator},
};
use tokio::sync::Barrier;

use super::{Fixture, Raw, claim, in_time, key, request};
use crate::support::postgres::{Database, Schema};

const TABLES: &str = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
                      WHERE nspname = current_schema() AND relname LIKE 'idempotency%'";

#[tokio::test]
async fn up_and_down_and_up_again() {
    in_time(async {
        let fixture = Fixture::new().await;
        fixture.claim(key("k")).await;
        let mut raw = fixture.raw().await;
        let tables: i64 = raw.get(TABLES).await;
        assert_eq!(tables, 7, "three tables, their keys, and an index");

        migrator().undo(&mut raw.0, 0).await.expect("down");
        assert_eq!(raw.get::<i64>(TABLES).await, 0);
        let applied = "SELECT count(*) FROM _axum_idempotency_migrations";
        assert_eq!(raw.get::<i64>(applied).await, 0);
        let error = fixture.store.claim(request(key("k"))).await;
        assert_eq!(error.expect_err("no table").kind(), StoreErrorKind::Setup);

        fixture.store.migrate().await.expect("up");
        fixture.store.migrate().await.expect("nothing to do");
        assert_eq!(raw.get::<i64>(TABLES).await, tables);
        fixture.claim(key("k")).await;

        // By hand, the other way round.
        migrator().undo(&mut raw.0, 0).await.expect("down");
        migrator().run(&mut raw.0).await.expect("up");
        migrator().run(&mut raw.0).await.expect("nothing to do");
        fixture.store.migrate().await.expect("nothing to do");
        fixture.claim(key("k")).await;
    })
    .await;
}

fn users_migrator() -> Migrator {
    let sql = "CREATE TABLE charges (id text PRIMARY KEY)".into_sql_str();
    let kind = MigrationType::Simple;
    Migrator::with_migrations(vec![Migration::new(1, "charges".into(), kind, sql, false)])
}

#[tokio::test]
async fn the_users_migrations_and_ours_do_not_meet() {
    for users_come_first in [false, true] {
        in_time(async {
            let schema = Schema::new();
            let mut raw = Raw::connect(&schema.url()).await;
            if users_come_first {
                users_migrator().run(&mut raw.0).await.expect("the user's");
            }
            let store = PostgresStore::open(&schema.url()).await.expect("ours");
            users_migrator().run(&mut raw.0).await.expect("the user's");
            store.migrate().await.expect("ours");
            migrator().run(&mut raw.0).await.expect("ours, by hand");
            users_migrator().run(&mut raw.0).await.expect("the user's");
            for (table, expected) in [
                ("_sqlx_migrations", &[1][..]),
                ("_axum_idempotency_migrations", &[1, 2]),
            ] {
                let versions = format!("SELECT array_agg(version ORDER BY version) FROM {table}");
                let versions: Vec<i64> = raw.get(&versions).await;
                assert_eq!(versions, expected, "{table}");
            }
            claim(&store, request(key("k"))).await;
            raw.run("INSERT INTO charges VALUES ('ch_1')").await;
            migrator().undo(&mut raw.0, 0).await.expect("ours, down");
            users_migrator().run(&mut raw.0).await.expect("the user's");
            assert_eq!(raw.get::<i64>("SELECT count(*) FROM charges").await, 1);
        })
        .await;
    }
}

#[tokio::test]
async fn processes_that_start_together_all_find_what_they_need() {
    const PROCESSES: usize = 10;
    for schema in [None, Some("Idempotency \"of\" the; shop")] {
        in_time(async {
            let database = Database::new();
            let start = Barrier::new(PROCESSES);
            let processes = (0..PROCESSES).map(|_| async {
                let mut builder = PostgresStore::builder()
                    .url(database.url())
                    .max_connections(2);
                if let Some(schema) = schema {
                    builder = builder.schema(schema);
                }
                start.wait().await;
                builder.open().await.expect("a store")
            });
            for (n, store) in join_all(processes).await.into_iter().enumerate() {
                claim(&store, request(key(n))).await;
                store.close().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_schema_whose_name_needs_quotes_holds_all_tables() {
    in_time(async {
        for name in [
            "Shop",
            "with space",
            "say \"so\"",
            "select",
            "ünï",
            "idempotency_keys",
        ] {
            let database = Database::new();
            let store = PostgresStore::builder().url(database.url()).schema(name);
            let store = store.open().await.expect(name);
            super::plans::all_operations(&store, 0).await;
            store.migrate().await.expect("nothing to do");
            let mut raw = Raw::connect(&database.url()).await;
            let schemas: Vec<String> = raw
                .get(
                    "SELECT array_agg(DISTINCT schemaname::text) FROM pg_tables \
                     WHERE tablename LIKE '%idempotency%'",
                )
                .await;
            assert_eq!(schemas, [name]);
        }
    })
    .await;
}

/// Tables and columns as the migrations of a dialect make them.
fn columns_of(dialect: &str) -> BTreeSet<String> {
    let directory = format!("{}/migrations/{dialect}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&directory).expect(&directory);
    let files = files.map(|file| file.expect(&directory).path());
    let ups = files.filter(|path| path.to_string_lossy().ends_with(".up.sql"));
    let mut columns = BTreeSet::new();
    for path in ups {
        let sql = std::fs::read_to_string(&path).expect(&directory);
        columns.extend(columns_in(&sql));
    }
    columns
}

fn columns_in(sql: &str) -> BTreeSet<String> {
    let mut columns = BTreeSet::new();
    for table in sql.split("CREATE TABLE ").skip(1) {
        let (name, rest) = table.split_once('(').expect("columns");
        let (body, _) = rest.split_once("\n)").expect("their end");
        // The lines that begin with a name in lower case.
        let lines = body
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let names = lines.filter(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
        columns.extend(names.map(|column| format!("{}.{column}", name.trim())));
    }
    for change in sql.split("ALTER TABLE ").skip(1) {
        let (table, rest) = change.split_once(" ADD COLUMN ").expect("a column");
        let column = rest.split_whitespace().next().expect("a name");
        columns.insert(format!("{table}.{column}"));
    }
    columns
}

#[test]
fn the_dialects_have_the_same_tables_and_columns() {
    let postgres = columns_of("postgres");
    assert!(
        postgres.contains("idempotency_keys.scoped_key"),
        "{postgres:?}"
    );
    assert!(
        postgres.contains("idempotency_keys.completed_at"),
        "{postgres:?}"
    );
    assert_eq!(postgres, columns_of("sqlite"));
}
