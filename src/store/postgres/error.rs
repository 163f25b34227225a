//! What a failure of PostgreSQL means to the caller, and whether another try
//! may end better.

use std::{borrow::Cow, error::Error, fmt, io, sync::Arc};

use sqlx::error::DatabaseError;

use crate::store::StoreError;

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server or the connection to it.
    Statement(Arc<sqlx::Error>),
    /// The row that was read cannot be used.
    Row(StoreError),
    /// No answer within the time allowed. What the server makes of the statement
    /// is unknown.
    TooSlow,
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(Arc::new(error))
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
            Self::Row(error) => error,
            failure => failure.to_store_error(what),
        }
    }

    /// The same for one of several callers.
    pub(super) fn to_store_error(&self, what: &'static str) -> StoreError {
        match self {
            Self::Statement(error) => store_error(what, Arc::clone(error)),
            Self::Row(error) => StoreError::unavailable(what, error.causes().to_string()),
            Self::TooSlow => StoreError::unavailable(what, "no answer in time"),
        }
    }

    /// Two transactions were in each other's way: the one that was undone is to
    /// be tried again.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.code().as_deref(), Some("40001" | "40P01"))
    }

    /// Another transaction held a lock for longer than was to be waited.
    pub(super) fn is_locked(&self) -> bool {
        self.code().as_deref() == Some("55P03")
    }

    /// The connection ended, and the server can be asked again on another.
    pub(super) fn is_lost(&self) -> bool {
        self.is_broken() && !matches!(self, Self::TooSlow)
    }

    /// One row of several may have caused it, so that the others are worth
    /// asking by themselves.
    pub(super) fn may_be_of_one_row(&self) -> bool {
        match self {
            Self::Statement(error) => {
                error.as_database_error().is_some()
                    && !is_broken(error)
                    && remedy(error).is_none()
                    && code(error).as_deref() != Some("57014")
            }
            Self::Row(_) => true,
            Self::TooSlow => false,
        }
    }

    /// The archive has no partition for a row.
    pub(crate) fn is_missing_partition(&self) -> bool {
        let Self::Statement(error) = self else {
            return false;
        };
        // Check violation, of which only this one has no constraint.
        let error = error.as_database_error();
        error.is_some_and(|error| {
            error.code().as_deref() == Some("23514") && error.constraint().is_none()
        })
    }

    /// The connection is of no more use, or may not be.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Statement(error) => is_broken(error),
            Self::Row(_) => false,
            Self::TooSlow => true,
        }
    }

    pub(super) fn code(&self) -> Option<String> {
        match self {
            Self::Statement(error) => code(error),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Statement(error) => fmt::Display::fmt(error, f),
            Self::Row(error) => fmt::Display::fmt(&error.causes(), f),
            Self::TooSlow => f.write_str("no answer in time"),
        }
    }
}

/// The error of a caller who asked for `what`.
pub(super) fn store_error(what: &'static str, error: Arc<sqlx::Error>) -> StoreError {
    match remedy(&error) {
        Some(remedy) => StoreError::setup(remedy, Shared(error)),
        None => StoreError::unavailable(what, Shared(error)),
    }
}

pub(super) const WRONG_URL: &str =
    "the URL cannot be used: write postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// What to do about an error that goes on until somebody does it.
fn remedy(error: &sqlx::Error) -> Option<&'static str> {
    if let sqlx::Error::Configuration(_) = error {
        return Some(WRONG_URL);
    }
    if let sqlx::Error::Tls(_) = error {
        return Some(
            "TLS cannot be used with this server: check sslmode in the URL, and add a feature \
             such as sqlx/tls-rustls",
        );
    }
    Some(match code(error)?.as_str() {
        "28000" | "28P01" => {
            "the server refuses this user: check user and password in the URL, and pg_hba.conf"
        }
        "3D000" => "there is no such database: create it, or name another one in the URL",
        "3F000" => "there is no such schema: create it, or open the store with migrations on",
        "42501" => {
            "a permission is missing: let the role use and create in the schema, or run the \
             migrations as its owner and grant SELECT, INSERT, UPDATE and DELETE on the tables"
        }
        "42P01" | "42703" => {
            "the schema is missing or older than this crate: run PostgresStore::migrate, or open \
             the store with migrations on"
        }
        "25006" => "the database is read-only: connect to the primary, with a role that may write",
        "26000" | "42P05" | "08P01" => {
            "a proxy keeps no prepared statements: open the store with named_statements(false)"
        }
        _ => return None,
    })
}

pub(super) fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Tls(_) => true,
        // Connection exceptions, a server that stops or has just begun, a
        // proxy that lost its server.
        sqlx::Error::Database(_) => code(error).is_some_and(|code| {
            code.starts_with("08") || code.starts_with("57P") || code == "25P03" || code == "58000"
        }),
        _ => false,
    }
}

/// The server is there, but not for us yet.
pub(super) fn is_refused(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

fn code(error: &sqlx::Error) -> Option<String> {
    error
        .as_database_error()
        .and_then(DatabaseError::code)
        .map(Cow::into_owned)
}

/// One error of a batch, told to all its callers.
#[derive(Debug)]
struct Shared(Arc<sqlx::Error>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Shared {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
