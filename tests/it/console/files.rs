//! What was in flight at a moment, as a page and as a file.

use std::time::Duration;

use axum_idempotency::ScopedKey;

use super::{
    http::{Seen, Site},
    stage::{FORMULA, Stage},
};
use crate::support::{Backend, attempt::key, on_every_backend};

const AT: &str = "/in-flight?at=2026-12-01T02:02&within=10&limit=500";

async fn what_was_in_flight_is_told_with_what_became_of_it(backend: Backend) {
    let stage = Stage::set(backend).await;
    let site = Site::open(stage.console()).await;
    let seen = site.get(AT).await;
    seen.is(200).says("At 2026-12-01 02:02:00 UTC");
    for name in ["lapsed", "taken over", "completed", "not kept"] {
        let key = key(name).to_string();
        assert!(
            seen.words().contains(&key),
            "{name} was in flight: {}",
            seen.words()
        );
    }
    for name in ["running", "speculative", "archived"] {
        let key = key(name).to_string();
        assert!(
            !seen.words().contains(&key),
            "{name} was not: {}",
            seen.words()
        );
    }
    row_of(
        &seen,
        key("completed"),
        "recorded 2026-12-01 02:02:01 201 ch_completed 1 live",
    );
    row_of(
        &seen,
        key("taken over"),
        "unknown: runs, or was cut off – – 2 live",
    );

    // A row leads to the page of its key.
    let link = format!("./keys/{}", key("completed"));
    assert!(seen.links().contains(&link), "{:?}", seen.links());
}

on_every_backend!(what_was_in_flight_is_told_with_what_became_of_it);

#[track_caller]
fn row_of(seen: &Seen, key: ScopedKey, expected: &str) {
    let words = seen.words();
    let (_, row) = words.split_once(&key.to_string()).expect("it has a row");
    assert!(
        row.starts_with(&format!(" 2026-12-01 02:02:00 {expected}")),
        "{row}"
    );
}

#[tokio::test]
async fn archived_rows_are_there_too() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let seen = site.get("/in-flight?at=2026-11-29T03:15:00Z").await;
    seen.is(200)
        .says("recorded, not known when 201 ch_archived – archived")
        .says("unknown: runs, or was cut off – – – archived");
}

#[tokio::test]
async fn the_form_begins_with_now_and_the_longest_request() {
    let stage = Stage::empty(Backend::memory());
    let console = stage.console().within(Duration::from_mins(45));
    let site = Site::open(console).await;
    let seen = site.get("/in-flight").await;
    seen.is(200);
    for field in [
        r#"value="2026-12-01T02:14:00""#,
        r#"value="45""#,
        r#"value="500""#,
    ] {
        assert!(seen.text.contains(field), "{field} in {}", seen.text);
    }
    site.get(AT)
        .await
        .is(200)
        .says("Nothing was in flight then");
}

#[tokio::test]
async fn a_cut_off_answer_says_so() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let seen = site.get("/in-flight?at=2026-12-01T02:02&limit=2").await;
    seen.is(200).says("There are more. Shown are the oldest 2");
    let csv = site.get("/in-flight.csv?at=2026-12-01T02:02&limit=2").await;
    assert_eq!(csv.text.lines().count(), 3, "{}", csv.text);
    assert_eq!(
        csv.header("content-disposition"),
        r#"attachment; filename="in-flight-2026-12-01T020200Z-first-2.csv""#
    );
}

#[tokio::test]
async fn what_is_wrong_in_the_form_is_told_at_its_field() {
    let stage = Stage::empty(Backend::memory());
    let site = Site::open(stage.console()).await;
    let wrong = [
        ("at=", "at", "Not a time in UTC"),
        ("at=yesterday", "at", "Not a time in UTC"),
        (
            "at=2026-12-01T02:14&within=0",
            "within",
            "A whole number from 1 to 10,080.",
        ),
        (
            "at=2026-12-01T02:14&limit=10001",
            "limit",
            "A whole number from 1 to 10,000.",
        ),
        (
            "at=2026-12-01T02:14&limit=-1",
            "limit",
            "A whole number from 1 to 10,000.",
        ),
    ];
    for (query, field, message) in wrong {
        for page in ["/in-flight", "/in-flight.csv"] {
            let seen = site.get(&format!("{page}?{query}")).await;
            seen.is(422).says(message);
            let is_tied = seen.text.contains(&format!(r#"id="{field}-error""#));
            assert!(is_tied, "{query} blames {field}: {}", seen.text);
        }
    }
}

#[tokio::test]
async fn the_file_has_every_row_and_no_formula() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let page = site.get(AT).await;
    let link = page.links().into_iter().find(|link| link.contains(".csv"));
    let link = link.expect("the page leads to the file");
    let file = site.get(link.trim_start_matches('.')).await;
    assert_eq!(
        file.is(200).header("content-type"),
        "text/csv; charset=utf-8; header=present"
    );
    let name = r#"attachment; filename="in-flight-2026-12-01T020200Z.csv""#;
    assert_eq!(file.header("content-disposition"), name);
    assert!(file.text.ends_with("\r\n"), "lines end as RFC 4180 has it");

    let mut rows = csv::Reader::from_reader(file.text.as_bytes());
    let names = rows.headers().expect("names").clone();
    assert_eq!(
        names.iter().collect::<Vec<_>>(),
        [
            "scoped_key",
            "in_flight",
            "source",
            "attempt",
            "created_at",
            "expires_at",
            "outcome",
            "completed_at",
            "status",
            "resource_id"
        ]
    );
    let rows: Vec<_> = rows.records().map(|row| row.expect("a row")).collect();
    // With the one that expired without an outcome since.
    assert_eq!(rows.len(), 8);
    let of = |name: &str| {
        let key = key(name).to_string();
        let row = rows.iter().find(|row| row[0] == key);
        row.expect("it has a row").iter().collect::<Vec<_>>()
    };
    assert_eq!(
        of("completed")[1..],
        [
            "surely",
            "live",
            "1",
            "2026-12-01T02:02:00Z",
            "2026-12-02T02:02:00Z",
            "completed",
            "2026-12-01T02:02:01.25Z",
            "201",
            "ch_completed"
        ]
    );
    assert_eq!(of("lapsed")[6..], ["unknown", "", "", ""]);
    assert_eq!(of("made by a formula")[9], format!("'{FORMULA}"));
}
