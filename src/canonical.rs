//! Canonical JSON (RFC 8785), stricter where two different bodies would
//! otherwise look the same.
//!
//! 1. Members are ordered by the UTF-16 units of their names, white space
//!    goes, strings and numbers are written as ECMAScript writes them.
//! 2. Refused, because readers disagree on what they mean or because they
//!    fall together with a neighbour: a name twice in one object, an escaped
//!    lone surrogate, an integer beyond ±(2^53 − 1), a number beyond a double.
//! 3. `1.0` and `1` are one number, and a fraction is rounded to a double
//!    before it is written. Send money as strings or integers.
//! 4. A canonical text is its own canonical form, except that 1e20, written in
//!    full as ECMAScript does, is an integer out of range when read again.
//! 5. The text is checked against the grammar first, so that a body which is
//!    no JSON at all is `BadJson` whatever else it holds.
//!
//! `serde_json` checks the grammar and decodes escapes, and
//! `serde_json_canonicalizer` writes what has more than one spelling. Numbers
//! are not read through `serde_json`'s types, since an application may enable
//! its `arbitrary_precision`, and a fingerprint must not change with that.

use std::{borrow::Cow, cmp::Ordering, fmt, ops::Range};

use serde::{Serialize, de::IgnoredAny};

/// Rewrites a JSON text in its canonical form.
///
/// ```
/// use axum_idempotency::canonical::canonicalize;
///
/// let one = canonicalize(br#"{"amount": 1.05e3, "currency": "EUR"}"#)?;
/// let other = canonicalize(br#"{"currency":"\u0045UR","amount":1050}"#)?;
/// assert_eq!(one, other);
/// assert_eq!(one, br#"{"amount":1050,"currency":"EUR"}"#);
/// # Ok::<(), axum_idempotency::canonical::CanonicalError>(())
/// ```
///
/// # Errors
///
/// `BadJson` for what is not JSON in UTF-8 (RFC 8259), or nests deeper than
/// 127 levels, where `serde_json` gives up as well; otherwise the first fault
/// that stands in the way of a canonical form, an object being judged as a
/// whole after its members.
pub fn canonicalize(json: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let text = str::from_utf8(json).map_err(|_| CanonicalError::BadJson)?;
    // Does not recurse, decodes nothing, keeps nothing.
    serde_json::from_str::<IgnoredAny>(text).map_err(|_| CanonicalError::BadJson)?;
    let mut rewrite = Rewrite {
        text,
        at: 0,
        depth: 0,
        out: Vec::with_capacity(json.len()),
    };
    rewrite.value()?;
    Ok(rewrite.out)
}

/// Why a JSON text has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CanonicalError {
    /// It is not JSON in UTF-8 (RFC 8259), or nests too deep.
    BadJson,
    /// An object holds one name twice, perhaps in two spellings. Parsers
    /// disagree on which of them counts.
    DuplicateKey,
    /// A string or a name escapes half of a surrogate pair, which UTF-8
    /// cannot express (RFC 8785 section 3.2.2.2).
    LoneSurrogate,
    /// An integer, without point or exponent, beyond ±(2^53 − 1): as a double
    /// it might equal its neighbour. Stricter than RFC 8785's algorithm.
    IntegerOutOfRange,
    /// A number too large for a double (RFC 8785 section 3.2.2.3).
    NumberOverflow,
}

impl CanonicalError {
    /// The stable word for this fault.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::BadJson => "bad_json",
            Self::DuplicateKey => "duplicate_key",
            Self::LoneSurrogate => "lone_surrogate",
            Self::IntegerOutOfRange => "integer_out_of_range",
            Self::NumberOverflow => "number_overflow",
        }
    }
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadJson => "the text is not JSON, or nests too deep",
            Self::DuplicateKey => "an object holds one name twice",
            Self::LoneSurrogate => "a string holds half of a surrogate pair",
            Self::IntegerOutOfRange => "an integer lies beyond what a double holds exactly",
            Self::NumberOverflow => "a number is too large for a double",
        })
    }
}

impl std::error::Error for CanonicalError {}

type Outcome<T> = Result<T, CanonicalError>;

