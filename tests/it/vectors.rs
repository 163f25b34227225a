//! The published vectors, case by case, and properties around them.
//!
//! A case that fails does not hide the next one: each test collects what went
//! wrong and reports it all.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use axum_idempotency::{
    IdempotencyKey, KeyError, KeySyntax,
    canonical::{CanonicalError, canonicalize},
    timestamp::{KeyKind, classify, is_plausible},
};
use http::HeaderValue;
use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

#[derive(Deserialize)]
struct HeaderCase {
    id: String,
    raw_hex: Vec<String>,
    strict: HeaderOutcome,
    lenient: HeaderOutcome,
    header_value_constructible: bool,
}

#[derive(Deserialize)]
struct HeaderOutcome {
    expect: String,
    key: Option<String>,
    code: Option<String>,
    reason: Option<String>,
}

impl HeaderOutcome {
    fn in_words(&self) -> String {
        match (self.expect.as_str(), &self.key, &self.code, &self.reason) {
            ("accept", Some(key), None, None) => format!("the key {key:?}"),
            ("reject", None, Some(code), Some(reason)) => format!("{code} because {reason}"),
            _ => "a case that contradicts itself".to_owned(),
        }
    }
}

fn parsed_in_words(parsed: Result<IdempotencyKey, KeyError>) -> String {
    match parsed {
        Ok(key) => format!("the key {:?}", key.as_str()),
        Err(KeyError::Missing) => "idempotency_key_missing because missing".to_owned(),
        Err(error) => format!("idempotency_key_invalid because {}", error.reason()),
    }
}

#[test]
fn every_header_case_is_read_as_the_vectors_say() {
    let cases: Vec<HeaderCase> = load(include_str!("../vectors/key-header.json"), 78);
    let mut failures = Vec::new();
    for case in &cases {
        let lines: Vec<Vec<u8>> = case.raw_hex.iter().map(|hex| from_hex(hex)).collect();
        for (syntax, outcome) in [
            (KeySyntax::Strict, &case.strict),
            (KeySyntax::Lenient, &case.lenient),
        ] {
            let expected = outcome.in_words();
            let got = parsed_in_words(syntax.parse(lines.iter().map(Vec::as_slice)));
            if got != expected {
                let id = &case.id;
                failures.push(format!("{id}, {syntax:?}: expected {expected}, got {got}"));
            }
        }
        let constructible = lines
            .iter()
            .all(|line| HeaderValue::from_bytes(line).is_ok());
        if constructible != case.header_value_constructible {
            failures.push(format!(
                "{}: expected a header value to be constructible: {}, got {constructible}",
                case.id, case.header_value_constructible
            ));
        }
    }
    report(&failures);
}

#[derive(Deserialize)]
struct TimestampCase {
    key: String,
    kind: String,
    unix_ms: Option<i64>,
    plausible: Option<bool>,
}

#[test]
fn every_key_carries_the_time_that_the_vectors_say() {
    let cases: Vec<TimestampCase> = load(include_str!("../vectors/timestamps.json"), 68);
    let mut failures = Vec::new();
    for case in &cases {
        let found = classify(&case.key);
        let plausible = found
            .unix_ms
            .map(|time| is_plausible(time, VECTOR_NOW_MS, Duration::from_mins(5)));
        let expected = format!(
            "{}, time {:?}, plausible {:?}",
            case.kind, case.unix_ms, case.plausible
        );
        let got = format!(
            "{}, time {:?}, plausible {plausible:?}",
            kind_in_words(found.kind),
            found.unix_ms
        );
        if got != expected {
            failures.push(format!(
                "key {:?}: expected {expected}, got {got}",
                case.key
            ));
        }
    }
    report(&failures);
}

fn kind_in_words(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Ulid => "ulid",
        KeyKind::UuidV1 => "uuidv1",
        KeyKind::UuidV3 => "uuidv3",
        KeyKind::UuidV4 => "uuidv4",
        KeyKind::UuidV5 => "uuidv5",
        KeyKind::UuidV6 => "uuidv6",
        KeyKind::UuidV7 => "uuidv7",
        KeyKind::UuidV8 => "uuidv8",
        KeyKind::UuidOther => "uuid_other",
        KeyKind::Nil => "nil",
        KeyKind::Max => "max",
        KeyKind::Opaque => "opaque",
        _ => "a kind without a word",
    }
}

#[derive(Deserialize)]
struct CanonicalCase {
    id: String,
    input_json_text: String,
    expect: String,
    canonical_text: Option<String>,
    sha256_hex: Option<String>,
    reject_reason: Option<String>,
    same_as_group: Option<String>,
}

