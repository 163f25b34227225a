//! Where a policy finds the key of a request.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ConfigError, headers::header_case, markdown::code};
use crate::key::{IdempotencyKey, KeyError, KeySyntax, key_at_pointer, key_in_form};

/// Where the client's key is read from.
///
/// A key in a header is printable ASCII. One in a body is any text of 1 to 255
/// bytes of UTF-8, without control characters: see [`IdempotencyKey::from_id`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// A request header, one field line.
    Header(HeaderName),
    /// A string in a JSON body, by JSON pointer (RFC 6901).
    BodyPointer(String),
    /// A field of an `application/x-www-form-urlencoded` body, by its name.
    FormField(String),
    /// The first of these that the request has. One that is there and cannot be
    /// used is an error, not a reason to look further.
    FirstOf(Vec<KeySource>),
    /// All of these together, where none of them alone is unique: each with its
    /// length before it, joined by commas, such as `2:A1,9:delivered`, and at
    /// most 255 bytes in all. Where one is missing, the key is.
    AllOf(Vec<KeySource>),
}

impl KeySource {
    /// Whether the key can be told only once the body has been read.
    pub(crate) fn needs_body(&self) -> bool {
        match self {
            Self::Header(_) => false,
            Self::BodyPointer(_) | Self::FormField(_) => true,
            Self::FirstOf(sources) | Self::AllOf(sources) => sources.iter().any(Self::needs_body),
        }
    }

    /// Whether the head alone tells that there is no key.
    pub(crate) fn is_absent(&self, headers: &HeaderMap) -> bool {
        let is_absent = |source: &Self| source.is_absent(headers);
        match self {
            Self::Header(name) => !headers.contains_key(name),
            Self::BodyPointer(_) | Self::FormField(_) => false,
            Self::FirstOf(sources) => sources.iter().all(is_absent),
            Self::AllOf(_) if self.needs_body() => false,
            Self::AllOf(sources) => sources.iter().any(is_absent),
        }
    }

    /// The key of a request. The body is empty where the source does not need
    /// it.
    pub(crate) fn find(
        &self,
        syntax: KeySyntax,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<IdempotencyKey, KeyError> {
        match self {
            Self::Header(name) => {
                let lines = headers.get_all(name).iter();
                syntax.parse(lines.map(HeaderValue::as_bytes))
            }
            Self::BodyPointer(pointer) => key_at_pointer(body, pointer),
            Self::FormField(name) => key_in_form(body, name),
            Self::FirstOf(sources) => {
                let found = sources
                    .iter()
                    .map(|source| source.find(syntax, headers, body))
                    .find(|found| !matches!(found, Err(KeyError::Missing)));
                found.unwrap_or(Err(KeyError::Missing))
            }
            Self::AllOf(sources) => {
                let parts = sources
                    .iter()
                    .map(|source| source.find(syntax, headers, body));
                composite(&parts.collect::<Result<Vec<_>, _>>()?)
            }
        }
    }

    /// Where a client is told to send its key.
    pub(crate) fn in_words(&self) -> String {
        self.told(&|name| header_case(name), "the body", &str::to_owned)
    }

    /// The same for a page of Markdown.
    pub(super) fn in_markdown(&self) -> String {
        self.told(
            &|name| format!("the {} header", code(&header_case(name))),
            "the JSON body",
            &code,
        )
    }

    fn told(
        &self,
        header: &dyn Fn(&HeaderName) -> String,
        body: &str,
        quoted: &dyn Fn(&str) -> String,
    ) -> String {
        let list = |sources: &[Self], word: &str| {
            let told = sources.iter().map(|source| match source {
                Self::FirstOf(_) | Self::AllOf(_) => {
                    format!("({})", source.told(header, body, quoted))
                }
                _ => source.told(header, body, quoted),
            });
            told.collect::<Vec<_>>().join(word)
        };
        match self {
            Self::Header(name) => header(name),
            Self::BodyPointer(pointer) if pointer.is_empty() => {
                format!("{body}, which is the key itself")
            }
            Self::BodyPointer(pointer) => format!("{body} at {}", quoted(pointer)),
            Self::FormField(name) => format!("the form field {}", quoted(name)),
            Self::FirstOf(sources) => list(sources, " or else "),
            Self::AllOf(sources) => list(sources, " together with "),
        }
    }

    /// No list is empty and every pointer is one.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::Header(_) | Self::FormField(_) => Ok(()),
            Self::BodyPointer(pointer) => check_pointer(pointer),
            Self::FirstOf(sources) | Self::AllOf(sources) if sources.is_empty() => {
                Err(ConfigError::NoKeySource)
            }
            Self::FirstOf(sources) | Self::AllOf(sources) => {
                sources.iter().try_for_each(Self::check)
            }
        }
    }
}

pub(super) fn check_pointer(pointer: &str) -> Result<(), ConfigError> {
    if pointer.is_empty() || pointer.starts_with('/') {
        Ok(())
    } else {
        Err(ConfigError::BadPointer(pointer.to_owned()))
    }
}

/// Each part with its length, so that no two lists of parts run together.
fn composite(parts: &[IdempotencyKey]) -> Result<IdempotencyKey, KeyError> {
    let framed = parts.iter().map(|part| {
        let text = part.as_str();
        format!("{}:{text}", text.len())
    });
    IdempotencyKey::from_id(&framed.collect::<Vec<_>>().join(","))
}