/// One pass over a text that is known to be JSON, copying it to `out`. Each
/// object is put in order there once its last member is written.
struct Rewrite<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    out: Vec<u8>,
}

impl<'a> Rewrite<'a> {
    fn value(&mut self) -> Outcome<()> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.sequence(b'[', b']', Self::value),
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.literal(),
        }
    }

    fn object(&mut self) -> Outcome<()> {
        let start = self.out.len() + 1;
        let mut members = Vec::new();
        self.sequence(b'{', b'}', |rewrite| {
            let from = rewrite.out.len() - start;
            let name = rewrite.string()?;
            rewrite.take(b':')?;
            rewrite.value()?;
            let text = from..rewrite.out.len() - start;
            members.push(Member { name, text });
            Ok(())
        })?;
        if members.is_sorted_by(|a, b| a.order(b).is_lt()) {
            return Ok(());
        }
        members.sort_unstable_by(Member::order);
        if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(CanonicalError::DuplicateKey);
        }
        let unsorted = self.out.split_off(start);
        for (position, member) in members.into_iter().enumerate() {
            if position > 0 {
                self.out.push(b',');
            }
            self.out.extend_from_slice(&unsorted[member.text]);
        }
        self.out.push(b'}');
        Ok(())
    }

    /// What stands between two brackets, with the commas.
    fn sequence(
        &mut self,
        open: u8,
        close: u8,
        mut element: impl FnMut(&mut Self) -> Outcome<()>,
    ) -> Outcome<()> {
        // The one recursion of this module passes here.
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(CanonicalError::BadJson);
        }
        self.take(open)?;
        if self.peek() != Some(close) {
            element(self)?;
            while self.peek() != Some(close) {
                self.take(b',')?;
                element(self)?;
            }
        }
        self.depth -= 1;
        self.take(close)
    }

    /// Copies a string, or a member's name, and returns it decoded.
    fn string(&mut self) -> Outcome<Cow<'a, str>> {
        self.skip_space();
        let mut is_escaped = false;
        let mut length = 1;
        loop {
            match self.text.as_bytes().get(self.at + length) {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_escaped = true;
                    length += 2;
                }
                Some(_) => length += 1,
                None => return Err(CanonicalError::BadJson),
            }
        }
        let token = self.token(length + 1)?;
        if is_escaped {
            // Of all that can be wrong with an escape, the grammar has left
            // only this.
            let decoded: String =
                serde_json::from_str(token).map_err(|_| CanonicalError::LoneSurrogate)?;
            self.write(&decoded)?;
            Ok(Cow::Owned(decoded))
        } else {
            // What needs no escape in any JSON text has one spelling.
            self.out.extend_from_slice(token.as_bytes());
            let decoded = token.get(1..length).ok_or(CanonicalError::BadJson)?;
            Ok(Cow::Borrowed(decoded))
        }
    }

    fn number(&mut self) -> Outcome<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let is_in_number =
            |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let token = self.token(rest.iter().take_while(is_in_number).count())?;
        if token.contains(['.', 'e', 'E']) {
            let number: f64 = token.parse().map_err(|_| CanonicalError::BadJson)?;
            if number.is_infinite() {
                return Err(CanonicalError::NumberOverflow);
            }
            return self.write(&number);
        }
        match token.parse::<i64>() {
            // An integer has one spelling, save that zero may have a sign.
            Ok(0) => self.out.push(b'0'),
            Ok(integer) if integer.unsigned_abs() <= MAX_SAFE_INTEGER => {
                self.out.extend_from_slice(token.as_bytes());
            }
            _ => return Err(CanonicalError::IntegerOutOfRange),
        }
        Ok(())
    }

    fn literal(&mut self) -> Outcome<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let word = [b"true".as_slice(), b"false", b"null"]
            .into_iter()
            .find(|word| rest.starts_with(word))
            .ok_or(CanonicalError::BadJson)?;
        self.at += word.len();
        self.out.extend_from_slice(word);
        Ok(())
    }

    /// The next `length` bytes, passed over but not copied.
    fn token(&mut self, length: usize) -> Outcome<&'a str> {
        let end = self.at + length;
        let token = self.text.get(self.at..end).ok_or(CanonicalError::BadJson)?;
        self.at = end;
        Ok(token)
    }

    /// Copies one mark of punctuation.
    fn take(&mut self, mark: u8) -> Outcome<()> {
        if self.peek() != Some(mark) {
            return Err(CanonicalError::BadJson);
        }
        self.at += 1;
        self.out.push(mark);
        Ok(())
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
    }

    fn write(&mut self, scalar: &impl Serialize) -> Outcome<()> {
        // Writing a string or a finite number to memory does not fail.
        serde_json_canonicalizer::to_writer(scalar, &mut self.out)
            .map_err(|_| CanonicalError::BadJson)
    }
}

