//! How what a URL names is opened.

use std::time::Duration;

/// How a [`Connection`](super::Connection) is opened, beyond its URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ConnectOptions {
    pub(super) migrate: bool,
    pub(super) schema: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) retention: Option<Duration>,
}

impl ConnectOptions {
    /// Migrates on opening, in the default schema, and keeps archived rows for
    /// ever.
    pub fn new() -> Self {
        Self {
            migrate: true,
            schema: None,
            prefix: None,
            retention: None,
        }
    }

    /// Whether opening makes the tables, or brings them up to date. Default:
    /// true. Otherwise opening fails where that is due, with an error that
    /// [says so](super::ConnectError::needs_migration), and makes no file of
    /// SQLite either. Redis has no tables.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// The schema of the tables in PostgreSQL, of the store as of the archive.
    /// Default: the first of the search path.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// What precedes the names of all keys in Redis. Default: nothing.
    pub fn redis_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// How long archived rows are kept after they expired. Default: for ever.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self::new()
    }
}
