//! The store and the archive that URLs name, chosen at run time: for services
//! that read them from their environment, and for the command `idempotency`.
//!
//! | `STORE_URL` | store | archive when `ARCHIVE_URL` is not set |
//! | --- | --- | --- |
//! | `memory:` | [`MemoryStore`] | in memory |
//! | `sqlite:FILE` | `SqliteStore` | in the same database |
//! | `postgres://…`, `postgresql://…` | `PostgresStore` | in the same database |
//! | `redis://…`, `rediss://…`, `redis+cluster://…`, `rediss+cluster://…` | `RedisStore` | none |
//!
//! `ARCHIVE_URL` is one of the first three, or `none`. A scheme needs the
//! feature of its store. What is empty counts as not set.
//!
//! ```
//! use axum_idempotency::{IdempotencyLayer, Policy, PrincipalSource, connect::{ConnectOptions, Connection}};
//!
//! # async fn layer() -> Result<IdempotencyLayer, Box<dyn std::error::Error>> {
//! let connection = Connection::open("memory:", None, &ConnectOptions::new()).await?;
//! let policy = Policy::builder(PrincipalSource::bearer()).build()?;
//! let mut layer = IdempotencyLayer::builder_dyn(connection.store()).policy(policy);
//! if let Some(archive) = connection.archive() {
//!     layer = layer.archive_dyn(archive);
//! }
//! # Ok(layer.build()?)
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(layer()).unwrap();
//! ```

use std::{sync::Arc, time::Duration};

#[cfg(feature = "redis")]
use crate::store::redis::RedisStore;
#[cfg(feature = "postgres")]
use crate::{archive::PostgresArchive, store::postgres::PostgresStore};
#[cfg(feature = "sqlite")]
use crate::{archive::SqliteArchive, store::sqlite::SqliteStore};
use crate::{
    archive::{Archive, MemoryArchive},
    inspect::Inspector,
    store::{MemoryStore, Store},
};

mod error;
mod open;
mod options;

pub use self::{
    error::{ConnectError, Setting, without_password},
    options::ConnectOptions,
};

/// A store that a URL named, and the archive that goes with it.
#[derive(Clone, Debug)]
pub struct Connection {
    store: OpenStore,
    archive: Option<OpenArchive>,
    options: ConnectOptions,
}

impl Connection {
    /// Opens what the URLs name; see the [module](self) for them. An
    /// `archive_url` that is the `store_url` is the archive in the store's own
    /// database, so that a sweep is one transaction.
    ///
    /// # Errors
    ///
    /// Those of the store and the archive, and a URL that none of them takes.
    pub async fn open(
        store_url: &str,
        archive_url: Option<&str>,
        options: &ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let store = open::store(store_url, options).await?;
        let archive = match archive_url.filter(|url| !url.is_empty()) {
            Some("none") => None,
            None => store.beside(),
            Some(url) if url == store_url => match store.beside() {
                Some(beside) => Some(beside),
                None => Some(open::archive(url, options).await?),
            },
            Some(url) => Some(open::archive(url, options).await?),
        };
        let retention = options.retention;
        Ok(Self {
            store,
            archive: archive.map(|archive| match retention {
                Some(retention) => archive.with_retention(retention),
                None => archive,
            }),
            options: options.clone(),
        })
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        match &self.store {
            OpenStore::Memory(store, _) => Arc::new(store.clone()),
            #[cfg(feature = "sqlite")]
            OpenStore::Sqlite(store) => Arc::new(store.clone()),
            #[cfg(feature = "postgres")]
            OpenStore::Postgres(store) => Arc::new(store.clone()),
            #[cfg(feature = "redis")]
            OpenStore::Redis(store) => Arc::new(store.clone()),
        }
    }

    /// The archive, with the retention of the [options](ConnectOptions).
    pub fn archive(&self) -> Option<Arc<dyn Archive>> {
        self.archive.as_ref().map(OpenArchive::shared)
    }

    /// The same archive with another retention.
    pub fn archive_with_retention(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
        let archive = self.archive.clone()?;
        Some(archive.with_retention(retention).shared())
    }

    /// Which store it is.
    pub fn store_backend(&self) -> Backend {
        match &self.store {
            OpenStore::Memory(..) => Backend::Memory,
            #[cfg(feature = "sqlite")]
            OpenStore::Sqlite(_) => Backend::Sqlite,
            #[cfg(feature = "postgres")]
            OpenStore::Postgres(_) => Backend::Postgres,
            #[cfg(feature = "redis")]
            OpenStore::Redis(_) => Backend::Redis,
        }
    }

