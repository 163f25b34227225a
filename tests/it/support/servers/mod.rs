//! Servers that tests start, whatever they serve: where one lives, its process,
//! its port, and what may stand between a client and it.
//!
//! Whatever runs here ends with its value, and also when the test binary is
//! killed.

pub(crate) mod daemon;
pub(crate) mod home;
pub(crate) mod port;
pub(crate) mod processes;
pub(crate) mod programs;
pub(crate) mod proxy;

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::PATIENCE;

/// Asks again and again, until it is so. The deadline is one of real time, also
/// where the runtime's clock is paused.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
