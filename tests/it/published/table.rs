use std::{collections::BTreeSet, time::Duration};

use axum_idempotency::{
    ArchiveLookup, InFlight, KeySource, KeySyntax, Policy, PrincipalSource, StoreDown, Ttl,
};
use http::StatusCode;

use super::{Row, codes_of, header, policies, policy, rows_of};

/// The words in quotes that a function of a source gives back.
fn words_in(source: &str, function: &str) -> BTreeSet<String> {
    let from = source.find(function).expect("the function is there");
    let body = &source[from..];
    let body = &body[..body.find("\n    }\n").expect("a function ends")];
    let quoted = body.split("=> \"").skip(1);
    let words = quoted.filter_map(|rest| rest.split('"').next());
    words.map(str::to_owned).collect()
}

#[test]
fn every_rejection_has_a_row() {
    let every = words_in(include_str!("../../../src/rejection.rs"), "pub fn code(");
    assert!(
        every.len() >= 12,
        "the reader of the source found {every:?}"
    );
    let told = codes_of(&policy().build().unwrap());
    assert_eq!(told.len(), every.len(), "a row for each code: {told:?}");
    let told: BTreeSet<_> = told.into_iter().collect();
    assert_eq!(told, every, "the table against the codes there are");
}

#[test]
fn every_reason_to_refuse_a_key_is_told() {
    let every = words_in(include_str!("../../../src/key/mod.rs"), "pub fn reason(");
    assert!(
        every.len() >= 10,
        "the reader of the source found {every:?}"
    );
    let policy = policy()
        .key_syntax(KeySyntax::Strict)
        .archive_lookup(ArchiveLookup::RequireTimestamped);
    let text = policy.build().unwrap().describe();
    // An absent key has a code of its own.
    for reason in every.iter().filter(|reason| *reason != "missing") {
        assert!(text.contains(&format!("`{reason}`")), "{reason}: {text}");
    }
}

#[test]
fn what_a_policy_never_answers_is_left_out() {
    let said = |builder: axum_idempotency::PolicyBuilder| builder.build().unwrap().describe();
    let optional = said(policy().key_optional());
    assert!(!optional.contains("idempotency_key_missing"), "{optional}");
    assert!(optional.contains("idempotency_key_invalid"), "{optional}");
    let webhook = said(Policy::builder(PrincipalSource::constant("stripe")));
    assert!(!webhook.contains("principal_missing"), "{webhook}");
    let default = said(policy());
    assert!(!default.contains("timestamp_missing"), "{default}");
    assert!(default.contains("timestamp_future"), "{default}");
    assert!(!default.contains("not_a_string"), "{default}");
    let all_keys = said(policy().archive_lookup(ArchiveLookup::AllKeys));
    assert!(!all_keys.contains("timestamp_"), "{all_keys}");
    let secret = said(policy().keep_no_bodies());
    assert!(!secret.contains("Idempotent-Replayed"), "{secret}");
}

#[test]
fn a_row_says_what_the_policy_makes_of_its_code() {
    let policy = policy()
        .late_status(StatusCode::GONE)
        .ttl(Ttl::new(Duration::from_hours(48)).unwrap())
        .in_flight(InFlight::Wait(Duration::from_secs(5)))
        .store_down(StoreDown::Open)
        .request_limit(4711)
        .build()
        .unwrap();
    let rows = rows_of(&policy.describe());
    let row = |code: &str| {
        let found = rows.iter().find(|row| row.code == code);
        found.unwrap_or_else(|| panic!("{code} has no row"))
    };
    for (code, status, retry, when) in [
        ("idempotency_key_missing", 400, "fix", "`Idempotency-Key`"),
        ("idempotency_key_expired", 410, "reconcile", "2 days"),
        ("idempotency_body_too_large", 413, "fix", "4711 bytes"),
        ("idempotency_key_reused", 422, "new-key", "another request"),
        (
            "idempotency_request_in_progress",
            409,
            "same-key-later",
            "5 seconds",
        ),
        (
            "idempotency_outcome_unknown",
            409,
            "reconcile",
            "10 minutes",
        ),
        (
            "idempotency_store_unavailable",
            503,
            "same-key-later",
            "only where",
        ),
    ] {
        let Row {
            status: told,
            retry: advice,
            when: text,
            ..
        } = row(code);
        assert_eq!((*told, advice.as_str()), (status, retry), "{code}");
        assert!(text.contains(when), "{code} does not say {when}: {text}");
    }
    let text = policy.describe();
    assert!(text.contains("410 `idempotency_key_expired`"), "{text}");
}

#[test]
fn the_text_tells_the_headers_of_the_answers() {
    let text = policy().build().unwrap().describe();
    let waits = text
        .lines()
        .find(|line| line.contains("`Retry-After`, in seconds"));
    let waits = waits.expect("when to retry is told");
    for code in ["request_in_progress", "store_unavailable", "store_full"] {
        assert!(waits.contains(code), "{code}: {waits}");
    }
    assert!(!waits.contains("key_expired"), "{waits}");
    assert!(text.contains("`Idempotent-Replayed: true`"), "{text}");
    assert!(text.contains("application/problem+json"), "{text}");
}

#[test]
fn no_name_breaks_the_markdown() {
    for policy in policies() {
        let text = policy.describe();
        assert!(rows_of(&text).len() >= 10, "the table breaks off:\n{text}");
        for line in text.lines().filter(|line| !line.is_empty()) {
            let is_one = line.starts_with("- **") || line.starts_with("| ");
            assert!(
                is_one,
                "neither a list item nor a row: {line:?} in:\n{text}"
            );
            assert_eq!(
                line.matches('`').count() % 2,
                0,
                "an open code span: {line}"
            );
        }
    }
    let odd = policy().key_source(header("x|key`")).build().unwrap();
    let text = odd.describe();
    assert!(text.contains("<code>X&#124;key&#96;</code>"), "{text}");
    let pointer = KeySource::BodyPointer("/a|b".to_owned());
    let text = policy().key_source(pointer).build().unwrap().describe();
    assert!(text.contains("<code>&#47;a&#124;b</code>"), "{text}");
}
