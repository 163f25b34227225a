//! The store and the archive that a URL names.

use std::sync::Arc;

#[cfg(feature = "postgres")]
pub(crate) use axum_idempotency::store::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub(crate) use axum_idempotency::store::sqlite::SqliteStore;
use axum_idempotency::{
    archive::{Archive, MemoryArchive},
    store::{MemoryStore, Store},
};

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
use super::wrong_url;
use super::{BoxError, unsupported};

/// There is none in this build.
#[cfg(not(feature = "postgres"))]
pub(crate) type PostgresStore = std::convert::Infallible;
#[cfg(not(feature = "sqlite"))]
pub(crate) type SqliteStore = std::convert::Infallible;

/// A store, and the archive that goes with it: in the same database. There is
/// none in Redis.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) archive: Option<Arc<dyn Archive>>,
    pub(super) stores: Stores,
}

/// The store as itself, where effects can be committed with its records.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) sqlite: Option<SqliteStore>,
    pub(crate) postgres: Option<PostgresStore>,
}

pub(super) async fn open_store(url: &str) -> Result<Opened, BoxError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Opened {
            store: Arc::new(MemoryStore::new()),
            archive: Some(Arc::new(MemoryArchive::new())),
            stores: Stores::default(),
        }),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) => {
            let store = SqliteStore::open(url).await;
            let store = store.map_err(|error| wrong_url("STORE_URL", url, error))?;
            Ok(Opened {
                archive: Some(Arc::new(store.archive())),
                store: Arc::new(store.clone()),
                stores: Stores {
                    sqlite: Some(store),
                    postgres: None,
                },
            })
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let store = PostgresStore::open(url).await;
            let store = store.map_err(|error| wrong_url("STORE_URL", url, error))?;
            Ok(Opened {
                archive: Some(Arc::new(store.archive())),
                store: Arc::new(store.clone()),
                stores: Stores {
                    sqlite: None,
                    postgres: Some(store),
                },
            })
        }
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss" | "redis+cluster" | "rediss+cluster", _)) => {
            let store = axum_idempotency::store::redis::RedisStore::open(url).await;
            let store = store.map_err(|error| wrong_url("STORE_URL", url, error))?;
            Ok(Opened {
                store: Arc::new(store),
                archive: None,
                stores: Stores::default(),
            })
        }
        _ => Err(unsupported("STORE_URL", url, STORES)),
    }
}

/// An archive in a database of its own.
pub(super) async fn open_archive(url: &str) -> Result<Arc<dyn Archive>, BoxError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryArchive::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) => {
            let archive = axum_idempotency::archive::SqliteArchive::open(url).await;
            let archive = archive.map_err(|error| wrong_url("ARCHIVE_URL", url, error))?;
            Ok(Arc::new(archive))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let archive = axum_idempotency::archive::PostgresArchive::open(url).await;
            let archive = archive.map_err(|error| wrong_url("ARCHIVE_URL", url, error))?;
            Ok(Arc::new(archive))
        }
        _ => Err(unsupported("ARCHIVE_URL", url, ARCHIVES)),
    }
}

const STORES: &[&str] = &[
    "memory:",
    #[cfg(feature = "sqlite")]
    "sqlite:FILE",
    #[cfg(feature = "postgres")]
    "postgres://…",
    #[cfg(feature = "redis")]
    "redis://…, rediss://…, redis+cluster://…, rediss+cluster://…",
];

const ARCHIVES: &[&str] = &[
    "none",
    "memory:",
    #[cfg(feature = "sqlite")]
    "sqlite:FILE",
    #[cfg(feature = "postgres")]
    "postgres://…",
];
