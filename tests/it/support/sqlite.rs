//! A SQLite store in a directory that ends with the test.

use axum_idempotency::{ManualClock, store::sqlite::SqliteStore};

pub(crate) async fn open(clock: ManualClock) -> (SqliteStore, Files) {
    let files = Files::new();
    let url = format!("sqlite:{}", files.0.join("idempotency.db").display());
    let store = SqliteStore::builder().url(&url).clock(clock).open().await;
    (store.expect("a fresh database opens"), files)
}

pub(crate) struct Files(std::path::PathBuf);

impl Files {
    fn new() -> Self {
        let name = format!("axum-idempotency-{}", uuid::Uuid::new_v4());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory for temporary files");
        Self(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.0);
    }
}
