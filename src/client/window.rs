//! How much of the server's window is left for a key.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Key;
use crate::clock::{Clock, between};

/// How old a key is, by the worse of two clocks: the wall clock may be set
/// back, and the monotonic one stands still while a machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    made_at: Timestamp,
    when_begun: Duration,
    begun: Instant,
}

impl Age {
    /// Begins to count for a key that is about to be sent. One that does not
    /// tell its time, or tells one that is still to come, was made now.
    pub(super) fn of(key: &Key, clock: &dyn Clock) -> Self {
        let now = clock.now();
        let made_at = key.made_at().map_or(now, |made_at| made_at.min(now));
        Self {
            made_at,
            when_begun: between(made_at, now),
            begun: Instant::now(),
        }
    }

    pub(super) fn now(&self, clock: &dyn Clock) -> Duration {
        let by_monotonic = self.when_begun.saturating_add(self.elapsed());
        by_monotonic.max(between(self.made_at, clock.now()))
    }

    /// How long ago it was that the request was first about to be sent.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}
