//! How long a live record is kept.

use std::{fmt, time::Duration};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The lifetime of a live record: longer than any client retries, and never
/// infinite. What must be known for years belongs in the archive.
///
/// Processes that share a store may use different lifetimes, also while a
/// deploy changes them, as long as none is below 30 seconds: so long it may
/// take until one knows of another's.
///
/// ```
/// use std::time::Duration;
/// use axum_idempotency::Ttl;
///
/// let day = Duration::from_secs(86_400);
/// let ttl = Ttl::longest_retry_window(3 * day)
///     .queue_lag(day)
///     .clock_skew(Duration::from_secs(600))
///     .manual_replays(3 * day)
///     .build()?;
/// assert_eq!(ttl.get(), 7 * day + Duration::from_secs(600));
/// # Ok::<(), axum_idempotency::TtlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// Longest lifetime: 366 days.
    pub const MAX: Self = Self(Duration::from_hours(8784));

    /// The default: 24 hours, the retention most payment APIs publish.
    pub const DEFAULT: Self = Self(DAY);

    /// A lifetime of exactly this length.
    ///
    /// # Errors
    ///
    /// [`TtlError::Zero`] below a microsecond, [`TtlError::Infinite`] above
    /// [`Ttl::MAX`].
    pub fn new(lifetime: Duration) -> Result<Self, TtlError> {
        if lifetime < Duration::from_micros(1) {
            Err(TtlError::Zero)
        } else if lifetime > Self::MAX.0 {
            Err(TtlError::Infinite)
        } else {
            Ok(Self(lifetime))
        }
    }

    /// A lifetime of so many days: one at the least, and 366 at most.
    pub(crate) const fn days(days: u32) -> Self {
        match days {
            0 => Self(DAY),
            1..366 => Self(DAY.saturating_mul(days)),
            _ => Self::MAX,
        }
    }

    /// Builds a lifetime from its parts: the longest time over which a client
    /// retries, and what has to be added to it.
    pub fn longest_retry_window(window: Duration) -> TtlBuilder {
        TtlBuilder {
            retry_window: window,
            queue_lag: Duration::ZERO,
            clock_skew: Duration::ZERO,
            manual_replays: Duration::ZERO,
        }
    }

    /// The floor for a sender who retries this long:
    ///
    /// | longest retry window | live record |
    /// | --- | --- |
    /// | minutes (up to an hour) | 24 hours |
    /// | up to 24 hours | 3 days |
    /// | up to 3 days | 7 days |
    /// | up to about a week (8 days) | 14 days |
    ///
    /// # Errors
    ///
    /// [`TtlError::NoFloor`] for a window beyond the table: build the lifetime
    /// from its parts then.
    pub fn floor_for(retry_window: Duration) -> Result<Self, TtlError> {
        let days = match retry_window {
            window if window <= HOUR => 1,
            window if window <= DAY => 3,
            window if window <= 3 * DAY => 7,
            window if window <= 8 * DAY => 14,
            _ => return Err(TtlError::NoFloor),
        };
        Ok(Self(days * DAY))
    }

    /// The lifetime as a duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = TtlError;

    fn try_from(lifetime: Duration) -> Result<Self, TtlError> {
        Self::new(lifetime)
    }
}

/// Adds up a [`Ttl`]. Everything but the retry window defaults to zero.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TtlBuilder {
    retry_window: Duration,
    queue_lag: Duration,
    clock_skew: Duration,
    manual_replays: Duration,
}

impl TtlBuilder {
    /// How long a request may wait in a queue before it is judged.
    pub fn queue_lag(mut self, lag: Duration) -> Self {
        self.queue_lag = lag;
        self
    }

    /// How far the clocks of client and store may differ.
    pub fn clock_skew(mut self, skew: Duration) -> Self {
        self.clock_skew = skew;
        self
    }

    /// How much later somebody may replay requests by hand, after an incident.
    pub fn manual_replays(mut self, span: Duration) -> Self {
        self.manual_replays = span;
        self
    }

    /// The sum.
    ///
    /// # Errors
    ///
    /// As [`Ttl::new`].
    pub fn build(self) -> Result<Ttl, TtlError> {
        let parts = [self.queue_lag, self.clock_skew, self.manual_replays];
        Ttl::new(
            parts
                .iter()
                .fold(self.retry_window, |sum, part| sum.saturating_add(*part)),
        )
    }
}

/// Why a duration is no [`Ttl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlError {
    /// A record that expires at once protects nothing.
    Zero,
    /// Longer than [`Ttl::MAX`]: a table that guards correctness must not grow
    /// for ever.
    Infinite,
    /// No floor is known for a retry window this long.
    NoFloor,
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "a TTL must be longer than zero",
            Self::Infinite => {
                "a TTL may be at most 366 days: use the archive for what must be known longer"
            }
            Self::NoFloor => {
                "no floor is known for a retry window over 8 days: add up the TTL from its parts"
            }
        })
    }
}

impl std::error::Error for TtlError {}