    /// Which archive it is, where there is one.
    pub fn archive_backend(&self) -> Option<Backend> {
        self.archive.as_ref().map(|archive| match archive {
            OpenArchive::Memory(_) => Backend::Memory,
            #[cfg(feature = "sqlite")]
            OpenArchive::Sqlite(_) => Backend::Sqlite,
            #[cfg(feature = "postgres")]
            OpenArchive::Postgres(_) => Backend::Postgres,
        })
    }

    /// The store as itself, for a handler that commits its effect together with
    /// the record; `None` when it is another.
    #[cfg(feature = "sqlite")]
    pub fn sqlite_store(&self) -> Option<&SqliteStore> {
        if let OpenStore::Sqlite(store) = &self.store {
            Some(store)
        } else {
            None
        }
    }

    /// The store as itself, for a handler that commits its effect together with
    /// the record; `None` when it is another.
    #[cfg(feature = "postgres")]
    pub fn postgres_store(&self) -> Option<&PostgresStore> {
        if let OpenStore::Postgres(store) = &self.store {
            Some(store)
        } else {
            None
        }
    }

    /// The store as itself; `None` when it is another.
    #[cfg(feature = "redis")]
    pub fn redis_store(&self) -> Option<&RedisStore> {
        if let OpenStore::Redis(store) = &self.store {
            Some(store)
        } else {
            None
        }
    }

    /// Asks both, for an operator.
    pub fn inspector(&self) -> Inspector {
        let inspector = Inspector::new_dyn(self.store());
        match self.archive() {
            Some(archive) => inspector.archive_dyn(archive),
            None => inspector,
        }
    }

    /// How it was opened.
    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// Finishes what was accepted and closes both.
    pub async fn close(&self) {
        self.store().close().await;
        match &self.archive {
            #[cfg(feature = "sqlite")]
            Some(OpenArchive::Sqlite(archive)) => archive.close().await,
            #[cfg(feature = "postgres")]
            Some(OpenArchive::Postgres(archive)) => archive.close().await,
            Some(OpenArchive::Memory(_)) | None => {}
        }
    }
}

/// Where records or tombstones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// In this process.
    Memory,
    /// In a file of SQLite.
    Sqlite,
    /// On a PostgreSQL server.
    Postgres,
    /// In Redis or Valkey: stores only.
    Redis,
}

impl Backend {
    /// Its name in one lower-case word, as in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }
}

/// A store as itself.
#[derive(Clone, Debug)]
enum OpenStore {
    /// With its archive, of which there is one a store.
    Memory(MemoryStore, MemoryArchive),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
    #[cfg(feature = "redis")]
    Redis(RedisStore),
}

impl OpenStore {
    /// The archive in the same place.
    #[cfg_attr(not(feature = "redis"), expect(clippy::unnecessary_wraps))]
    fn beside(&self) -> Option<OpenArchive> {
        match self {
            Self::Memory(_, archive) => Some(OpenArchive::Memory(archive.clone())),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => Some(OpenArchive::Sqlite(store.archive())),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Some(OpenArchive::Postgres(store.archive())),
            #[cfg(feature = "redis")]
            Self::Redis(_) => None,
        }
    }
}

/// An archive as itself.
#[derive(Clone, Debug)]
enum OpenArchive {
    Memory(MemoryArchive),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteArchive),
    #[cfg(feature = "postgres")]
    Postgres(PostgresArchive),
}

impl OpenArchive {
    fn with_retention(self, retention: Duration) -> Self {
        match self {
            Self::Memory(archive) => Self::Memory(archive.with_retention(retention)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(archive) => Self::Sqlite(archive.with_retention(retention)),
            #[cfg(feature = "postgres")]
            Self::Postgres(archive) => Self::Postgres(archive.with_retention(retention)),
        }
    }

    fn shared(&self) -> Arc<dyn Archive> {
        match self {
            Self::Memory(archive) => Arc::new(archive.clone()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(archive) => Arc::new(archive.clone()),
            #[cfg(feature = "postgres")]
            Self::Postgres(archive) => Arc::new(archive.clone()),
        }
    }
}
