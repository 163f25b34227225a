//! The client's key: from the bytes on the wire to one decoded text.
//!
//! 1. A key comes from a header ([`KeySyntax::parse`]), from a body, or already
//!    decoded ([`IdempotencyKey::new`]). Once decoded it is the same key,
//!    wherever it came from: `"k"` and `k` are one.
//! 2. Keys are compared byte for byte. Case matters, and a UUID in braces is
//!    not the UUID without them.
//! 3. A key that is present and unusable is an error, never an absent key:
//!    a client that believes itself protected must be told that it is not.
//! 4. No message and no `Debug` output repeats the key. It may identify a
//!    customer, and who knows it may ask for the recorded answer.

use std::{borrow::Cow, fmt, sync::Arc};

use sfv::StringRef;

mod body;

pub(crate) use self::body::{key_at_pointer, key_in_form};

/// A client's key, decoded. Cheap to clone; `Debug` never prints its text.
///
/// ```
/// use axum_idempotency::{IdempotencyKey, KeySyntax};
///
/// let quoted = KeySyntax::Lenient.parse([br#""order 42""#.as_slice()])?;
/// assert_eq!(quoted, IdempotencyKey::new("order 42")?);
/// assert_eq!(format!("{quoted:?}"), "IdempotencyKey(..)");
/// # Ok::<(), axum_idempotency::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// The longest key, in bytes after decoding: quotes, escapes and
    /// parameters do not count.
    pub const MAX_LENGTH: usize = 255;

    /// Takes a key that is decoded already, as a header may carry it.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`]; [`KeyError::TooLong`] past
    /// [`MAX_LENGTH`](Self::MAX_LENGTH) bytes; [`KeyError::BadCharacter`]
    /// outside printable ASCII (space to `~`, which is all that a
    /// structured-field string can carry, RFC 9651 section 3.3.3);
    /// [`KeyError::Blank`] when it is spaces only.
    pub fn new(decoded: &str) -> Result<Self, KeyError> {
        if decoded.is_empty() {
            return Err(KeyError::Empty);
        }
        if decoded.len() > Self::MAX_LENGTH {
            return Err(KeyError::TooLong);
        }
        if !is_printable_ascii(decoded.as_bytes()) {
            return Err(KeyError::BadCharacter);
        }
        if decoded.bytes().all(|byte| byte == b' ') {
            return Err(KeyError::Blank);
        }
        Ok(Self(decoded.into()))
    }

    /// A key of ours, which is short and visible.
    pub(crate) fn made(text: String) -> Self {
        debug_assert!(Self::new(&text).is_ok());
        Self(text.into())
    }

    /// Takes the id of an event or a message, which is any text: the member of a
    /// JSON body, the field of a form, the id in a queue. Of printable ASCII, it
    /// is the same key as [`IdempotencyKey::new`] makes.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`]; [`KeyError::TooLong`] past
    /// [`MAX_LENGTH`](Self::MAX_LENGTH) bytes of UTF-8;
    /// [`KeyError::BadCharacter`] for a control character; [`KeyError::Blank`]
    /// when it is white space only.
    pub fn from_id(id: &str) -> Result<Self, KeyError> {
        if id.is_empty() {
            return Err(KeyError::Empty);
        }
        if id.len() > Self::MAX_LENGTH {
            return Err(KeyError::TooLong);
        }
        if id.chars().any(char::is_control) {
            return Err(KeyError::BadCharacter);
        }
        if id.chars().all(char::is_whitespace) {
            return Err(KeyError::Blank);
        }
        Ok(Self(id.into()))
    }

    /// The decoded text: 1 to 255 bytes, of printable ASCII unless it is an id
    /// from a body.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(..)")
    }
}

/// Which spellings of a key a header may use. The default is `Lenient`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeySyntax {
    /// A value that starts with `"` is read as in [`Strict`](Self::Strict),
    /// with no second guess. Any other value is the key itself: visible ASCII
    /// without `"`, `,`, `;` and `\`. This is what most clients send today.
    #[default]
    Lenient,
    /// A structured-field Item that is a String (RFC 9651), as the
    /// Idempotency-Key draft (section 2.1) demands. Its parameters must be
    /// well formed, and are ignored.
    Strict,
}

impl KeySyntax {
    /// Reads the key from the header's field lines, in the order they came.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] without any line, and
    /// [`KeyError::MultipleValues`] with more than one, though they be equal:
    /// which of them a hop before this one acted upon is unknown. Otherwise
    /// what is wrong with the one line.
    pub fn parse<'a>(
        self,
        lines: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<IdempotencyKey, KeyError> {
        let mut lines = lines.into_iter();
        let line = lines.next().ok_or(KeyError::Missing)?;
        if lines.next().is_some() {
            return Err(KeyError::MultipleValues);
        }
        // RFC 9651 discards spaces around an Item and fails on a tab; to
        // RFC 9110, and to the lenient reading, both are white space.
        let value = match self {
            Self::Strict => trim(line, b" "),
            Self::Lenient => trim(line, b" \t"),
        };
        match (value.first(), self) {
            (None, _) => Err(KeyError::Empty),
            (Some(b'"'), _) => parse_string_item(value),
            (Some(_), Self::Strict) => Err(KeyError::NotAString),
            (Some(_), Self::Lenient) => parse_bare(value),
        }
    }
}

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// There is none.
    Missing,
    /// The field, or the string in it, is empty.
    Empty,
    /// The string is white space only.
    Blank,
    /// Not a structured-field Item (RFC 9651), or a body that is not JSON.
    BadSyntax,
    /// A byte that a key of this spelling cannot hold.
    BadCharacter,
    /// Something other than a string.
    NotAString,
    /// More than [`IdempotencyKey::MAX_LENGTH`] bytes after decoding.
    TooLong,
    /// More than one: several field lines, or one name or field twice in the body.
    MultipleValues,
    /// The policy takes only keys that carry a time, and this one does not.
    TimestampMissing,
    /// The key's own time lies further ahead than a clock may be wrong.
    TimestampFuture,
}