/// A member of an object: its name, and where its text lies in the object.
struct Member<'a> {
    name: Cow<'a, str>,
    text: Range<usize>,
}

impl Member<'_> {
    /// By UTF-16 units (RFC 8785 section 3.2.3), where a character beyond the
    /// basic plane comes before U+E000 to U+FFFF.
    fn order(&self, other: &Self) -> Ordering {
        self.name.encode_utf16().cmp(other.name.encode_utf16())
    }
}

/// `serde_json` reads as many levels of arrays and objects and no more.
const MAX_DEPTH: usize = 127;

/// 2^53 − 1: up to here a double tells every integer from its neighbours.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }

    #[test]
    fn nesting_past_the_limit_is_an_error_and_no_stack_overflow() {
        assert_eq!(
            canonicalize(nested(127).as_bytes()),
            Ok(nested(127).into_bytes())
        );
        for levels in [128, 1 << 20] {
            let arrays = canonicalize(nested(levels).as_bytes());
            let objects = r#"{"a":"#.repeat(levels) + "0" + &"}".repeat(levels);
            assert_eq!(arrays, Err(CanonicalError::BadJson), "{levels} arrays");
            assert_eq!(
                canonicalize(objects.as_bytes()),
                Err(CanonicalError::BadJson),
                "{levels} objects"
            );
        }
        let closed = r#"[{"a":[]},[]"#.to_owned() + &",[[]]".repeat(200) + "]";
        assert_eq!(canonicalize(closed.as_bytes()), Ok(closed.into_bytes()));
    }

    #[test]
    fn bodies_that_are_not_json_are_bad_json_before_all_else() {
        for body in [
            "[9007199254740993",
            r#"{"a":1,"a":1"#,
            r#"["\ud800" 1]"#,
            "[1e400,]",
            "-",
            "nulll",
        ] {
            assert_eq!(
                canonicalize(body.as_bytes()),
                Err(CanonicalError::BadJson),
                "{body}"
            );
        }
        assert_eq!(canonicalize(b"\"\xff\""), Err(CanonicalError::BadJson));
    }

    #[test]
    fn a_large_object_in_the_worst_order_is_sorted() {
        // Quadratic work on these names would take minutes, not milliseconds.
        let member = |number: usize| format!("\"{}{number:06}\":0", "x".repeat(40));
        let body = |members: Vec<String>| format!("{{{}}}", members.join(","));
        let falling = body((0..10_000).rev().map(member).collect());
        let rising = body((0..10_000).map(member).collect());
        assert!(canonicalize(falling.as_bytes()) == Ok(rising.into_bytes()));
        let twice = body((0..10_000).chain([7]).map(member).collect());
        let refused = canonicalize(twice.as_bytes());
        assert!(refused == Err(CanonicalError::DuplicateKey));
    }

    #[test]
    fn two_to_the_53rd_is_the_first_integer_out_of_range() {
        for integer in ["9007199254740992", "-9007199254740992"] {
            let refused = canonicalize(integer.as_bytes());
            assert_eq!(refused, Err(CanonicalError::IntegerOutOfRange), "{integer}");
        }
    }

    #[test]
    fn zero_has_no_sign_and_a_slash_no_escape() {
        let text = br#"[-0,-0.0,0e400,1e-400,"\/","\u002f","\"\\"]"#;
        let canonical = br#"[0,0,0,0,"/","/","\"\\"]"#;
        assert_eq!(canonicalize(text).as_deref(), Ok(canonical.as_slice()));
    }
}
