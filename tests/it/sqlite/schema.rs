//! Migrations, beside those of the user.

use axum_idempotency::store::{
    Store as _, StoreErrorKind,
    sqlite::{SqliteStore, migrator},
};
use sqlx::{
    SqlSafeStr as _,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{Fixture, key, open, request};

const TABLES: &str = "SELECT name FROM sqlite_schema WHERE name LIKE 'idempotency%'";

#[tokio::test]
async fn up_and_down_and_up_again() {
    let fixture = Fixture::new().await;
    fixture.claim(key("k")).await;
    let mut raw = fixture.raw().await;
    let tables = raw.rows(TABLES).await.len();
    assert_eq!(tables, 5, "three tables and two indexes");

    migrator().undo(&mut raw.0, 0).await.expect("down");
    assert!(raw.rows(TABLES).await.is_empty());
    assert_eq!(raw.count("_axum_idempotency_migrations").await, 0);
    let error = fixture.store.claim(request(key("k"))).await;
    let error = error.expect_err("no table");
    assert_eq!(error.kind(), StoreErrorKind::Setup);
    assert!(
        error.to_string().contains("SqliteStore::migrate"),
        "{error}"
    );
    let error = fixture.store.get(key("k")).await.expect_err("no table");
    assert_eq!(error.kind(), StoreErrorKind::Setup);

    fixture.store.migrate().await.expect("up");
    fixture.store.migrate().await.expect("nothing to do");
    assert_eq!(raw.rows(TABLES).await.len(), tables);
    fixture.claim(key("k")).await;
}

fn users_migrator() -> Migrator {
    let sql = "CREATE TABLE charges (id TEXT PRIMARY KEY)".into_sql_str();
    let kind = MigrationType::Simple;
    Migrator::with_migrations(vec![Migration::new(1, "charges".into(), kind, sql, false)])
}

#[tokio::test]
async fn the_users_migrations_and_ours_do_not_meet() {
    for users_come_first in [false, true] {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        if users_come_first {
            migrator().undo(&mut raw.0, 0).await.expect("down");
            raw.run("DROP TABLE _axum_idempotency_migrations").await;
        }
        users_migrator().run(&mut raw.0).await.expect("the user's");
        fixture.store.migrate().await.expect("ours");
        users_migrator().run(&mut raw.0).await.expect("the user's");
        fixture.store.migrate().await.expect("ours");
        raw.run("INSERT INTO charges VALUES ('ch_1')").await;
        fixture.claim(key("k")).await;
        for (bookkeeping, versions) in
            [("_sqlx_migrations", 1), ("_axum_idempotency_migrations", 2)]
        {
            assert_eq!(raw.count(bookkeeping).await, versions, "{bookkeeping}");
        }

        migrator().undo(&mut raw.0, 0).await.expect("down");
        assert_eq!(raw.count("charges").await, 1);
        assert_eq!(raw.count("_sqlx_migrations").await, 1);
    }
}

/// The text of the error that opening the fixture's file ends with.
async fn refused(fixture: &Fixture, migrate: bool) -> String {
    let opened = SqliteStore::builder().url(fixture.url()).migrate(migrate);
    let error = opened.open().await.expect_err("refused");
    assert_eq!(error.kind(), StoreErrorKind::Setup, "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_missing_migration_is_found_when_the_store_is_opened() {
    let fixture = Fixture::new().await;
    let checked = SqliteStore::builder().url(fixture.url()).migrate(false);
    checked.clone().open().await.expect("all is there");

    let mut raw = fixture.raw().await;
    migrator().undo(&mut raw.0, 0).await.expect("down");
    let text = refused(&fixture, false).await;
    assert!(text.contains("a migration is missing"), "{text}");
    raw.run("DROP TABLE _axum_idempotency_migrations").await;
    let text = refused(&fixture, false).await;
    assert!(text.contains("open the store with migrations on"), "{text}");

    open(&fixture.url(), &fixture.clock).await;
    checked.open().await.expect("all is there");
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused() {
    for (change, remedy) in [
        (
            "INSERT INTO _axum_idempotency_migrations
             SELECT 999, description, installed_on, success, checksum, execution_time
             FROM _axum_idempotency_migrations WHERE version = 1",
            "update this process",
        ),
        (
            "UPDATE _axum_idempotency_migrations SET checksum = x'00'",
            "of another build",
        ),
    ] {
        let fixture = Fixture::new().await;
        fixture.raw().await.run(change).await;
        for migrate in [true, false] {
            let text = refused(&fixture, migrate).await;
            assert!(text.contains(remedy), "{text}");
        }
    }
}

#[tokio::test]
async fn a_later_version_that_only_adds_is_lived_with() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    raw.run(
        "INSERT INTO _axum_idempotency_migrations
         SELECT 999, 'additive: a note', installed_on, success, x'00', execution_time
         FROM _axum_idempotency_migrations WHERE version = 1",
    )
    .await;
    raw.run("ALTER TABLE idempotency_keys ADD COLUMN note TEXT")
        .await;
    for migrate in [true, false] {
        let opened = SqliteStore::builder().url(fixture.url()).migrate(migrate);
        let store = opened.open().await.expect("a store");
        let claimed = store.claim(request(key(migrate))).await;
        claimed.expect("a claim");
    }
}

#[tokio::test]
async fn a_foreign_table_of_our_name_is_named_in_the_error() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    migrator().undo(&mut raw.0, 0).await.expect("down");
    raw.run("CREATE TABLE idempotency_keys (id TEXT)").await;
    let text = refused(&fixture, true).await;
    assert!(text.contains("rename or remove"), "{text}");
    assert_eq!(raw.rows(TABLES).await.len(), 1, "nothing is half done");
}

#[tokio::test]
async fn a_missing_index_is_an_error_and_not_a_slow_sweep() {
    let fixture = Fixture::new().await;
    let mut raw = fixture.raw().await;
    raw.run("DROP INDEX idempotency_keys_expires_at").await;
    let swept = fixture.store.sweep(None, 1).await.map(drop);
    let listed = fixture.store.expired(1).await.map(drop);
    for refused in [swept, listed] {
        let error = refused.expect_err("no index");
        assert_eq!(error.kind(), StoreErrorKind::Setup);
        assert!(error.to_string().contains("create it again"), "{error}");
    }
}
