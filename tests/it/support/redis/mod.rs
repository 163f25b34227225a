//! Redis for tests: a server that is there, servers and clusters of one's own to
//! kill, and what may stand between a client and them.
//!
//! | for a test about | take |
//! | --- | --- |
//! | anything with keys | [`server_url`] and a [`prefix`] of its own |
//! | a cluster that nothing happens to | [`shared_cluster_url`] and a prefix |
//! | a server that crashes, stops answering or evicts, and replicas | a [`Server`] |
//! | failovers and slots that move | a [`Cluster`], which takes seconds |
//! | a connection that breaks or stalls | a [`Proxy`] |
//!
//! Whatever is made here ends with its value. Nothing here blocks the runtime of
//! a test, so that a load may run meanwhile.

mod address;
mod cli;
mod cluster;
mod layout;
mod moves;
mod programs;
mod proxy;
mod server;

use tokio::sync::OnceCell;
use uuid::Uuid;

pub(crate) use self::{cluster::Cluster, proxy::Proxy, server::Server};

/// The server that is there for all tests. None evicts from it, and none deletes
/// but its own keys.
pub(crate) fn server_url() -> String {
    std::env::var("REDIS_URL").unwrap_or_else(|_| {
        panic!("REDIS_URL is not set: run tests/run.sh, or tests/redis.sh cargo test ...")
    })
}

/// A cluster for all tests of this process that do it no harm, made when the
/// first asks for it.
pub(crate) async fn shared_cluster_url() -> String {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_init(Cluster::start).await.url()
}

/// What the keys of a test begin with that shares its server with others.
pub(crate) fn prefix() -> String {
    format!("t-{}:", Uuid::new_v4().simple())
}
