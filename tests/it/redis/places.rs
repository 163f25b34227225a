//! A Redis store beside each archive there is.

use axum_idempotency::archive::{MemoryArchive, PostgresArchive, SqliteArchive};
use redis::AsyncCommands as _;
use tempfile::TempDir;

use crate::support::{
    Backend,
    postgres::Schema,
    redis::{prefix, server_url},
    scoped,
};

/// A backend on Redis, whose keys the test can reach behind its back.
pub(super) struct Place {
    pub(super) backend: Backend,
    prefix: String,
}

impl Place {
    pub(super) async fn with_memory() -> Self {
        let prefix = prefix();
        let backend = Backend::redis_beside(&prefix, MemoryArchive::new(), ()).await;
        Self { backend, prefix }
    }

    pub(super) async fn with_sqlite() -> Self {
        let prefix = prefix();
        let dir = TempDir::new().expect("a directory for temporary files");
        let url = format!("sqlite:{}", dir.path().join("archive.db").display());
        let archive = SqliteArchive::open(&url).await.expect("an archive");
        let backend = Backend::redis_beside(&prefix, archive, dir).await;
        Self { backend, prefix }
    }

    pub(super) async fn with_postgres() -> Self {
        let prefix = prefix();
        let schema = Schema::new();
        let archive = PostgresArchive::open(&schema.url()).await;
        let archive = archive.expect("an archive");
        let backend = Backend::redis_beside(&prefix, archive, schema).await;
        Self { backend, prefix }
    }

    /// As if Redis had evicted or lost the record of alice's `key`.
    pub(super) async fn lose(&self, key: &str) {
        let mut redis = raw().await;
        let lost: u32 = redis.del(self.name(key)).await.expect("an answer");
        assert_eq!(lost, 1, "there was no record to lose");
    }

    /// For how many milliseconds Redis keeps the record of alice's `key`; none
    /// where it does so until it is told otherwise.
    pub(super) async fn kept_for(&self, key: &str) -> Option<u64> {
        let left: i64 = raw().await.pttl(self.name(key)).await.expect("an answer");
        assert_ne!(left, -2, "there is no record");
        u64::try_from(left).ok()
    }

    fn name(&self, key: &str) -> String {
        format!("{}{}", self.prefix, scoped("alice", key))
    }
}

pub(super) async fn raw() -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server_url()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    connection.expect("the server is there")
}

/// Makes a test of each function beside each archive.
macro_rules! beside_every_archive {
    ($($test:ident),+ $(,)?) => {
        $crate::redis::places::beside!(memory_archive, with_memory, $($test),+);
        $crate::redis::places::beside!(sqlite_archive, with_sqlite, $($test),+);
        $crate::redis::places::beside!(postgres_archive, with_postgres, $($test),+);
    };
}

macro_rules! beside {
    ($archive:ident, $place:ident, $($test:ident),+) => {
        mod $archive {
            $(
                #[tokio::test]
                async fn $test() {
                    let place = $crate::redis::places::Place::$place().await;
                    $crate::support::in_time(super::$test(place)).await;
                }
            )+
        }
    };
}

pub(super) use {beside, beside_every_archive};
