//! Moving what has expired.

use std::process::Stdio;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use super::{Place, records::Filled};

on_every_place!(
    a_sweep_archives_what_has_expired,
    a_watch_goes_on_until_it_is_told_to_stop,
);

async fn a_sweep_archives_what_has_expired(place: Place) {
    Filled::at(&place).await;
    let swept = place.json(&["sweep", "--batch", "1"]).await;
    assert_eq!(swept["archived"], 1, "{swept:#}");
    assert_eq!(swept["deleted"], 0, "{swept:#}");
    let stats = place.json(&["stats"]).await;
    assert_eq!(stats["store"]["expired"], 0, "{stats:#}");
    assert_eq!(stats["archive"]["rows"], 2, "{stats:#}");
    place
        .run(&["sweep"])
        .await
        .exits(0)
        .says("swept: archived 0 records");
}

async fn a_watch_goes_on_until_it_is_told_to_stop(place: Place) {
    Filled::at(&place).await;
    let mut command = place.command(&["sweep", "--watch", "--every", "20ms", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut archived = Vec::new();
    for _ in 0..3 {
        let line = lines.next_line().await.expect("output").expect("a line");
        let line: Value = serde_json::from_str(&line).expect("a JSON object a line");
        let at = line["at"].as_str().expect("a time");
        at.parse::<jiff::Timestamp>().expect("RFC 3339");
        archived.push(line["archived"].as_u64());
    }
    assert_eq!(archived, [Some(1), Some(0), Some(0)]);
    let pid = child.id().expect("it runs").to_string();
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -TERM {pid}")])
        .status();
    assert!(sent.await.expect("a shell").success());
    let status = child.wait().await.expect("it ends");
    assert_eq!(status.code(), Some(0), "a clean end");
}

#[tokio::test]
async fn rows_past_the_retention_are_deleted() {
    let place = Place::sqlite();
    Filled::at(&place).await;
    let swept = place.json(&["sweep", "--retention", "12h"]).await;
    assert_eq!(
        swept["pruned"], 1,
        "the row that expired 36 h ago: {swept:#}"
    );
    let stats = place.json(&["stats"]).await;
    assert_eq!(stats["archive"]["rows"], 1, "{stats:#}");
}

/// Evidence is not deleted for want of a variable.
#[tokio::test]
async fn without_an_archive_nothing_is_deleted_unless_that_is_said() {
    let place = Place::redis();
    Filled::at(&place).await;
    let forgotten = place.without_archive_url();
    let ran = forgotten.run(&["sweep"]).await.exits(2);
    ran.complains_of("ARCHIVE_URL");
    let stats = forgotten.json(&["stats"]).await;
    assert_eq!(stats["store"]["expired"], 1, "{stats:#}");
    let place = forgotten.archive("none");
    let swept = place.json(&["sweep"]).await;
    assert_eq!(swept["deleted"], 1, "{swept:#}");
    assert_eq!(swept["archived"], 0, "{swept:#}");
}
