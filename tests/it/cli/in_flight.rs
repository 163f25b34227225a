//! What was in flight at a moment.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{
    Place,
    place::HOUR,
    records::{Filled, scoped},
};

on_every_place!(
    what_was_open_is_told_with_what_is_known_of_its_end,
    what_is_too_much_is_cut_off_and_said,
);

/// The records by key: whether they surely were in flight, and where they are.
async fn at(place: &Place, moment: &str) -> BTreeMap<String, (String, String)> {
    let then = place.json(&["in-flight", "--at", moment]).await;
    assert_eq!(then["is_truncated"], false, "{then:#}");
    let records = then["records"].as_array().expect("records");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let records = records.iter().map(|record| {
        let told = (text(&record["in_flight"]), text(&record["source"]));
        (text(&record["scoped_key"]), told)
    });
    records.collect()
}

fn expected<const N: usize>(
    records: [(&str, &str, &str); N],
) -> BTreeMap<String, (String, String)> {
    let records = records.map(|(key, certainty, source)| {
        let told = (certainty.to_owned(), source.to_owned());
        (scoped(key).to_string(), told)
    });
    records.into()
}

async fn what_was_open_is_told_with_what_is_known_of_its_end(place: Place) {
    let filled = Filled::at(&place).await;
    let after = |span| {
        let claimed = filled.ago(span);
        claimed.checked_add(Duration::from_secs(1)).expect("a time")
    };
    let as_done_ran = after(HOUR).to_string();
    let open = at(&place, &as_done_ran).await;
    let lapsed = ("lapsed", "surely", "live");
    let lost = ("lost", "surely", "live");
    assert_eq!(open, expected([lapsed, ("done", "surely", "live"), lost]));
    assert_eq!(at(&place, "-30m").await, expected([lapsed, lost]));
    place.json(&["sweep"]).await;
    // A day ago it ran, or was lost already; it is archived by now.
    let then = at(&place, "24h ago").await;
    assert_eq!(then, expected([("lost", "surely", "archived")]));
    let as_old_was_new = after(60 * HOUR).to_string();
    let then = at(&place, &as_old_was_new).await;
    assert_eq!(then, expected([("old", "maybe", "archived")]));
    assert_eq!(at(&place, "-70h").await, expected([]));
    let ran = place.run(&["in-flight", "--at", "-70h"]).await.exits(0);
    ran.says("nothing was in flight");
}

async fn what_is_too_much_is_cut_off_and_said(place: Place) {
    Filled::at(&place).await;
    let asked = ["in-flight", "--at", "-30m", "--limit", "1"];
    let then = place.json(&asked).await;
    assert_eq!(then["is_truncated"], true, "{then:#}");
    assert_eq!(then["records"].as_array().map(Vec::len), Some(1));
    place.run(&asked).await.exits(0).says("raise --limit");
    let ran = place.run(&[&asked[..], &["--csv"]].concat()).await.exits(0);
    assert!(ran.stderr.contains("raise --limit"), "{ran:#?}");
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:#?}");
}

#[tokio::test]
async fn comma_separated_values_have_a_header_and_a_line_a_record() {
    let place = Place::sqlite();
    Filled::at(&place).await;
    let ran = place
        .run(&["in-flight", "--at", "-30m", "--csv"])
        .await
        .exits(0);
    let mut lines = ran.stdout.lines();
    let header = lines.next().expect("a header");
    assert!(
        header.starts_with("scoped_key,in_flight,source,attempt,created_at"),
        "{header}"
    );
    for line in lines {
        assert!(line.starts_with("idem:v1:"), "{line}");
        assert_eq!(line.split(',').count(), header.split(',').count(), "{line}");
    }
}

#[tokio::test]
async fn a_time_that_is_still_to_come_is_refused() {
    let place = Place::sqlite().migrated().await;
    let ran = place.run(&["in-flight", "--at", "2099-01-01T00:00Z"]).await;
    let ran = ran.exits(2);
    assert!(ran.stderr.contains("is still to come"), "{ran:#?}");
}

#[tokio::test]
async fn a_time_that_is_none_is_refused_with_an_example() {
    let place = Place::sqlite().migrated().await;
    let ran = place.run(&["in-flight", "--at", "02:14"]).await.exits(2);
    assert!(ran.stderr.contains("2026-12-01T02:14:00Z"), "{ran:#?}");
}
