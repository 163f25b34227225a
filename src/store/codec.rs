//! Recorded response headers as bytes, for stores that keep them in a column.
//!
//! ```text
//! version (1 byte) · number of headers · for each: length, name, length, value
//! ```
//!
//! Numbers are LEB128 in their shortest form. Order, repeated names and values
//! that are not UTF-8 are kept. A header's mark as sensitive is not: whoever
//! reads the bytes reads the value. The body is stored beside, as it is.
//!
//! A response that cannot be read counts as one that was not kept.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::{
    record::{KeptResponse, ResourceId},
    scope::ScopedKey,
};

/// The bytes of `headers`, in order.
pub(crate) fn encode_headers(headers: &[(HeaderName, HeaderValue)]) -> Vec<u8> {
    let text = |(name, value): &(HeaderName, HeaderValue)| name.as_str().len() + value.len();
    let mut bytes = Vec::with_capacity(8 + headers.iter().map(|one| text(one) + 4).sum::<usize>());
    bytes.push(VERSION);
    push_number(&mut bytes, headers.len());
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            push_number(&mut bytes, part.len());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// What [`encode_headers`] was given. The values share the memory of `bytes`.
fn decode_headers(bytes: Bytes) -> Result<Vec<(HeaderName, HeaderValue)>, MalformedHeaders> {
    let mut rest = Reader(bytes);
    if rest.take(1)?[0] != VERSION {
        return Err(MalformedHeaders("their version is unknown"));
    }
    let count = rest.number()?;
    // A header takes three bytes or more: no count makes this reserve more
    // than the input is long.
    if count > rest.0.len() / 3 {
        return Err(MalformedHeaders("they end too early"));
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let name = rest.part()?;
        let name = HeaderName::from_lowercase(&name)
            .map_err(|_| MalformedHeaders("a name is no header name"))?;
        let value = HeaderValue::from_maybe_shared(rest.part()?)
            .map_err(|_| MalformedHeaders("a value is no header value"))?;
        headers.push((name, value));
    }
    if rest.0.is_empty() {
        Ok(headers)
    } else {
        Err(MalformedHeaders("bytes follow the last one"))
    }
}

/// The response in the columns of a row.
pub(super) fn stored_response(
    key: ScopedKey,
    headers: Option<Vec<u8>>,
    body: Option<Vec<u8>>,
) -> Option<KeptResponse> {
    let why = match (headers, body) {
        (None, None) => return None,
        (Some(headers), Some(body)) => match decode_headers(headers.into()) {
            Ok(headers) => {
                let body = Bytes::from(body);
                return Some(KeptResponse { headers, body });
            }
            Err(error) => error.to_string(),
        },
        (None, Some(_)) => "a body without headers".to_owned(),
        (Some(_), None) => "headers without a body".to_owned(),
    };
    unreadable_response(key, &why);
    None
}

pub(super) fn unreadable_response(key: ScopedKey, why: &str) {
    tracing::error!(scoped_key = %key, why, "the stored response cannot be read");
}

/// The resource id in the column of a row.
pub(super) fn stored_resource_id(key: ScopedKey, id: Option<&str>) -> Option<ResourceId> {
    let read = ResourceId::new(id?);
    if read.is_none() {
        tracing::error!(scoped_key = %key, "the stored resource id cannot be read");
    }
    read
}

/// Bytes that [`encode_headers`] cannot have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MalformedHeaders(&'static str);

impl fmt::Display for MalformedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed recorded headers: {}", self.0)
    }
}

impl std::error::Error for MalformedHeaders {}

const VERSION: u8 = 1;

/// Seven bits a byte, the low ones first; the high bit says that more follow.
fn push_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

struct Reader(Bytes);

impl Reader {
    fn take(&mut self, length: usize) -> Result<Bytes, MalformedHeaders> {
        if length > self.0.len() {
            return Err(MalformedHeaders("they end too early"));
        }
        Ok(self.0.split_to(length))
    }

