//! Where "now" comes from.
//!
//! One clock decides about records: the store's own. A database store asks
//! its server; the stores that live in this process (memory, SQLite) hold a
//! [`Clock`], so that a test can move time instead of waiting for it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;

/// A source of wall-clock time for a store that has no server to ask.
///
/// Times are kept to the microsecond, which is what every store can hold.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment, to the microsecond.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock: the default of the memory and SQLite stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the system"
    )]
    fn now(&self) -> Timestamp {
        to_micros(Timestamp::now())
    }
}

/// A clock that stands still until it is told to move. Clones share one time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    micros: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self {
            micros: Arc::new(AtomicI64::new(start.as_microsecond())),
        }
    }

    /// Moves the clock forward by `step`, to the microsecond.
    pub fn advance(&self, step: Duration) {
        let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX);
        self.micros.fetch_add(step, Ordering::SeqCst);
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, to: Timestamp) {
        self.micros.store(to.as_microsecond(), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Stands at 2026-12-01T00:00:00Z, the moment the test vectors use.
    fn default() -> Self {
        Self::new(from_micros(1_796_083_200_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        from_micros(self.micros.load(Ordering::SeqCst))
    }
}

/// Cuts a time to the precision that every store keeps.
pub(crate) fn to_micros(time: Timestamp) -> Timestamp {
    from_micros(time.as_microsecond())
}

/// The first time of that precision that is not before `time`: what is at or
/// after one is at or after the other.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn up_to_micros(time: Timestamp) -> Timestamp {
    let is_between = time.subsec_nanosecond() % 1_000 > 0;
    from_micros(time.as_microsecond().saturating_add(i64::from(is_between)))
}

/// A stored number of microseconds as a time; what no calendar can hold
/// becomes the nearest end of it.
pub(crate) fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// `time + span`, stopping at the end of the calendar.
pub(crate) fn after(time: Timestamp, span: Duration) -> Timestamp {
    to_micros(time.checked_add(span).unwrap_or(Timestamp::MAX))
}

/// `time - span`, stopping at the beginning of the calendar.
pub(crate) fn before(time: Timestamp, span: Duration) -> Timestamp {
    to_micros(time.checked_sub(span).unwrap_or(Timestamp::MIN))
}

/// How long it is from `earlier` to `later`; zero when the order is reversed.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or(Duration::ZERO)
}
