//! What a server has to be like, found out before it is used.

use std::collections::HashMap;

use redis::{RedisError, Value, from_redis_value};

use super::{
    error::store_error,
    link::{Link, Master},
    options::Eviction,
};
use crate::store::{Keeps, StoreError};

/// Checks version, eviction and persistence of every server, and tells for how
/// long records are kept.
pub(super) async fn check(link: &Link, eviction: Eviction) -> Result<Keeps, StoreError> {
    const WHAT: &str = "asking Redis for INFO";
    let told = match link.ask_masters(redis::cmd("INFO")).await {
        Ok(told) => told,
        Err(error) if error.code() == Some("NOPERM") => {
            return may_evict(eviction, None);
        }
        Err(error) => return Err(store_error(WHAT, error)),
    };
    let mut keeps = Keeps::UntilExpired;
    for (master, info) in told {
        let info = Info::parse(info).map_err(|error| store_error(WHAT, error))?;
        info.check_version()?;
        if matches!(link, Link::Server(_)) {
            info.check_alone()?;
        }
        info.warn_of_loss(&master);
        match info.field("maxmemory_policy") {
            Some("noeviction") => {}
            policy => keeps = may_evict(eviction, policy)?,
        }
    }
    Ok(keeps)
}

fn may_evict(eviction: Eviction, policy: Option<&str>) -> Result<Keeps, StoreError> {
    const EVICTS: &str = "Redis may evict records inside their window: set maxmemory-policy to \
                          noeviction, or open the store with Eviction::Warn and ask an archive \
                          for all keys";
    const UNTOLD: &str = "whether Redis may evict records is not known: let its user ask INFO, or \
                          open the store with Eviction::Warn and ask an archive for all keys";
    let why = match policy {
        Some(policy) => format!("maxmemory-policy is {policy}"),
        None => "INFO does not tell the maxmemory-policy".to_owned(),
    };
    match (eviction, policy) {
        (Eviction::Refuse, Some(_)) => Err(StoreError::setup(EVICTS, why)),
        (Eviction::Refuse, None) => Err(StoreError::setup(UNTOLD, why)),
        (Eviction::Warn, _) => {
            tracing::warn!(%why, "Redis may evict records inside their window: an archive has to be asked for all keys");
            Ok(Keeps::UntilEvicted)
        }
    }
}

/// What `INFO` says, field by field.
struct Info(HashMap<String, String>);

impl Info {
    fn parse(value: Value) -> Result<Self, RedisError> {
        let text: String = from_redis_value(value)?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        Ok(Self(fields.collect()))
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn check_version(&self) -> Result<(), StoreError> {
        const TOO_OLD: &str = "the server has to be Redis 7 or later, or Valkey";
        let version = self.field("redis_version").unwrap_or_default();
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        match major {
            Some(OLDEST..) => Ok(()),
            _ => Err(StoreError::setup(TOO_OLD, format!("it is {version:?}"))),
        }
    }

    fn check_alone(&self) -> Result<(), StoreError> {
        const REMEDY: &str =
            "the server is a node of a cluster: its URL begins with redis+cluster://";
        match self.field("cluster_enabled") {
            Some("1") => Err(StoreError::setup(REMEDY, "cluster_enabled is 1")),
            _ => Ok(()),
        }
    }

    fn warn_of_loss(&self, master: &Master) {
        if self.field("aof_enabled") == Some("0") {
            tracing::warn!(
                ?master,
                "Redis keeps no append-only file: a restart loses the last records, or all"
            );
        }
    }
}

const OLDEST: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(info: &str) -> Result<(), StoreError> {
        let info = Value::BulkString(info.as_bytes().to_vec());
        Info::parse(info).expect("text").check_version()
    }

    #[test]
    fn an_older_server_is_refused() {
        for old in [
            "redis_version:6.2.14\r\n",
            "redis_version:\r\n",
            "# Server\r\n",
        ] {
            let error = version(old).expect_err("scripts need flags");
            assert!(error.to_string().contains("Redis 7 or later"), "{error}");
        }
        for new in [
            "redis_version:7.0.15\r\n",
            "# Server\r\nredis_version:10.1\r\n",
        ] {
            version(new).expect("it is new enough");
        }
    }
}
