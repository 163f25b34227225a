//! The partitions of the archive.

use axum_idempotency::{Clock as _, ManualClock, SystemClock};
use serde_json::Value;

use super::{Place, records::archive_of_years};

on_every_place!(
    what_is_past_the_retention_is_listed_and_goes_when_it_is_said,
    the_list_tells_rows_and_bounds,
);

async fn filled(place: &Place) {
    let now = SystemClock.now();
    let (store, archive) = place.open(ManualClock::new(now)).await;
    archive_of_years(&*archive, now).await;
    store.close().await;
}

fn names(document: &Value) -> Vec<String> {
    let partitions = document["partitions"].as_array().expect("partitions");
    let names = partitions.iter().map(|one| one["name"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

async fn what_is_past_the_retention_is_listed_and_goes_when_it_is_said(place: Place) {
    filled(&place).await;
    let before = names(&place.json(&["partitions", "list"]).await);
    let retire = ["partitions", "retire", "--older-than", "500d"];
    for dry in [&[][..], &["--dry-run"]] {
        let due = place.json(&[&retire[..], dry].concat()).await;
        assert_eq!(due["dry_run"], true, "{due:#}");
        assert_eq!(due["rows_retired"], 0, "{due:#}");
        assert_eq!(names(&due), before[..1], "{due:#}");
        assert_eq!(names(&place.json(&["partitions", "list"]).await), before);
    }
    place
        .run(&retire)
        .await
        .exits(0)
        .says("repeat it with --yes");
    let retired = place.json(&[&retire[..], &["--yes"]].concat()).await;
    assert_eq!(retired["dry_run"], false, "{retired:#}");
    assert_eq!(names(&retired), before[..1], "{retired:#}");
    assert_eq!(
        names(&place.json(&["partitions", "list"]).await),
        before[1..]
    );
    let ran = place
        .run(&[&retire[..], &["--yes"]].concat())
        .await
        .exits(0);
    ran.says("nothing to retire");
}

async fn the_list_tells_rows_and_bounds(place: Place) {
    filled(&place).await;
    let list = place.json(&["partitions", "list"]).await;
    for one in list["partitions"].as_array().expect("partitions") {
        let time = |name: &str| -> jiff::Timestamp {
            let time = one[name].as_str().expect("a time");
            time.parse().expect("RFC 3339")
        };
        assert!(time("from") < time("until"), "{one:#}");
        assert!(one["rows"].is_u64(), "{one:#}");
    }
    let ran = place.run(&["partitions", "list"]).await.exits(0);
    ran.says("UNTIL");
    let says_so = ran.stdout.contains("has no partitions");
    assert_eq!(says_so, list["is_partitioned"] == false, "{ran:#?}");
}

#[tokio::test]
async fn partitions_are_made_where_they_are_missing() {
    let place = Place::postgres().migrated().await;
    let before = names(&place.json(&["partitions", "list"]).await);
    let newest = before.last().expect("a partition").clone();
    place.run_sql(&format!("DROP TABLE {newest}")).await;
    let made = place.json(&["partitions", "ensure"]).await;
    assert_eq!(made["made"], Value::from(vec![newest]), "{made:#}");
    let more = place.json(&["partitions", "ensure", "--months", "6"]).await;
    let count = more["made"].as_array().map(Vec::len);
    assert!(
        count.is_some_and(|count| (3..=5).contains(&count)),
        "{more:#}"
    );
    let again = place.json(&["partitions", "ensure", "--months", "6"]).await;
    assert_eq!(again["made"], Value::Array(Vec::new()), "{again:#}");
}

#[tokio::test]
async fn sqlite_needs_no_partitions() {
    let place = Place::sqlite().migrated().await;
    let ran = place.run(&["partitions", "ensure"]).await.exits(0);
    ran.says("none are needed");
    let made = place.json(&["partitions", "ensure"]).await;
    assert_eq!(made["needed"], false, "{made:#}");
}

#[tokio::test]
async fn without_an_archive_there_are_none() {
    let place = Place::redis().archive("none");
    for arguments in [
        &["partitions", "list"][..],
        &["partitions", "ensure"],
        &["partitions", "retire", "--older-than", "400d", "--yes"],
    ] {
        place
            .run(arguments)
            .await
            .exits(2)
            .complains_of("there is no archive");
    }
}
