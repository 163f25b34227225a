//! How a database is opened, as the user says it.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use sqlx::PgPool;

use super::{
    PostgresStore,
    options::{Settings, Source},
};
use crate::{archive::PostgresArchive, clock::Clock};

#[cfg(doc)]
use crate::store::StoreErrorKind;

/// Builds a [`PostgresStore`] or a [`PostgresArchive`], which are opened alike.
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresBuilder<T> {
    pub(crate) settings: Settings,
    opens: PhantomData<fn() -> T>,
}

/// Builds a [`PostgresStore`].
pub type PostgresStoreBuilder = PostgresBuilder<PostgresStore>;

/// Builds a [`PostgresArchive`] in a database of its own.
pub type PostgresArchiveBuilder = PostgresBuilder<PostgresArchive>;

impl<T> PostgresBuilder<T> {
    /// The most connections of a pool that is opened, by default.
    pub const DEFAULT_MAX_CONNECTIONS: u32 = Settings::MAX_CONNECTIONS;
    /// How long a connection is waited for, by default.
    pub const DEFAULT_ACQUIRE_TIMEOUT: Duration = Settings::ACQUIRE_TIMEOUT;
    /// How long a statement may take, by default.
    pub const DEFAULT_STATEMENT_TIMEOUT: Duration = Settings::STATEMENT_TIMEOUT;

    pub(crate) fn new() -> Self {
        Self {
            settings: Settings::default(),
            opens: PhantomData,
        }
    }

    /// The database, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`: a pool is
    /// opened for it. There is no default; the last of `url` and
    /// [`pool`](Self::pool) counts.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.settings.source = Source::Url(url.into());
        self
    }

    /// A pool of yours, which stays open. Each statement is run in a
    /// transaction that brings its own settings: two round trips more than on
    /// connections of our own. A store uses up to twelve connections while it is
    /// busy, and waits for them as long as the pool says.
    pub fn pool(mut self, pool: PgPool) -> Self {
        self.settings.source = Source::Pool(pool);
        self
    }

    /// The schema that holds the tables. It is created by the migrations when
    /// it is missing. Default: that of the connection's search path.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.settings.schema = Some(name.into());
        self
    }

    /// Replaces the server's clock, for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Some(Arc::new(clock));
        self
    }

    /// The most connections of the pool that is opened. Default: 12; a store
    /// makes use of 4 at least.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.settings.max_connections = connections.max(1);
        self
    }

    /// How long a connection of the pool that is opened is waited for. Past it
    /// the call is [`StoreErrorKind::Unavailable`]. Default: 2 s.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.settings.acquire_timeout = timeout;
        self
    }

    /// How long a statement may take, on the server and until its answer is
    /// here. Past it the call is [`StoreErrorKind::Unavailable`]. Default: 2.5 s.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.settings.statement_timeout = timeout;
        self
    }

    /// Whether statements are prepared under a name and kept by their
    /// connection. Default: true. Turn it off behind a proxy that pools
    /// transactions.
    pub fn named_statements(mut self, named: bool) -> Self {
        self.settings.named_statements = named;
        self
    }

    /// Whether opening runs the migrations that are missing. Default: true.
    /// Otherwise opening fails when one is.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.settings.migrate = migrate;
        self
    }
}
