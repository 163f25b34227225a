//! What an error of Redis means to a store's caller.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::StoreError;

pub(super) fn store_error(what: &'static str, error: RedisError) -> StoreError {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => {
            StoreError::setup("Redis refuses the user or the password of the URL", error)
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => {
            StoreError::setup("the Redis user needs the commands of the scripts", error)
        }
        (ErrorKind::InvalidClientConfig, _) => StoreError::setup(super::options::WRONG_URL, error),
        (_, Some("OOM")) => StoreError::full("Redis is at its maxmemory"),
        (_, Some("CORRUPT")) | (ErrorKind::UnexpectedReturnType, _) => {
            tracing::error!(what, error = %error, "a record cannot be read");
            StoreError::corrupt("a record in Redis")
        }
        _ => StoreError::unavailable(what, error),
    }
}

/// Whether the connection broke, so that it is unknown whether the call was run.
pub(super) fn is_lost(error: &RedisError) -> bool {
    error.is_io_error() && !error.is_timeout()
}

/// Whether the server is a replica now: another one is the master.
pub(super) fn is_of_a_replica(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}
