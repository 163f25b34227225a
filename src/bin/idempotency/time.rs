//! Times and spans as people write them.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;

/// A moment, or how long before now it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    /// The moment by the store's clock.
    pub(crate) fn by(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => before(now, span),
        }
    }
}

impl FromStr for Moment {
    type Err = NotAMoment;

    fn from_str(text: &str) -> Result<Self, NotAMoment> {
        let text = text.trim();
        if text == "now" {
            return Ok(Self::Ago(Duration::ZERO));
        }
        let ago = text.strip_prefix('-');
        let ago = ago.or_else(|| Some(text.strip_suffix("ago")?.trim_end()));
        match ago {
            Some(span) => duration(span).map(Self::Ago).map_err(|_| NotAMoment),
            None => text.parse().map(Self::At).map_err(|_| NotAMoment),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NotAMoment;

impl fmt::Display for NotAMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write 2026-12-01T02:14:00Z, or -3h or \"3h ago\" by the store's clock")
    }
}

impl std::error::Error for NotAMoment {}

/// A span such as `90s`, `10m`, `400d` or `7years`.
pub(crate) fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text.trim())
}

/// `time - span`, stopping at the beginning of the calendar.
pub(crate) fn before(time: Timestamp, span: Duration) -> Timestamp {
    time.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// `time + span`, stopping at the end of the calendar.
pub(crate) fn after(time: Timestamp, span: Duration) -> Timestamp {
    time.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// How long it is from `earlier` to `later`; zero when the order is reversed.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

pub(crate) const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_a_span_ago() {
        let two = Moment::At("2026-12-01T02:14:00Z".parse().expect("a time"));
        for text in [
            "2026-12-01T02:14:00Z",
            "2026-12-01T02:14Z",
            "2026-12-01T03:14+01:00",
        ] {
            assert_eq!(text.parse::<Moment>().expect(text), two);
        }
        let three_hours = Moment::Ago(Duration::from_hours(3));
        for text in ["-3h", "3h ago", "3hours ago"] {
            assert_eq!(text.parse::<Moment>().expect(text), three_hours);
        }
        for text in ["", "3h", "02:14", "2026-12-01", "yesterday", "ago", "-"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