    fn number(&mut self) -> Result<usize, MalformedHeaders> {
        let mut number = 0_usize;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = usize::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(MalformedHeaders("a length is out of range"))
    }

    fn part(&mut self) -> Result<Bytes, MalformedHeaders> {
        let length = self.number()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> Vec<(HeaderName, HeaderValue)> {
        pairs
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_bytes(value).expect("a header value");
                (HeaderName::from_static(name), value)
            })
            .collect()
    }

    fn decode(bytes: &[u8]) -> Result<Vec<(HeaderName, HeaderValue)>, MalformedHeaders> {
        decode_headers(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn order_repeats_and_every_byte_a_value_may_hold_survive() {
        let every: Vec<u8> = (0..=255)
            .filter(|byte| HeaderValue::from_bytes(&[*byte]).is_ok())
            .collect();
        assert!(every.len() > 200);
        let long = vec![b'a'; 300_000];
        for recorded in [
            headers(&[]),
            headers(&[("etag", b"")]),
            headers(&[
                ("link", b"<a>"),
                ("x-bytes", &every),
                ("link", b"<b>"),
                ("content-type", b"text/plain; charset=\xe9"),
                ("link", b"<a>"),
                ("x-long", &long),
            ]),
        ] {
            let bytes = encode_headers(&recorded);
            let decoded = decode(&bytes).expect("what was encoded");
            assert_eq!(decoded, recorded);
            assert_eq!(encode_headers(&decoded), bytes);
        }
    }

    #[test]
    fn a_short_header_costs_two_bytes_beside_its_text() {
        let recorded = headers(&[("etag", b"\"1\""), ("location", b"/v1/charges/ch_1")]);
        assert_eq!(encode_headers(&recorded).len(), 2 + 2 * 2 + 7 + 24);
    }

    #[test]
    fn no_truncation_and_no_addition_decodes() {
        let bytes = encode_headers(&headers(&[
            ("link", b"<a>"),
            ("x-empty", b""),
            ("x-long", &[b'v'; 200]),
        ]));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "cut to {length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(
            decode(&longer),
            Err(MalformedHeaders("bytes follow the last one"))
        );
    }

    #[test]
    fn every_malformed_input_is_an_error() {
        let overlong = [[1, 0x80].as_slice(), &[0x80; 12], &[0]].concat();
        let cases: [(&[u8], &str); 13] = [
            (b"", "they end too early"),
            (&[0, 0], "their version is unknown"),
            (&[2, 0], "their version is unknown"),
            (&[1], "they end too early"),
            (&[1, 1], "they end too early"),
            (&[1, 0x80, 0], "a length is out of range"),
            (&overlong, "a length is out of range"),
            (
                &[
                    1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
                ],
                "a length is out of range",
            ),
            (
                &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0],
                "they end too early",
            ),
            (&[1, 1, 0, 1, b'v'], "a name is no header name"),
            (
                &[1, 1, 4, b'E', b't', b'a', b'g', 1, b'v'],
                "a name is no header name",
            ),
            (
                &[1, 1, 4, b'e', b' ', b'a', b'g', 1, b'v'],
                "a name is no header name",
            ),
            (
                &[1, 1, 4, b'e', b't', b'a', b'g', 1, b'\n'],
                "a value is no header value",
            ),
        ];
        for (bytes, why) in cases {
            assert_eq!(decode(bytes), Err(MalformedHeaders(why)), "{bytes:?}");
        }
    }

    #[test]
    fn one_changed_byte_never_panics_and_never_decodes_to_the_same() {
        let recorded = headers(&[("link", b"<a>"), ("etag", b"\"1\""), ("link", b"<b>")]);
        let bytes = encode_headers(&recorded);
        for position in 0..bytes.len() {
            for byte in 0..=255_u8 {
                let mut changed = bytes.clone();
                changed[position] = byte;
                if byte != bytes[position] {
                    assert_ne!(decode(&changed), Ok(recorded.clone()), "{position} {byte}");
                }
            }
        }
    }
}
