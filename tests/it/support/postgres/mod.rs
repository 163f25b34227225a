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
//! Whatever is made here ends with its value, and whatever runs also ends when
//! the test binary is killed.

mod address;
mod admin;
mod cluster;
mod daemon;
mod home;
mod pgbouncer;
mod port;
mod processes;
mod programs;
mod proxy;
mod scratch;

use std::time::{Duration, Instant};

use tokio::time::sleep;

pub(crate) use self::{
    cluster::Cluster,
    pgbouncer::PgBouncer,
    proxy::Proxy,
    scratch::{Database, Schema},
};
use super::PATIENCE;

/// The server that is there for all tests.
pub(crate) fn server_url() -> String {
    std::env::var("DATABASE_URL").unwrap_or_else(|_| {
        panic!("DATABASE_URL is not set: run tests/run.sh, or tests/postgres.sh cargo test ...")
    })
}

/// Asks again and again, until it is so. The deadline is one of real time, also
/// where the runtime's clock is paused.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
