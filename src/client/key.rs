//! The key of one logical request, from the caller's side.

use std::{fmt, sync::Arc};

use http::HeaderValue;
use jiff::Timestamp;
use reqwest::Response;
use sfv::{ItemSerializer, StringRef};
use ulid::Ulid;

use super::error;
use crate::{
    clock::{Clock, SystemClock},
    key::{IdempotencyKey, KeyError, KeySyntax},
    timestamp,
};

/// The key of one logical request: what its attempts have in common, and what
/// nothing else may be sent under.
///
/// As an extension of a request it is the key that the request is sent with.
/// Every response that [`IdempotencyMiddleware`](super::IdempotencyMiddleware)
/// returns for a method it covers holds its key as an extension
/// ([`of_response`](Self::of_response)), and so does every error
/// ([`of_error`](Self::of_error)). `Debug` never prints it.
///
/// ```
/// use axum_idempotency::client::Key;
///
/// let key = Key::generate();
/// assert_eq!(key.as_str().len(), 26);
/// assert!(key.made_at().is_some());
/// assert_eq!(Key::new(key.as_str())?, key);
/// # Ok::<(), axum_idempotency::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// A fresh ULID, which tells when it was made. For a caller that stores
    /// the key before it sends the request.
    #[must_use]
    pub fn generate() -> Self {
        Self::made_now(&SystemClock)
    }

    pub(super) fn made_now(clock: &dyn Clock) -> Self {
        let unix_ms = u64::try_from(clock.now().as_millisecond()).unwrap_or_default();
        let ulid = Ulid::from_parts(unix_ms, Ulid::generate().random());
        Self(ulid.to_string().into())
    }

    /// Takes a key that was made before, such as one restored from a queue. A
    /// ULID and a `UUIDv7` tell their age; the window of any other begins with
    /// the first send by the middleware.
    ///
    /// # Errors
    ///
    /// As [`IdempotencyKey::new`].
    pub fn new(text: &str) -> Result<Self, KeyError> {
        IdempotencyKey::new(text).map(Self::from)
    }

    /// The key of the first field line, if there is any. Every spelling of it
    /// that the server takes is the same key.
    pub(super) fn of_lines<'a>(
        lines: impl IntoIterator<Item = &'a HeaderValue>,
    ) -> Result<Self, KeyError> {
        let lines = lines.into_iter().map(HeaderValue::as_bytes);
        KeySyntax::Lenient.parse(lines).map(Self::from)
    }

    /// The key of the request that was answered.
    pub fn of_response(response: &Response) -> Option<&Self> {
        response.extensions().get()
    }

    /// The key of the request that failed.
    pub fn of_error(error: &reqwest_middleware::Error) -> Option<&Self> {
        error::key_of(error)
    }

    /// The text to store beside the intent: 1 to 255 bytes of printable ASCII.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When the key was made, by its own account: the time in a ULID or a
    /// `UUIDv7`.
    #[must_use]
    pub fn made_at(&self) -> Option<Timestamp> {
        let unix_ms = timestamp::claimed_at_ms(&self.0)?;
        Timestamp::from_millisecond(unix_ms).ok()
    }

    /// The field's value, marked as sensitive, so that neither a log of the
    /// request nor a header compression table keeps it. A key that cannot
    /// stand bare is quoted in any case.
    pub(super) fn to_header(&self, is_quoted: bool) -> Result<HeaderValue, KeyError> {
        let text = if is_quoted || !self.can_stand_bare() {
            let string = StringRef::from_str(&self.0).map_err(|_| KeyError::BadCharacter)?;
            HeaderValue::try_from(ItemSerializer::new().bare_item(string).finish())
        } else {
            HeaderValue::from_str(&self.0)
        };
        let mut value = text.map_err(|_| KeyError::BadCharacter)?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn can_stand_bare(&self) -> bool {
        let read = KeySyntax::Lenient.parse([self.0.as_bytes()]);
        read.is_ok_and(|read| read.as_str() == &*self.0)
    }
}

/// A key that was decoded already, such as that of a request which this process
/// handles and passes on.
impl From<IdempotencyKey> for Key {
    fn from(key: IdempotencyKey) -> Self {
        Self(key.as_str().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_bare_unless_it_cannot_be_or_is_asked_for_in_quotes() {
        for (key, is_quoted, sent) in [
            (
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                false,
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            ),
            (
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                true,
                "\"01ARZ3NDEKTSV4RRFFQ69G5FAV\"",
            ),
            ("order 42", false, "\"order 42\""),
            ("a,b", false, "\"a,b\""),
            ("say \"hi\"\\", false, r#""say \"hi\"\\""#),
            (" k", false, "\" k\""),
        ] {
            let key = Key::new(key).expect("a key");
            let value = key.to_header(is_quoted).expect("a key fits into a field");
            assert_eq!(value, sent);
            assert!(value.is_sensitive(), "a log of the request shows the key");
            assert_eq!(Key::of_lines([&value]), Ok(key), "{sent} is another key");
        }
    }
}
