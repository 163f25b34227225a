//! How long to wait before the next attempt.

use std::time::Duration;

use http::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::clock::between;

/// Exponential backoff with full jitter: the n-th wait is anything from zero
/// to `base` doubled n - 1 times, or `cap`, so that clients which failed
/// together do not come back together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub base: Duration,
    pub cap: Duration,
}

impl Backoff {
    /// The wait after so many attempts.
    pub(super) fn after(self, attempts: u32) -> Duration {
        // Jitter needs no secrecy. The first four bytes are free of the bits
        // that mark a UUID.
        let [a, b, c, d, ..] = *Uuid::new_v4().as_bytes();
        let share = f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX);
        self.longest_after(attempts).mul_f64(share)
    }

    fn longest_after(self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

/// What `Retry-After` asks for (RFC 9110 section 10.2.3): seconds, or a date.
/// `None` without it, or when it is neither.
///
/// A date is compared with that of the response itself, so that it means the
/// same to a client whose clock is wrong; `now` serves where that is missing.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that no number can hold are a very long time.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let of_response = headers.get(DATE).and_then(|date| date.to_str().ok());
    let now = of_response.and_then(date).unwrap_or(now);
    Some(between(now, date(value)?))
}

fn date(text: &str) -> Option<Timestamp> {
    Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "Tue, 01 Dec 2026 12:00:00 GMT";
    const A_MINUTE_PAST: &str = "Tue, 01 Dec 2026 12:01:00 GMT";

    fn asked(asks: &'static str, dated: Option<&'static str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, asks.parse().expect("a header value"));
        if let Some(dated) = dated {
            headers.insert(DATE, dated.parse().expect("a header value"));
        }
        retry_after(&headers, date(NOON).expect("a date"))
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(asked("0", None), seconds(0));
        assert_eq!(asked(" 120 ", None), seconds(120));
        assert_eq!(asked(A_MINUTE_PAST, None), seconds(60));
        assert_eq!(asked("Tuesday, 01-Dec-26 12:01:00 GMT", None), seconds(60));
        assert_eq!(asked("99999999999999999999", None), seconds(u64::MAX));
        for nonsense in ["", "-1", "1.5", "soon", "+1"] {
            assert_eq!(asked(nonsense, None), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_date_counts_from_that_of_its_response_and_never_backwards() {
        let from_a_clock_ahead = asked(A_MINUTE_PAST, Some("Tue, 01 Dec 2026 11:59:30 GMT"));
        assert_eq!(from_a_clock_ahead, Some(Duration::from_secs(90)));
        assert_eq!(asked(NOON, Some(A_MINUTE_PAST)), Some(Duration::ZERO));
    }

    #[test]
    fn waits_double_up_to_their_cap_and_are_anything_below() {
        let backoff = Backoff {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(10),
        };
        let longest = [1, 2, 3, 4, 5, 33, u32::MAX].map(|n| backoff.longest_after(n).as_secs());
        assert_eq!(longest, [1, 2, 4, 8, 10, 10, 10]);
        let waits: Vec<_> = (0..200).map(|_| backoff.after(3)).collect();
        assert!(waits.iter().all(|wait| wait.as_secs_f64() <= 4.0));
        assert!(waits.iter().any(|wait| wait.as_secs_f64() < 1.0));
        assert!(waits.iter().any(|wait| wait.as_secs_f64() > 3.0));
    }
}
