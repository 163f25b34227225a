//! Numbers, sizes and times in words.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::Offset};
use maud::{Markup, html};

/// `1,234,567`
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1,023 B`, `1.0 KiB`, `12.4 GiB`
pub(super) fn bytes(bytes: u64) -> String {
    let mut unit = 1_u64;
    for name in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if bytes / 1024 < unit || name == "TiB" {
            if unit == 1 {
                return format!("{} B", number(bytes));
            }
            let unit = u128::from(unit);
            let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
        unit *= 1024;
    }
    format!("{} B", number(bytes))
}

/// The two largest units: `350 ms`, `1.2 s`, `14 min 3 s`, `23 h 59 min`, `6 d 3 h`.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{} {large_unit}", number(large)),
        small => format!("{} {large_unit} {small} {small_unit}", number(large)),
    };
    match seconds {
        0 if span.as_millis() == 0 => format!("{} µs", span.as_micros()),
        0 => format!("{} ms", span.as_millis()),
        1..10 if span.subsec_millis() >= 100 => {
            format!("{seconds}.{} s", span.subsec_millis() / 100)
        }
        1..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// `in 3 h`, `2 min ago`, `now`
pub(super) fn relative(then: Timestamp, now: Timestamp) -> String {
    let distance = then.duration_since(now);
    let words = span(distance.unsigned_abs());
    if distance.is_zero() {
        "now".to_owned()
    } else if distance.is_negative() {
        format!("{words} ago")
    } else {
        format!("in {words}")
    }
}

/// `2026-12-01 02:14:03 UTC`, and the whole of it for machines.
pub(super) fn time(then: Timestamp) -> Markup {
    html! { time datetime=(then) { (date(then)) " " (clock(then)) " UTC" } }
}

/// `2026-12-01`
pub(super) fn date(then: Timestamp) -> String {
    let then = civil(then);
    format!("{:04}-{:02}-{:02}", then.year(), then.month(), then.day())
}

/// `02:14:03`
pub(super) fn clock(then: Timestamp) -> String {
    let then = civil(then);
    format!(
        "{:02}:{:02}:{:02}",
        then.hour(),
        then.minute(),
        then.second()
    )
}

/// `02:14`
pub(super) fn hour_and_minute(then: Timestamp) -> String {
    let then = civil(then);
    format!("{:02}:{:02}", then.hour(), then.minute())
}

pub(super) fn civil(then: Timestamp) -> DateTime {
    Offset::UTC.to_datetime(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_grouped() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_000), "1,000");
        assert_eq!(number(12_345_678), "12,345,678");
        assert_eq!(bytes(1_023), "1,023 B");
        assert_eq!(bytes(1_024), "1.0 KiB");
        assert_eq!(bytes(13_314_398_617), "12.4 GiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn a_span_has_its_two_largest_units() {
        assert_eq!(span(Duration::from_micros(350)), "350 µs");
        assert_eq!(span(Duration::from_millis(1_250)), "1.2 s");
        assert_eq!(span(Duration::from_secs(30)), "30 s");
        assert_eq!(span(Duration::from_secs(843)), "14 min 3 s");
        assert_eq!(span(Duration::from_secs(86_399)), "23 h 59 min");
        assert_eq!(span(Duration::from_hours(24)), "1 d");
        assert_eq!(span(Duration::from_hours(147)), "6 d 3 h");
    }
}
