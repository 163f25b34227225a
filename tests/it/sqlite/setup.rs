//! What cannot be opened says how to make it so.

use std::fs;

use axum_idempotency::{
    archive::SqliteArchive,
    store::{StoreErrorKind, sqlite::SqliteStore},
};
use tempfile::TempDir;

async fn remedy(url: &str) -> String {
    let error = SqliteStore::open(url).await.expect_err(url);
    assert_eq!(error.kind(), StoreErrorKind::Setup, "{url}: {error}");
    error.to_string()
}

#[tokio::test]
async fn a_wrong_url() {
    for url in ["", "charges.db", "postgres://localhost/charges", "sqlite:"] {
        let text = remedy(url).await;
        assert!(text.contains("write sqlite:FILE"), "{text}");
    }
    let error = SqliteArchive::open("memory:").await.expect_err("a URL");
    assert_eq!(error.kind(), StoreErrorKind::Setup);
    let unset = SqliteStore::builder().open().await.expect_err("no URL");
    assert_eq!(unset.kind(), StoreErrorKind::Setup);
}

#[tokio::test]
async fn a_directory_that_is_missing() {
    let dir = TempDir::new().expect("a directory");
    let text = remedy(&format!("sqlite:{}/no/a.db", dir.path().display())).await;
    assert!(text.contains("create its directory"), "{text}");
}

#[tokio::test]
async fn a_directory_in_place_of_the_file() {
    let dir = TempDir::new().expect("a directory");
    let text = remedy(&format!("sqlite:{}", dir.path().display())).await;
    assert!(text.contains("cannot be opened"), "{text}");
}

#[tokio::test]
async fn a_file_that_has_to_be_there_already() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("a.db");
    let text = remedy(&format!("sqlite:{}?mode=rw", file.display())).await;
    assert!(text.contains("cannot be opened"), "{text}");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_file_that_is_no_database() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("a.db");
    fs::write(&file, "not a database".repeat(1_000)).expect("a file");
    let text = remedy(&format!("sqlite:{}", file.display())).await;
    assert!(text.contains("name another file"), "{text}");
}

#[tokio::test]
async fn a_database_to_be_read_only() {
    let dir = TempDir::new().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("a.db").display());
    SqliteStore::open(&url).await.expect("a store");
    for option in ["mode=ro", "immutable=1"] {
        let text = remedy(&format!("{url}?{option}")).await;
        assert!(text.contains("the URL cannot be used"), "{text}");
    }
}