impl KeyError {
    /// The stable word for this fault, as clients see it in `reason`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::Blank => "blank",
            Self::BadSyntax => "bad_syntax",
            Self::BadCharacter => "bad_character",
            Self::NotAString => "not_a_string",
            Self::TooLong => "too_long",
            Self::MultipleValues => "multiple_values",
            Self::TimestampMissing => "timestamp_missing",
            Self::TimestampFuture => "timestamp_future",
        }
    }
}

/// A sentence for the client: what to mend. It holds nothing of the key.
impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "Send an idempotency key with this request.",
            Self::Empty => "The idempotency key is empty; send one of 1 to 255 characters.",
            Self::Blank => "The idempotency key is only spaces; send one that can be told apart.",
            Self::BadSyntax => {
                "The idempotency key cannot be parsed; a header takes one double-quoted string, \
                 with \\\" and \\\\ as its only escapes, and a body must be JSON."
            }
            Self::BadCharacter => {
                "The idempotency key holds a character that is not allowed; use printable ASCII, \
                 or in a body any text without control characters, and in a header put quotes \
                 around a key with a space, comma, semicolon or backslash."
            }
            Self::NotAString => "The idempotency key is not a string; send it in double quotes.",
            Self::TooLong => "The idempotency key is too long; use at most 255 bytes.",
            Self::MultipleValues => {
                "The request carries more than one idempotency key; send exactly one."
            }
            Self::TimestampMissing => {
                "The idempotency key must carry the time it was made: use a ULID or a UUIDv7."
            }
            Self::TimestampFuture => {
                "The time in the idempotency key lies too far ahead; set the clock that made it."
            }
        })
    }
}

impl std::error::Error for KeyError {}

fn parse_string_item(value: &[u8]) -> Result<IdempotencyKey, KeyError> {
    // No part of an Item may hold such a byte. `sfv` refuses them as well,
    // but its error does not tell them from a missing quote.
    if !is_printable_ascii(value) {
        return Err(KeyError::BadCharacter);
    }
    let text: Cow<'_, StringRef> = sfv::Parser::new(value)
        .parse_item()
        .map_err(|_| KeyError::BadSyntax)?;
    IdempotencyKey::new(text.as_str())
}

fn parse_bare(value: &[u8]) -> Result<IdempotencyKey, KeyError> {
    // The four that have a meaning in a structured field: a proxy that joins
    // lines or adds a parameter must not bring forth another valid key.
    let is_bare = |&byte: &u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
    match str::from_utf8(value) {
        Ok(text) if value.iter().all(is_bare) => IdempotencyKey::new(text),
        _ => Err(KeyError::BadCharacter),
    }
}

fn is_printable_ascii(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

fn trim<'a>(mut bytes: &'a [u8], spaces: &[u8]) -> &'a [u8] {
    while let [first, rest @ ..] = bytes
        && spaces.contains(first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && spaces.contains(last)
    {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_structured_field_gives_a_meaning_is_in_no_bare_key() {
        for mark in ['"', ',', ';', '\\', ' ', '\t'] {
            let parsed = KeySyntax::Lenient.parse([format!("a{mark}b").as_bytes()]);
            assert_eq!(parsed, Err(KeyError::BadCharacter), "{mark:?}");
        }
    }

    #[test]
    fn a_tab_around_the_value_is_white_space_to_the_lenient_reading_only() {
        let key = IdempotencyKey::new("k");
        for (line, strict) in [
            (b" \"k\" ".as_slice(), key.clone()),
            (b"\t\"k\"", Err(KeyError::NotAString)),
            (b"\"k\"\t", Err(KeyError::BadCharacter)),
        ] {
            assert_eq!(KeySyntax::Lenient.parse([line]), key);
            assert_eq!(KeySyntax::Strict.parse([line]), strict);
        }
    }

    #[test]
    fn an_id_is_any_text_of_255_bytes_that_can_be_told_apart() {
        for id in ["evt_1", "заказ-№1", " a ", "\u{1f4b3}", &"é".repeat(127)] {
            let key = IdempotencyKey::from_id(id);
            assert_eq!(key.as_ref().map(IdempotencyKey::as_str), Ok(id));
        }
        assert_eq!(IdempotencyKey::from_id("k"), IdempotencyKey::new("k"));
        let long = "é".repeat(128);
        for (id, error) in [
            ("", KeyError::Empty),
            (long.as_str(), KeyError::TooLong),
            (" \u{3000}", KeyError::Blank),
            ("a\nb", KeyError::BadCharacter),
            ("a\u{85}b", KeyError::BadCharacter),
            ("a\0", KeyError::BadCharacter),
        ] {
            assert_eq!(IdempotencyKey::from_id(id), Err(error), "{id:?}");
        }
    }

    #[test]
    fn the_key_stays_out_of_debug_output() {
        let key = IdempotencyKey::new("secret").expect("a key");
        assert!(!format!("{key:?} {:?}", Some(&key)).contains("secret"));
    }
}
