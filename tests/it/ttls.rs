//! How long a record is kept: a sum that nobody forgets a part of, never
//! nothing and never for ever.

use std::time::Duration;

use axum_idempotency::{Policy, PrincipalSource, Ttl, TtlError};

#[test]
fn a_ttl_is_the_sum_of_its_parts() {
    let sum = |queue: Duration, skew: Duration, by_hand: Duration| {
        let ttl = Ttl::longest_retry_window(DAY)
            .queue_lag(queue)
            .clock_skew(skew)
            .manual_replays(by_hand);
        ttl.build().map(Ttl::get)
    };
    assert_eq!(sum(ZERO, ZERO, ZERO), Ok(DAY), "the window alone");
    assert_eq!(sum(HOUR, ZERO, ZERO), Ok(DAY + HOUR), "the queue counts");
    assert_eq!(sum(ZERO, HOUR, ZERO), Ok(DAY + HOUR), "the clocks count");
    assert_eq!(
        sum(ZERO, ZERO, HOUR),
        Ok(DAY + HOUR),
        "replays by hand count"
    );
    let all = sum(HOUR, SECOND, 3 * DAY);
    assert_eq!(all, Ok(4 * DAY + HOUR + SECOND), "all parts count");
}

#[test]
fn a_ttl_is_longer_than_nothing() {
    let least = Duration::from_micros(1);
    assert_eq!(Ttl::new(least).map(Ttl::get), Ok(least));
    let just_below = least.saturating_sub(NANOSECOND);
    for nothing in [ZERO, NANOSECOND, just_below] {
        assert_eq!(Ttl::new(nothing), Err(TtlError::Zero), "{nothing:?}");
        assert_eq!(Ttl::try_from(nothing), Err(TtlError::Zero), "{nothing:?}");
    }
    let parts = Ttl::longest_retry_window(ZERO).build();
    assert_eq!(parts, Err(TtlError::Zero), "a sum of nothing");
    assert!(TtlError::Zero.to_string().contains("longer than zero"));
}

#[test]
fn a_ttl_ends() {
    let longest = 366 * DAY;
    assert_eq!(Ttl::MAX.get(), longest);
    assert_eq!(Ttl::new(longest), Ok(Ttl::MAX));
    for endless in [longest + NANOSECOND, Duration::MAX] {
        assert_eq!(Ttl::new(endless), Err(TtlError::Infinite), "{endless:?}");
        let converted = Ttl::try_from(endless);
        assert_eq!(converted, Err(TtlError::Infinite), "{endless:?}");
    }
    let parts = |lag| Ttl::longest_retry_window(365 * DAY).queue_lag(lag);
    assert_eq!(parts(DAY).build(), Ok(Ttl::MAX), "a sum at the limit");
    let over = parts(DAY + NANOSECOND).build();
    assert_eq!(over, Err(TtlError::Infinite), "a sum over the limit");
    // More than a duration can hold.
    let overflow = Ttl::longest_retry_window(Duration::MAX)
        .queue_lag(Duration::MAX)
        .manual_replays(Duration::MAX);
    assert_eq!(overflow.build(), Err(TtlError::Infinite));
    assert!(TtlError::Infinite.to_string().contains("366 days"));
}

#[test]
fn the_floor_follows_the_longest_retry_window() {
    for (window, days) in [
        (ZERO, 1),
        (10 * MINUTE, 1),
        (HOUR, 1),
        (HOUR + NANOSECOND, 3),
        (DAY, 3),
        (DAY + NANOSECOND, 7),
        (3 * DAY, 7),
        (3 * DAY + NANOSECOND, 14),
        (7 * DAY, 14),
        (8 * DAY, 14),
    ] {
        let floor = Ttl::floor_for(window).map(Ttl::get);
        assert_eq!(floor, Ok(days * DAY), "for {window:?}");
        assert!(days * DAY > window, "a floor outlives its window");
    }
    for window in [8 * DAY + NANOSECOND, 365 * DAY, Duration::MAX] {
        assert_eq!(Ttl::floor_for(window), Err(TtlError::NoFloor), "{window:?}");
    }
    assert!(TtlError::NoFloor.to_string().contains("8 days"));
}

#[test]
fn a_policy_keeps_its_records_for_a_day_unless_told() {
    let policy = Policy::builder(PrincipalSource::bearer());
    let ttl = policy.clone().build().map(|policy| policy.ttl().get());
    assert_eq!(ttl, Ok(DAY));
    let week = Ttl::floor_for(3 * DAY).expect("the table has it");
    let ttl = policy.ttl(week).build().map(|policy| policy.ttl());
    assert_eq!(ttl, Ok(week));
}

const ZERO: Duration = Duration::ZERO;
const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
