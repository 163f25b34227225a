//! PostgreSQL for tests: a place of one's own in a server that is there, a
//! server of one's own to kill, and what may stand between a client and it.
//!
//! | for a test about | take |
//! | --- | --- |
//! | anything with tables | a [`Schema`], which costs a few milliseconds |
//! | settings, permissions, other people's migrations | a [`Database`] |
//! | a server that crashes or stops answering | a [`Cluster`] |
//! | a connection that does | a [`Proxy`] |
//! | transaction pooling | a [`PgBouncer`] |
//!
//! Whatever is made here ends with its value.

mod address;
mod admin;
mod cluster;
mod commit_gate;
mod pgbouncer;
mod proxy;
mod scratch;

pub(crate) use self::{
    cluster::Cluster,
    commit_gate::CommitGate,
    pgbouncer::PgBouncer,
    proxy::Proxy,
    scratch::{Database, Schema},
};

/// The server that is there for all tests.
pub(crate) fn server_url() -> String {
    std::env::var("DATABASE_URL").unwrap_or_else(|_| {
        panic!("DATABASE_URL is not set: run tests/run.sh, or tests/postgres.sh cargo test ...")
    })
}
