//! Settings that cannot work.

use std::time::Duration;

use axum_idempotency::client::{
    IdempotencyMiddleware, IdempotencyMiddlewareBuilder, SettingsError,
};

fn refusal(
    change: impl FnOnce(IdempotencyMiddlewareBuilder) -> IdempotencyMiddlewareBuilder,
) -> Option<SettingsError> {
    change(IdempotencyMiddleware::builder()).build().err()
}

#[test]
fn settings_that_would_send_or_cover_nothing_are_refused() {
    const SECOND: Duration = Duration::from_secs(1);
    assert_eq!(refusal(|it| it), None);
    for (refused, expected) in [
        (refusal(|it| it.methods([])), SettingsError::NoMethods),
        (
            refusal(|it| it.window(Duration::ZERO)),
            SettingsError::WindowZero,
        ),
        (
            refusal(|it| it.window(SECOND).margin(SECOND)),
            SettingsError::MarginOverWindow,
        ),
        (
            refusal(|it| it.margin(Duration::from_hours(24))),
            SettingsError::MarginOverWindow,
        ),
        (refusal(|it| it.attempts(0)), SettingsError::NoAttempts),
        (
            refusal(|it| it.total_time(Duration::ZERO)),
            SettingsError::TotalTimeZero,
        ),
        (
            refusal(|it| it.backoff(2 * SECOND, SECOND)),
            SettingsError::BackoffOverCap,
        ),
    ] {
        assert_eq!(refused, Some(expected));
    }
    assert_eq!(
        refusal(|it| it.window(SECOND)),
        None,
        "the margin follows the window"
    );
    assert_eq!(refusal(|it| it.margin(Duration::ZERO)), None);
}
