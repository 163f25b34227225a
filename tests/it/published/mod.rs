//! A policy as its documentation: that it tells people and programs all that a
//! client may meet, and nothing else.

mod answers;
mod fragment;
mod table;
mod utoipa;

use axum_idempotency::{
    Abandoned, ArchiveLookup, FingerprintOptions, InFlight, KeySource, KeySyntax, Policy,
    PolicyBuilder, PrincipalSource, StoreDown,
};
use http::StatusCode;
use serde_json::Value;

/// One row of the table of codes.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    status: u16,
    code: String,
    retry: String,
    when: String,
}

/// The rows of the table, read as GitHub reads them: a cell ends at a bar that
/// no backslash escapes, also inside a code span.
fn rows_of(description: &str) -> Vec<Row> {
    let table = description.lines().filter(|line| line.starts_with('|'));
    let rows = table.skip(2).map(|line| {
        let cells = line.replace("\\|", "\u{0}");
        let cells: Vec<_> = cells.split('|').map(str::trim).collect();
        let ["", status, code, retry, when, ""] = cells.as_slice() else {
            panic!("a row has four cells: {line}");
        };
        let unquoted = |cell: &str| cell.trim_matches('`').to_owned();
        Row {
            status: status.parse().expect("the first cell is the status"),
            code: unquoted(code),
            retry: unquoted(retry),
            when: (*when).to_owned(),
        }
    });
    rows.collect()
}

fn codes_of(policy: &Policy) -> Vec<String> {
    let rows = rows_of(&policy.describe()).into_iter();
    rows.map(|row| row.code).collect()
}

/// The words of an `enum`, or the like.
fn words(value: &Value) -> Vec<&str> {
    let words = value.as_array().into_iter().flatten();
    words.filter_map(Value::as_str).collect()
}

fn policy() -> PolicyBuilder {
    Policy::builder(PrincipalSource::bearer())
}

fn header(name: &str) -> KeySource {
    KeySource::Header(name.parse().expect("a test's header name is one"))
}

/// As different as policies can be.
fn policies() -> Vec<Policy> {
    let webhook = Policy::builder(PrincipalSource::constant("stripe"))
        .key_source(KeySource::BodyPointer("/id".to_owned()))
        .fingerprint(FingerprintOptions::none())
        .key_optional();
    let builders = [
        policy(),
        policy().key_optional().store_down(StoreDown::Open),
        policy()
            .key_syntax(KeySyntax::Strict)
            .archive_lookup(ArchiveLookup::RequireTimestamped)
            .in_flight(InFlight::Wait(std::time::Duration::from_secs(5))),
        policy()
            .archive_lookup(ArchiveLookup::AllKeys)
            .abandoned(Abandoned::Refuse)
            .late_status(StatusCode::GONE)
            .expires_header("idempotency-expires".parse().unwrap()),
        policy()
            .late_status(StatusCode::UNPROCESSABLE_ENTITY)
            .keep_no_bodies(),
        policy()
            .key_source(header("x|key`"))
            .replay_header("x-re*played!".parse().unwrap())
            .fingerprint(FingerprintOptions::raw().with_headers(["a|b`_c".parse().unwrap()])),
        policy().key_source(KeySource::BodyPointer("/a|b\n`c\\".to_owned())),
        policy().key_source(KeySource::BodyPointer(String::new())),
        webhook,
    ];
    let built = builders.map(|builder| builder.build().expect("the test's policy can work"));
    built.into()
}
