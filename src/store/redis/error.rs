//! What an error of Redis means to a store's caller.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::options::WRONG_URL;
use crate::store::StoreError;

pub(super) fn store_error(what: &'static str, error: RedisError) -> StoreError {
    const REFUSED: &str = "Redis refuses the user or the password of the URL";
    const FORBIDDEN: &str = "the Redis user may not run the scripts: it needs @scripting, @hash, \
                             @string, @keyspace and TIME, on the keys of the store";
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => {
            StoreError::setup(REFUSED, error)
        }
        // Of a cluster, only in what is told of each node.
        _ if says(&error, "authentication failed") => StoreError::setup(REFUSED, error),
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => StoreError::setup(FORBIDDEN, error),
        (_, Some("ERR")) if says(&error, "can't run this command") => {
            StoreError::setup(FORBIDDEN, error)
        }
        (ErrorKind::InvalidClientConfig, _) if says(&error, "TLS") => {
            let remedy = "TLS takes a feature of the crate redis, such as tokio-rustls-comp";
            StoreError::setup(remedy, error)
        }
        (ErrorKind::InvalidClientConfig, _) => StoreError::setup(WRONG_URL, error),
        (_, Some("ERR")) if says(&error, "DB index") => StoreError::setup(WRONG_URL, error),
        (_, Some("ERR")) if says(&error, "cluster support disabled") => StoreError::setup(
            "the server is no cluster: its URL begins with redis://",
            error,
        ),
        (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
            StoreError::unavailable("the Redis server is a replica: it takes no writes", error)
        }
        (_, Some("OOM")) => StoreError::full("Redis is at its maxmemory"),
        (_, Some("CORRUPT")) | (ErrorKind::UnexpectedReturnType, _) => {
            tracing::error!(what, error = %error, "a record cannot be read");
            StoreError::corrupt("a record in Redis")
        }
        _ => StoreError::unavailable(what, error),
    }
}

fn says(error: &RedisError, words: &str) -> bool {
    error.to_string().contains(words)
}

/// Whether the connection broke, so that it is unknown whether the call was run.
pub(super) fn is_lost(error: &RedisError) -> bool {
    error.is_io_error() && !error.is_timeout()
}

/// Whether the server is a replica now: another one is the master.
pub(super) fn is_of_a_replica(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// Whether the key's slot is moving, and the node that it moves to is to be
/// asked.
pub(super) fn is_asked_elsewhere(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Ask)
}

/// Whether the script has to be sent first.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
