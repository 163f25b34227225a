//! How a request under a key can fail.

use std::{error::Error, fmt, time::Duration};

use http::StatusCode;
use jiff::Timestamp;

use super::Key;
use crate::key::KeyError;

/// The server no longer keeps the answer: the key was used before, and its
/// window has passed. Nothing was executed again, and nothing under this key
/// ever will be. Look up what the first request made, by `resource_id` or by a
/// reference of the business, before sending the operation under a new key.
///
/// It stands for a problem document whose `code` is `idempotency_key_expired`,
/// whatever the status. A member that the document leaves out is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyExpired {
    /// The key.
    pub key: Key,
    /// When the key was made, by its own account.
    pub key_made_at: Option<Timestamp>,
    /// The status of this refusal.
    pub status: StatusCode,
    /// The status that the first request was answered with.
    pub original_status: Option<u16>,
    /// What the first request made.
    pub resource_id: Option<String>,
    /// When the server first saw the key.
    pub created_at: Option<Timestamp>,
    /// When the record of the first request expired.
    pub expired_at: Option<Timestamp>,
    /// Whether an outcome of the first request is known.
    pub outcome: KnownOutcome,
    /// Whether the refused request is the recorded one.
    pub same_request: Option<bool>,
}

/// What a server still knows of how a request ended whose key has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KnownOutcome {
    /// It was answered; its effect is whatever that answer stood for.
    Completed,
    /// It is not known to have ended: it may have had its effect or not.
    #[default]
    Unknown,
}

impl KeyExpired {
    /// Finds it in what the client returned, also beneath the context that
    /// another middleware added.
    pub fn from_error(error: &reqwest_middleware::Error) -> Option<&Self> {
        find(error)
    }
}

impl fmt::Display for KeyExpired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the idempotency key has expired: look up what its first request made")
    }
}

impl Error for KeyExpired {}

/// A request failed for now or for good, and what it did is not known. Its
/// [key](Self::key) is what it can be repeated with later.
///
/// [`source`](Error::source) is the last attempt's own error: the
/// [`reqwest::Error`], or that of another middleware. Neither prints the key.
#[derive(Debug)]
#[non_exhaustive]
pub struct RetriesExhausted {
    /// The key of all attempts.
    pub key: Key,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why there was no further one.
    pub reason: GaveUp,
    /// How the last one failed.
    pub last: reqwest_middleware::Error,
}

/// Why no further attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GaveUp {
    /// The number of attempts is spent.
    Attempts,
    /// The next attempt would have begun after the total time.
    TotalTime,
    /// The next attempt would have begun too near to the end of the server's
    /// window.
    Window,
    /// The body is a stream, which can be sent only once.
    BodyNotRepeatable,
    /// The error is none that a repeat would mend.
    NotRetryable,
}

impl GaveUp {
    /// Why a response that says "the same key later" was returned all the same:
    /// nothing is known of the outcome, and the request is to be sent again later,
    /// under [its key](Key::of_response). `None` for a response that is an answer.
    pub fn of_response(response: &reqwest::Response) -> Option<Self> {
        response.extensions().get().copied()
    }
}

impl RetriesExhausted {
    /// Finds it in what the client returned, also beneath the context that
    /// another middleware added.
    pub fn from_error(error: &reqwest_middleware::Error) -> Option<&Self> {
        find(error)
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attempts => "no attempt is left",
            Self::TotalTime => "no time is left",
            Self::Window => "the server's window is about to end",
            Self::BodyNotRepeatable => "its body cannot be sent twice",
            Self::NotRetryable => "a repeat would not mend it",
        })
    }
}

impl fmt::Display for RetriesExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempts, reason, ..
        } = self;
        write!(f, "the request failed at attempt {attempts}, and {reason}")
    }
}

impl Error for RetriesExhausted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.last {
            reqwest_middleware::Error::Reqwest(error) => Some(error),
            reqwest_middleware::Error::Middleware(error) => {
                let error: &(dyn Error + Send + Sync) = error.as_ref();
                Some(error)
            }
        }
    }
}

/// Nothing was sent: the caller's key is so old that the server may have
/// forgotten it, and would run the request again. If it was sent before, look
/// up what it made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowPassed {
    /// The key.
    pub key: Key,
    /// How old it is.
    pub age: Duration,
    /// The window of the server.
    pub window: Duration,
    /// What must be left of the window for an attempt to start.
    pub margin: Duration,
}

impl WindowPassed {
    /// Finds it in what the client returned, also beneath the context that
    /// another middleware added.
    pub fn from_error(error: &reqwest_middleware::Error) -> Option<&Self> {
        find(error)
    }
}

impl fmt::Display for WindowPassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            age,
            window,
            margin,
            ..
        } = self;
        write!(
            f,
            "not sent: the idempotency key is {} s old, and may be sent until {} s before the end of a window of {} s",
            age.as_secs(),
            margin.as_secs(),
            window.as_secs(),
        )
    }
}

impl Error for WindowPassed {}

/// Nothing was sent: the request has a key header, and no server of this crate
/// would take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusableKey {
    /// What is wrong with it.
    pub reason: KeyError,
}

impl UnusableKey {
    /// Finds it in what the client returned, also beneath the context that
    /// another middleware added.
    pub fn from_error(error: &reqwest_middleware::Error) -> Option<&Self> {
        find(error)
    }
}

impl fmt::Display for UnusableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not sent: the request's idempotency key cannot be used")
    }
}

impl Error for UnusableKey {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}

pub(super) fn key_of(error: &reqwest_middleware::Error) -> Option<&Key> {
    let expired = KeyExpired::from_error(error).map(|error| &error.key);
    let exhausted = || RetriesExhausted::from_error(error).map(|error| &error.key);
    let passed = || WindowPassed::from_error(error).map(|error| &error.key);
    expired.or_else(exhausted).or_else(passed)
}

fn find<E: Error + 'static>(error: &reqwest_middleware::Error) -> Option<&E> {
    match error {
        reqwest_middleware::Error::Middleware(error) => {
            error.chain().find_map(|error| error.downcast_ref())
        }
        reqwest_middleware::Error::Reqwest(_) => None,
    }
}