#[test]
fn every_json_text_has_the_canonical_form_that_the_vectors_say() {
    let cases: Vec<CanonicalCase> = load(include_str!("../vectors/jcs.json"), 43);
    let mut failures = Vec::new();
    let mut groups: BTreeMap<&str, Vec<Result<Vec<u8>, CanonicalError>>> = BTreeMap::new();
    for case in &cases {
        let expected = match (
            case.expect.as_str(),
            &case.canonical_text,
            &case.reject_reason,
        ) {
            ("canonical", Some(text), None) => {
                let hash = case.sha256_hex.as_deref().unwrap_or_default();
                format!("{text} with hash {hash}")
            }
            ("reject", None, Some(reason)) => format!("refusal {reason}"),
            _ => "a case that contradicts itself".to_owned(),
        };
        let canonical = canonicalize(case.input_json_text.as_bytes());
        let got = match &canonical {
            Ok(bytes) => format!(
                "{} with hash {}",
                String::from_utf8_lossy(bytes),
                to_hex(&Sha256::digest(bytes))
            ),
            Err(error) => format!("refusal {}", error.reason()),
        };
        if got != expected {
            failures.push(format!("{}: expected {expected}, got {got}", case.id));
        }
        if let Some(group) = &case.same_as_group {
            groups.entry(group).or_default().push(canonical);
        }
    }
    for (group, forms) in groups {
        if forms.windows(2).any(|pair| pair[0] != pair[1]) {
            failures.push(format!("group {group}: expected one form, got several"));
        }
    }
    report(&failures);
}

proptest! {
    #[test]
    fn a_bare_key_and_its_quoted_form_are_one_key(text in BARE_KEY) {
        let bare = KeySyntax::Lenient.parse([text.as_bytes()]);
        let quoted = KeySyntax::Lenient.parse([format!("\"{text}\"").as_bytes()]);
        prop_assert_eq!(bare.as_ref().map(IdempotencyKey::as_str), Ok(text.as_str()));
        prop_assert_eq!(bare, quoted);
    }

    #[test]
    fn a_quoted_and_escaped_text_is_read_back(text in PRINTABLE_TEXT) {
        prop_assume!(!text.trim().is_empty());
        let line = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        for syntax in [KeySyntax::Strict, KeySyntax::Lenient] {
            let key = syntax.parse([line.as_bytes()]);
            prop_assert_eq!(key.as_ref().map(IdempotencyKey::as_str), Ok(text.as_str()));
            prop_assert_eq!(key, IdempotencyKey::new(&text));
        }
    }

    #[test]
    fn whatever_the_bytes_a_key_is_well_formed_or_refused(
        lines in vec(prop_oneof![vec(any::<u8>(), 0..300), ALMOST_A_KEY.prop_map(Vec::from)], 0..3),
    ) {
        for syntax in [KeySyntax::Strict, KeySyntax::Lenient] {
            let parsed = syntax.parse(lines.iter().map(Vec::as_slice));
            match (lines.len(), parsed) {
                (1, Ok(key)) => {
                    prop_assert_eq!(IdempotencyKey::new(key.as_str()), Ok(key.clone()));
                    // Strict accepts no more than lenient, and the same key.
                    prop_assert_eq!(KeySyntax::Lenient.parse([lines[0].as_slice()]), Ok(key));
                }
                (1, Err(error)) => prop_assert!(!error.to_string().is_empty()),
                (0, parsed) => prop_assert_eq!(parsed, Err(KeyError::Missing)),
                (_, parsed) => prop_assert_eq!(parsed, Err(KeyError::MultipleValues)),
            }
        }
    }

    #[test]
    fn any_text_has_a_kind(text in prop_oneof![any::<String>(), ALMOST_AN_ID.prop_map(String::from)]) {
        let found = classify(&text);
        let has_time = matches!(
            found.kind,
            KeyKind::Ulid | KeyKind::UuidV1 | KeyKind::UuidV6 | KeyKind::UuidV7
        );
        prop_assert_eq!(found.unix_ms.is_some(), has_time);
    }

    #[test]
    fn an_id_tells_the_time_it_was_made_with(time in 0..1_u64 << 48, random in any::<u128>()) {
        let ulid = ulid::Ulid::from_parts(time, random).to_string();
        let upper = u128::from(time) << 80;
        let version_and_variant = (0x7 << 76) | (0x2 << 62);
        let rest = random & 0x0fff_3fff_ffff_ffff_ffff;
        let uuid = uuid::Uuid::from_u128(upper | version_and_variant | rest);
        let expected = i64::try_from(time).ok();
        for (id, kind) in [
            (ulid.to_ascii_lowercase(), KeyKind::Ulid),
            (ulid, KeyKind::Ulid),
            (uuid.to_string(), KeyKind::UuidV7),
            (uuid.braced().to_string(), KeyKind::UuidV7),
            (uuid.urn().to_string().to_ascii_uppercase(), KeyKind::UuidV7),
        ] {
            prop_assert_eq!((classify(&id).kind, classify(&id).unix_ms), (kind, expected), "{}", id);
        }
    }

    #[test]
    fn member_order_and_white_space_do_not_count(
        value in json_value(),
        turns in any::<usize>(),
        space in "[ \t\r\n]{0,3}",
    ) {
        let compact = canonicalize(render(&value, 0, "").as_bytes());
        let spread = canonicalize(render(&value, turns, &space).as_bytes());
        prop_assert_eq!(&compact, &spread);

        let canonical = compact.unwrap();
        prop_assert_eq!(canonicalize(&canonical), Ok(canonical.clone()));
        prop_assert_eq!(serde_json_canonicalizer::to_vec(&value).unwrap(), canonical);
    }

    #[test]
    fn what_is_refused_as_no_json_is_refused_by_serde_json(
        text in prop_oneof![any::<String>(), ALMOST_JSON.prop_map(String::from)],
    ) {
        let parsed = serde_json::from_str::<Value>(&text);
        match canonicalize(text.as_bytes()) {
            Ok(canonical) => {
                prop_assert!(is_settled(&canonical));
                prop_assert!(parsed.is_ok() && serde_json::from_slice::<Value>(&canonical).is_ok());
            }
            // These two are faults of ours; serde_json may see another.
            Err(CanonicalError::DuplicateKey | CanonicalError::IntegerOutOfRange) => {}
            Err(error) => prop_assert!(parsed.is_err(), "refused as {}", error.reason()),
        }
    }

    #[test]
    fn arbitrary_bytes_are_canonicalised_or_refused(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(canonical) = canonicalize(&bytes) {
            prop_assert!(is_settled(&canonical));
        }
    }
}

