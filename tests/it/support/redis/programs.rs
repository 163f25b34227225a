//! Redis, or Valkey, which is its twin.

use std::path::PathBuf;

use crate::support::servers::programs;

/// A server and the client that comes with it.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub server: PathBuf,
    pub cli: PathBuf,
}

impl Programs {
    /// Redis, or Valkey where only that is installed.
    pub(super) fn any() -> Self {
        let redis = Self::of("redis");
        redis
            .or_else(Self::valkey)
            .unwrap_or_else(|| panic!("redis-server is missing: tests/run.sh installs it"))
    }

    pub(super) fn valkey() -> Option<Self> {
        Self::of("valkey")
    }

    fn of(name: &str) -> Option<Self> {
        let server = programs::look_for(&format!("{name}-server"))?;
        let cli = programs::find(&format!("{name}-cli"));
        Some(Self { server, cli })
    }
}
