//! Keys in a body: in JSON, by pointer, and in a form, by field.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::{IdempotencyKey, KeyError};

/// Reads the key at a JSON pointer (RFC 6901) in a body. Values beside the way
/// are passed over, so that a large body costs time, and hardly any memory.
///
/// Text that is not JSON is `BadSyntax`; nothing there, or null, is `Missing`;
/// a name on the way which its object holds twice is `MultipleValues`, since
/// the handler's parser might choose the other one.
pub(crate) fn key_at_pointer(body: &[u8], pointer: &str) -> Result<IdempotencyKey, KeyError> {
    // Not `from_slice`, which leaves open whether what it skips is UTF-8.
    let mut value = str::from_utf8(body).map_err(|_| KeyError::BadSyntax)?;
    serde_json::from_str::<IgnoredAny>(value).map_err(|_| KeyError::BadSyntax)?;
    let mut tokens = pointer.split('/');
    if tokens.next() != Some("") {
        return Err(KeyError::Missing);
    }
    for token in tokens {
        // In this order, so that `~01` stands for `~1` (RFC 6901 section 4).
        value = child(value, &token.replace("~1", "/").replace("~0", "~"))?;
    }
    match value.trim_start().as_bytes().first() {
        Some(b'"') => IdempotencyKey::from_id(&read::<String>(value)?.0),
        Some(b'n') => Err(KeyError::Missing),
        _ => Err(KeyError::NotAString),
    }
}

/// Reads the key from a field of a body in `application/x-www-form-urlencoded`.
///
/// Not there, it is `Missing`; there twice, `MultipleValues`. Bytes that are not
/// UTF-8 are `BadCharacter`: decoded, two ids might become one.
pub(crate) fn key_in_form(body: &[u8], field: &str) -> Result<IdempotencyKey, KeyError> {
    let mut values = form_urlencoded::parse(body).filter(|(name, _)| name == field);
    let (_, value) = values.next().ok_or(KeyError::Missing)?;
    if values.next().is_some() {
        return Err(KeyError::MultipleValues);
    }
    if value.contains(char::REPLACEMENT_CHARACTER) {
        return Err(KeyError::BadCharacter);
    }
    IdempotencyKey::from_id(&value)
}

/// The text from the member or element `token` of `container` onwards.
fn child<'t>(container: &'t str, token: &str) -> Result<&'t str, KeyError> {
    let container = container.trim_start();
    let is_object = container.starts_with('{');
    let mut rest = container
        .strip_prefix(['{', '['])
        .ok_or(KeyError::Missing)?;
    // An index has no sign and no leading zero.
    let index = token
        .parse::<usize>()
        .ok()
        .filter(|index| index.to_string() == token);
    let mut found = None;
    for position in 0.. {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
        if rest.starts_with(['}', ']']) {
            break;
        }
        let is_it = if is_object {
            let (name, after) = read::<String>(rest)?;
            let after = after.trim_start().strip_prefix(':');
            rest = after.ok_or(KeyError::BadSyntax)?;
            name == token
        } else {
            index == Some(position)
        };
        if is_it && found.replace(rest).is_some() {
            return Err(KeyError::MultipleValues);
        }
        rest = read::<IgnoredAny>(rest)?.1;
    }
    found.ok_or(KeyError::Missing)
}

/// The value at the start of `text`, and what follows it.
fn read<T: DeserializeOwned>(text: &str) -> Result<(T, &str), KeyError> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    match values.next() {
        Some(Ok(value)) => Ok((value, &text[values.byte_offset()..])),
        _ => Err(KeyError::BadSyntax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_the_key_or_says_why_not() {
        let body = br#" { "id" : "evt_1", "n": 5, "none": null, "blank": " ", "deep": {"a/b":
            [0, {"~": "evt_2"}, "\u0065vt_3"], "": "evt_4", "a/b2": "\ud800", "~1": "evt_5"}, "twice": "a",
            "twice": "a"} "#;
        for (pointer, expected) in [
            ("/id", Ok("evt_1")),
            ("/deep/a~1b/1/~0", Ok("evt_2")),
            ("/deep/a~1b/2", Ok("evt_3")),
            ("/deep/", Ok("evt_4")),
            ("/deep/~01", Ok("evt_5")),
            ("", Err(KeyError::NotAString)),
            ("/n", Err(KeyError::NotAString)),
            ("/deep", Err(KeyError::NotAString)),
            ("/deep/a~1b", Err(KeyError::NotAString)),
            ("/none", Err(KeyError::Missing)),
            ("/none/x", Err(KeyError::Missing)),
            ("/absent", Err(KeyError::Missing)),
            ("/id/0", Err(KeyError::Missing)),
            ("/deep/a~1b/3", Err(KeyError::Missing)),
            ("/deep/a~1b/01", Err(KeyError::Missing)),
            ("/deep/a~1b/-", Err(KeyError::Missing)),
            ("id", Err(KeyError::Missing)),
            ("/blank", Err(KeyError::Blank)),
            ("/deep/a~1b2", Err(KeyError::BadSyntax)),
            ("/twice", Err(KeyError::MultipleValues)),
        ] {
            let found = key_at_pointer(body, pointer);
            let found = found.as_ref().map(IdempotencyKey::as_str);
            assert_eq!(found, expected.as_ref().copied(), "at {pointer:?}");
        }
    }

    #[test]
    fn a_body_that_is_not_json_is_bad_syntax_wherever_its_fault_lies() {
        let deep = "[".repeat(1 << 20);
        for body in [
            b"".as_slice(),
            br#"{"id":"evt_1""#,
            br#"{"id":"evt_1"} {}"#,
            b"{\"id\":\"evt_1\",\"name\":\"\xff\"}",
            deep.as_bytes(),
        ] {
            assert_eq!(key_at_pointer(body, "/id"), Err(KeyError::BadSyntax));
        }
        assert_eq!(
            key_at_pointer(br#""evt_1""#, "")
                .as_ref()
                .map(IdempotencyKey::as_str),
            Ok("evt_1")
        );
    }

    #[test]
    fn a_field_of_a_form_is_the_key_or_says_why_not() {
        let body = b"id=evt+1&sid=%D0%B7%2D1&empty=&blank=+&twice=a&t%77ice=a&bytes=%ff&x";
        for (field, expected) in [
            ("id", Ok("evt 1")),
            ("sid", Ok("з-1")),
            ("empty", Err(KeyError::Empty)),
            ("x", Err(KeyError::Empty)),
            ("blank", Err(KeyError::Blank)),
            ("twice", Err(KeyError::MultipleValues)),
            ("bytes", Err(KeyError::BadCharacter)),
            ("ID", Err(KeyError::Missing)),
        ] {
            let found = key_in_form(body, field);
            let found = found.as_ref().map(IdempotencyKey::as_str);
            assert_eq!(found, expected.as_ref().copied(), "of {field:?}");
        }
    }
}
