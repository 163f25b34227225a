//! The settings of the middleware, and which of them cannot work.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use http::{HeaderName, Method};

use super::{IdempotencyMiddleware, wait::Backoff};
use crate::{
    clock::{Clock, SystemClock},
    ttl::Ttl,
};

/// What the middleware goes by.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub header: HeaderName,
    pub is_quoted: bool,
    pub methods: Vec<Method>,
    pub window: Duration,
    pub margin: Duration,
    pub attempts: u32,
    pub total_time: Duration,
    pub backoff: Backoff,
    pub clock: Arc<dyn Clock>,
}

impl Default for Settings {
    fn default() -> Self {
        let window = Ttl::DEFAULT.get();
        Self {
            header: HeaderName::from_static("idempotency-key"),
            is_quoted: false,
            methods: vec![Method::POST, Method::PATCH],
            window,
            margin: margin_of(window),
            attempts: 10,
            total_time: Duration::from_mins(2),
            backoff: Backoff {
                base: Duration::from_millis(250),
                cap: Duration::from_secs(10),
            },
            clock: Arc::new(SystemClock),
        }
    }
}

fn margin_of(window: Duration) -> Duration {
    window / 10
}

/// Makes an [`IdempotencyMiddleware`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct IdempotencyMiddlewareBuilder {
    settings: Settings,
    margin: Option<Duration>,
}

impl IdempotencyMiddlewareBuilder {
    /// The header that holds the key. Default: `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Sends the key as a structured-field string, `"01J…"`, which the draft
    /// (section 2.1) and [`KeySyntax::Strict`](crate::KeySyntax::Strict)
    /// demand. By default it is sent bare, which the lenient syntax takes as
    /// the same key, unless it holds what cannot stand bare. A header that the
    /// request has already is left as it is.
    pub fn structured_field(mut self) -> Self {
        self.settings.is_quoted = true;
        self
    }

    /// The methods whose requests get a key and are repeated. Others pass
    /// through untouched: no key, no retry. Default: POST and PATCH.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// How long the server answers for a key, as its documentation says: the
    /// TTL of its policy. Default: 24 hours, the server's own default.
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = window;
        self
    }

    /// What must be left of the window for an attempt to start: for the way to
    /// the server, a queue before it, and clocks that differ. Default: a tenth
    /// of the window.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// How many attempts are made at most, the first included. Default: 10, which outlast
    /// a server that restarts and the default lease of its crashed request.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// How long after the first attempt began another may still begin. An
    /// attempt under way is not cut short; the timeout of the [`reqwest`]
    /// client does that. Default: 2 minutes.
    pub fn total_time(mut self, total_time: Duration) -> Self {
        self.settings.total_time = total_time;
        self
    }

    /// Waits grow from `base` to `cap`, doubling, with full jitter: each is
    /// anything from zero to that. They come on top of what `Retry-After`
    /// asks for. Zero and zero waits for nothing else. Default: 250 ms and
    /// 10 s.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = Backoff { base, cap };
        self
    }

    /// The wall clock that keys are made and judged by, for tests. Waits go by
    /// tokio's time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// The middleware.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] for settings under which nothing could ever be sent,
    /// or nothing would be covered.
    pub fn build(self) -> Result<IdempotencyMiddleware, SettingsError> {
        let mut settings = self.settings;
        settings.margin = self.margin.unwrap_or(margin_of(settings.window));
        if settings.methods.is_empty() {
            Err(SettingsError::NoMethods)
        } else if settings.window.is_zero() {
            Err(SettingsError::WindowZero)
        } else if settings.margin >= settings.window {
            Err(SettingsError::MarginOverWindow)
        } else if settings.attempts == 0 {
            Err(SettingsError::NoAttempts)
        } else if settings.total_time.is_zero() {
            Err(SettingsError::TotalTimeZero)
        } else if settings.backoff.base > settings.backoff.cap {
            Err(SettingsError::BackoffOverCap)
        } else {
            Ok(IdempotencyMiddleware::of(settings))
        }
    }
}

/// Why an [`IdempotencyMiddleware`] cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// No method is covered.
    NoMethods,
    /// The window is zero: no key would ever be inside it.
    WindowZero,
    /// The margin leaves nothing of the window.
    MarginOverWindow,
    /// Not even a first attempt is allowed.
    NoAttempts,
    /// The total time is zero. To send once, allow one attempt.
    TotalTimeZero,
    /// The first wait is longer than the longest.
    BackoffOverCap,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMethods => "the middleware covers no method",
            Self::WindowZero => "the window must be longer than zero",
            Self::MarginOverWindow => "the margin must be shorter than the window",
            Self::NoAttempts => "at least one attempt must be allowed",
            Self::TotalTimeZero => {
                "the total time must be longer than zero: to send once, allow one attempt"
            }
            Self::BackoffOverCap => "the first wait must not be longer than the longest",
        })
    }
}

impl Error for SettingsError {}
