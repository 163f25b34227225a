//! How a store is opened, as the user says it.

use std::{fmt, sync::Arc, time::Duration};

use redis::{ConnectionInfo, IntoConnectionInfo as _};

use super::{RedisStore, error::store_error};
use crate::{clock::Clock, store::StoreError};

#[cfg(doc)]
use crate::store::StoreErrorKind;

/// What opening does when the server may evict records to make room: its
/// `maxmemory-policy` is not `noeviction`, or is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// It warns in the log. A layer over the store is then built only with an
    /// archive that it asks for every key, by
    /// [`ArchiveLookup::AllKeys`](crate::ArchiveLookup::AllKeys) or
    /// [`RequireTimestamped`](crate::ArchiveLookup::RequireTimestamped). The
    /// default.
    #[default]
    Warn,
    /// It fails with [`StoreErrorKind::Setup`].
    Refuse,
}

/// Builds a [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    url: Option<String>,
    pub(super) prefix: String,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) eviction: Eviction,
}

impl RedisStoreBuilder {
    /// How long a connection may take to come up, by default.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
    /// How long an answer may take, by default.
    pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_millis(2500);

    pub(super) fn new() -> Self {
        Self {
            url: None,
            prefix: String::new(),
            clock: None,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            response_timeout: Self::DEFAULT_RESPONSE_TIMEOUT,
            eviction: Eviction::default(),
        }
    }

    /// The server, `redis://USER:PASSWORD@HOST:PORT/DATABASE`; or some nodes of
    /// a cluster, `redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT`, which
    /// tell of the others. With TLS `rediss` in place of `redis`. There is no
    /// default.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// What precedes the names of all keys, to share a server with others.
    /// Default: nothing. Names begin with `idem:v1:` after it.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Replaces the server's clock, for tests. Redis goes on to drop records by
    /// its own.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// How long a connection may take to come up. Past it the call is
    /// [`StoreErrorKind::Unavailable`]. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an answer may take on a connection that is there. Past it the
    /// call is [`StoreErrorKind::Unavailable`], and the next takes another
    /// connection, for the server may be gone. Default: 2.5 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// What to do about a server that may evict records. Default:
    /// [`Eviction::Warn`].
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As for [`RedisStore::open`].
    pub async fn open(self) -> Result<RedisStore, StoreError> {
        RedisStore::open_with(self).await
    }

    /// How long a call may take in all.
    pub(super) fn patience(&self) -> Duration {
        self.connect_timeout + self.response_timeout
    }

    pub(super) fn target(&self) -> Result<Target, StoreError> {
        let Some(url) = &self.url else {
            return Err(StoreError::setup(WRONG_URL, "there is none"));
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(StoreError::setup(WRONG_URL, "it has no scheme"));
        };
        match scheme {
            "redis+cluster" => cluster("redis", rest),
            "rediss+cluster" => cluster("rediss", rest),
            "redis" | "rediss" | "redis+unix" | "unix" => Ok(Target::Server(node(url)?)),
            _ => Err(StoreError::setup(WRONG_URL, "its scheme is not redis")),
        }
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("clock", &self.clock)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("eviction", &self.eviction)
            .finish_non_exhaustive()
    }
}

/// What a URL names.
#[derive(Debug)]
pub(super) enum Target {
    Server(ConnectionInfo),
    /// Some of its nodes.
    Cluster(Vec<ConnectionInfo>),
}

/// `rest` is `USER:PASSWORD@HOST:PORT,HOST:PORT`: the credentials are those of
/// every node.
fn cluster(scheme: &str, rest: &str) -> Result<Target, StoreError> {
    let (credentials, hosts) = match rest.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), rest),
    };
    let hosts = hosts.trim_end_matches('/');
    if hosts.contains('/') {
        let why = "a cluster has no numbered databases";
        return Err(StoreError::setup(WRONG_URL, why));
    }
    let nodes = hosts.split(',');
    let nodes = nodes.map(|host| node(&format!("{scheme}://{credentials}{host}")));
    nodes.collect::<Result<_, _>>().map(Target::Cluster)
}

fn node(url: &str) -> Result<ConnectionInfo, StoreError> {
    url.into_connection_info()
        .map_err(|error| store_error("reading the URL", error))
}

pub(super) const WRONG_URL: &str = "the URL has to be redis://USER:PASSWORD@HOST:PORT/DATABASE, \
                                    or redis+cluster://HOST:PORT,HOST:PORT; with TLS, rediss";
