//! A store or an archive that is down, or does not answer.

use std::time::Duration;

use axum_idempotency::store::Store as _;

use super::{
    http::Site,
    stage::{Stage, page_of},
};
use crate::support::{Backend, Fault, Verb};

#[tokio::test]
async fn a_store_that_is_down_leads_to_pages_that_say_so() {
    let stage = Stage::set(Backend::memory()).await;
    stage.store.always(Verb::Inspect, Fault::DOWN);
    let site = Site::open(stage.console()).await;
    let overview = site.get("").await;
    overview
        .is(503)
        .says("Some of it was not answered.")
        .says("Expired backlog ? No answer")
        .says("Not reachable, or too slow. The log has the cause.");
    // The archive has answered.
    overview.says("Rows 3").says("2026-11");
    site.get(&page_of("running"))
        .await
        .is(503)
        .says("No answer. Not reachable");
    let then = "?at=2026-12-01T02:14";
    site.get(&format!("/in-flight{then}"))
        .await
        .is(503)
        .says("No answer.");
    site.get(&format!("/in-flight.csv{then}"))
        .await
        .is(503)
        .says("No answer.");
    // What asks nothing is there.
    site.get("/keys").await.is(200);
    site.get("/in-flight").await.is(200);
}

#[tokio::test]
async fn an_archive_that_is_down_hides_nothing_of_the_store() {
    let stage = Stage::set(Backend::memory()).await;
    stage.archive.always(Verb::Inspect, Fault::DOWN);
    stage.archive.always(Verb::Lookup, Fault::DOWN);
    let site = Site::open(stage.console()).await;
    site.get("")
        .await
        .is(503)
        .says("Running 3 under a live lease")
        .says("Newest partition ? No answer")
        .says("Archive lookup, p99 ? No answer");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_waited_for_until_the_deadline() {
    let stage = Stage::set(Backend::memory()).await;
    stage.store.always(Verb::Inspect, Fault::Hangs);
    let site = Site::open(stage.console().deadline(Duration::from_millis(20))).await;
    site.get("").await.is(503).says("No answer within 20 ms.");
    let key = site.get(&page_of("running")).await;
    key.is(503)
        .says("No answer within 20 ms.")
        .says("Look up another key");
    let then = site.get("/in-flight?at=2026-12-01T02:14").await;
    then.is(503).says("No answer within 20 ms.");
    assert!(
        then.text.contains(r#"value="2026-12-01T02:14:00""#),
        "the form stays"
    );
}

#[tokio::test]
async fn a_closed_store_leads_to_a_page() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    stage.store.close().await;
    site.get("").await.is(503).says("Checklist");
    site.get(&page_of("running")).await.is(503);
}

#[tokio::test]
async fn a_store_whose_view_panics_leads_to_a_page_and_to_answers_later() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    stage.store.always(Verb::Inspect, Fault::Panics);
    site.get("").await.is(500).says("The count ended early.");
    stage.store.heal(Verb::Inspect);
    site.get("")
        .await
        .is(200)
        .says("Running 3 under a live lease");
}

#[tokio::test]
async fn whoever_hangs_up_leaves_a_count_that_others_use() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let gate = stage.store.hold_before(Verb::Inspect);
    let url = site.url("");
    let impatient = tokio::spawn(async move { reqwest::get(url).await });
    gate.reached().await;
    impatient.abort();
    gate.open();
    site.get("")
        .await
        .is(200)
        .says("Running 3 under a live lease");
    assert_eq!(stage.store.calls(Verb::Inspect), 3, "it was counted once");
}
