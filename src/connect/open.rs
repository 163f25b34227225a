//! One arm for each scheme.

// The stores in memory are there without waiting.
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(clippy::unused_async, unused_variables)
)]

use super::{ConnectError, ConnectOptions, OpenArchive, OpenStore, Setting};
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresBuilder;
use crate::{archive::MemoryArchive, store::MemoryStore};

pub(super) async fn store(url: &str, options: &ConnectOptions) -> Result<OpenStore, ConnectError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(OpenStore::Memory(MemoryStore::new(), MemoryArchive::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) => crate::store::sqlite::SqliteStore::builder()
            .url(sqlite_url(url, options))
            .migrate(options.migrate)
            .open()
            .await
            .map(OpenStore::Sqlite)
            .map_err(|error| ConnectError::unusable(Setting::Store, url, &error)),
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => postgres(
            crate::store::postgres::PostgresStore::builder(),
            url,
            options,
        )
        .open()
        .await
        .map(OpenStore::Postgres)
        .map_err(|error| ConnectError::unusable(Setting::Store, url, &error)),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss" | "redis+cluster" | "rediss+cluster", _)) => {
            let mut builder = crate::store::redis::RedisStore::builder().url(url);
            if let Some(prefix) = &options.prefix {
                builder = builder.prefix(prefix);
            }
            let opened = builder.open().await;
            opened
                .map(OpenStore::Redis)
                .map_err(|error| ConnectError::unusable(Setting::Store, url, &error))
        }
        _ => Err(ConnectError::unsupported(Setting::Store, url, STORES)),
    }
}

/// An archive in a database of its own.
pub(super) async fn archive(
    url: &str,
    options: &ConnectOptions,
) -> Result<OpenArchive, ConnectError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(OpenArchive::Memory(MemoryArchive::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) => {
            let url_of_it = sqlite_url(url, options);
            crate::archive::SqliteArchive::open_with(&url_of_it, options.migrate)
                .await
                .map(OpenArchive::Sqlite)
                .map_err(|error| ConnectError::unusable(Setting::Archive, url, &error))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            postgres(crate::archive::PostgresArchive::builder(), url, options)
                .open()
                .await
                .map(OpenArchive::Postgres)
                .map_err(|error| ConnectError::unusable(Setting::Archive, url, &error))
        }
        _ => Err(ConnectError::unsupported(Setting::Archive, url, ARCHIVES)),
    }
}

/// Whoever does not migrate has no use for a file that is made empty.
#[cfg(feature = "sqlite")]
fn sqlite_url(url: &str, options: &ConnectOptions) -> String {
    let says_how = url.contains("mode=") || url.contains(":memory:");
    if options.migrate || says_how {
        return url.to_owned();
    }
    let joined = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joined}mode=rw")
}

#[cfg(feature = "postgres")]
fn postgres<T>(
    builder: PostgresBuilder<T>,
    url: &str,
    options: &ConnectOptions,
) -> PostgresBuilder<T> {
    let builder = builder.url(url).migrate(options.migrate);
    match &options.schema {
        Some(schema) => builder.schema(schema),
        None => builder,
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
