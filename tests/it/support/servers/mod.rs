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

/// Asks again and again, until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Patience::for_it(what);
    while !is_so() {
        patience.a_moment().await;
    }
}

/// Asks again and again, until there is an answer.
pub(crate) async fn until_some<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let patience = Patience::for_it(what);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        patience.a_moment().await;
    }
}

/// Waits between two attempts to find that something is so. The deadline is one
/// of real time, also where the runtime's clock is paused.
pub(crate) struct Patience<'a> {
    what: &'a str,
    deadline: Instant,
}

impl<'a> Patience<'a> {
    pub(crate) fn for_it(what: &'a str) -> Self {
        Self {
            what,
            deadline: Instant::now() + PATIENCE,
        }
    }

    pub(crate) async fn a_moment(&self) {
        let is_early = Instant::now() < self.deadline;
        assert!(is_early, "still not: {}", self.what);
        sleep(Duration::from_millis(10)).await;
    }
}

/// Does what blocks, such as to wait for the end of a process, beside the
/// runtime of a test.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("it does not panic")
}