/// Whether a second pass changes nothing. It may refuse: what came as `1e20`
/// is written as an integer, and one out of range.
fn is_settled(canonical: &[u8]) -> bool {
    match canonicalize(canonical) {
        Ok(again) => again == canonical,
        Err(error) => error == CanonicalError::IntegerOutOfRange,
    }
}

/// Any JSON value whose integers a double can hold.
fn json_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).prop_map(Value::from),
        // Without those that are written as an integer out of range, which a
        // second pass refuses.
        (prop::num::f64::NORMAL | prop::num::f64::ZERO)
            .prop_filter("an integer out of range", |number| {
                number.abs() <= 9e15 || number.abs() >= 1e21
            })
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 64, 6, |inner| {
        let name = prop_oneof![
            any::<String>(),
            "[ab\u{fb01}\u{1d4b3}]{0,2}".prop_map(String::from)
        ];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((name, inner), 0..6).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Writes `value` with each object's members turned round, and `space`
/// wherever white space may stand.
fn render(value: &Value, turns: usize, space: &str) -> String {
    let parts = |parts: Vec<String>| parts.join(&format!("{space},{space}"));
    let text = match value {
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| render(element, turns, space));
            format!("[{}]", parts(elements.collect()))
        }
        Value::Object(members) if !members.is_empty() => {
            let mut members: Vec<String> = members
                .iter()
                .map(|(name, member)| {
                    let name = Value::from(name.as_str());
                    format!("{name}{space}:{}", render(member, turns / 2, space))
                })
                .collect();
            let first = turns % members.len();
            members.rotate_left(first);
            format!("{{{space}{}{space}}}", parts(members))
        }
        other => other.to_string(),
    };
    format!("{space}{text}{space}")
}

fn load<T: DeserializeOwned>(json: &str, at_least: usize) -> Vec<T> {
    let cases: Vec<T> = serde_json::from_str(json).expect("a vector file in its documented form");
    let count = cases.len();
    assert!(
        count >= at_least,
        "expected {at_least} cases or more in the file, got {count}"
    );
    cases
}

fn report(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} of the cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn from_hex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|digits| {
            let digits = str::from_utf8(digits).expect("hexadecimal digits");
            u8::from_str_radix(digits, 16).expect("two hexadecimal digits")
        })
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes text");
        text
    })
}

/// 2026-12-01T00:00:00Z, the moment at which the vectors are judged.
const VECTOR_NOW_MS: i64 = 1_796_083_200_000;

const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Visible ASCII without the double quote, comma, semicolon and backslash.
const BARE_KEY: &str = r"[!#-+\x2d-:<-\x5b\x5d-~]{1,255}";

const PRINTABLE_TEXT: &str = "[ -~]{1,255}";

/// Texts that get further into the parsers than arbitrary ones.
const ALMOST_A_KEY: &str =
    r#"[ \t]{0,2}"?([a"\\ ,;=]|\\"|\\\\){0,12}"?(;[a-c](=[1"a?])?){0,2}[ \t]?"#;
const ALMOST_AN_ID: &str = r"[0-9A-Za-z]{26}|[0-7][0-9A-HJKMNP-TV-Z]{25}|(urn:uuid:|\{)?[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\}?";
const ALMOST_JSON: &str = r#"(([\[{]|"a":|"\\u[d0][89c0]00",?|-?[0-9]{1,2}(\.[0-9])?([eE][+-]?[0-9]{1,3})?,?|null,?|"b",?|[ ,]|[\]}],?){1,12})"#;
