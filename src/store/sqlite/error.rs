//! What a failure of SQLite means to the caller, and to the writer.

use std::sync::Arc;

use sqlx::error::DatabaseError;

use crate::store::StoreError;

/// Why an [operation](super::Operation) has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A statement failed: its transaction is undone.
    Statement(sqlx::Error),
    /// The row that was read cannot be used, and nothing was written.
    Row(StoreError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Row(error)
    }
}

impl Failure {
    pub(super) fn into_store_error(self, what: &'static str) -> StoreError {
        match self {
            Self::Statement(error) => store_error(what, Arc::new(error)),
            Self::Row(error) => error,
        }
    }
}

/// The error of a caller who asked for `what`.
pub(super) fn store_error(what: &'static str, error: Arc<sqlx::Error>) -> StoreError {
    match code(&error).map(primary) {
        Some(SQLITE_READONLY) => StoreError::setup(
            "the database is read-only: let this process write to the file, to its directory and \
             to the -wal and -shm files beside it",
            error,
        ),
        Some(SQLITE_CANTOPEN) => StoreError::setup(
            "the database cannot be opened: create its directory, and let this process read and \
             write there",
            error,
        ),
        Some(SQLITE_PERM | SQLITE_AUTH) => StoreError::setup(
            "access to the database is denied: let this process read and write the file",
            error,
        ),
        Some(SQLITE_NOTADB) => StoreError::setup(
            "the file is no SQLite database: name another file in the URL, or remove this one",
            error,
        ),
        Some(SQLITE_ERROR) if says(&error, &["no such index"]) => StoreError::setup(
            "an index is missing: create it again, as the migration of this crate does",
            error,
        ),
        Some(SQLITE_ERROR) if says(&error, &MISSING_SCHEMA) => StoreError::setup(
            "the schema is missing or older than this crate: run SqliteStore::migrate, or open \
             the store with migrations on",
            error,
        ),
        Some(SQLITE_FULL) => {
            tracing::error!(%error, "no room for the idempotency store");
            StoreError::full("the disk, or the database's page limit")
        }
        _ => StoreError::unavailable(what, error),
    }
}

/// Another connection holds the lock, and went on holding it for the whole
/// busy timeout.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error).map(primary), Some(SQLITE_BUSY | SQLITE_LOCKED))
}

/// The connection is of no more use: another one has to be opened.
pub(super) fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => matches!(
            code(error).map(primary),
            Some(SQLITE_IOERR | SQLITE_CORRUPT | SQLITE_CANTOPEN | SQLITE_NOTADB)
        ),
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) => true,
        _ => false,
    }
}

/// A `ROLLBACK` that had nothing left to do: some failures undo the whole
/// transaction by themselves.
pub(super) fn is_rolled_back(error: &sqlx::Error) -> bool {
    says(error, &["no transaction is active"])
}

pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    says(error, &["no such table"])
}

fn says(error: &sqlx::Error, texts: &[&str]) -> bool {
    let error = error.as_database_error();
    let message = error.map(DatabaseError::message);
    message.is_some_and(|message| texts.iter().any(|text| message.contains(text)))
}

const MISSING_SCHEMA: [&str; 3] = ["no such table", "no such column", "has no column named"];

fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// The low byte of an extended result code.
fn primary(code: u32) -> u32 {
    code & 0xff
}

// https://www.sqlite.org/rescode.html
const SQLITE_ERROR: u32 = 1;
const SQLITE_PERM: u32 = 3;
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_IOERR: u32 = 10;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_AUTH: u32 = 23;
const SQLITE_NOTADB: u32 = 26;
