//! No page shows a payload, and what a client chose is text.

use std::collections::BTreeSet;

use super::{
    http::Site,
    stage::{BODY, HEADER, SCRIPT, Stage, page_of},
};
use crate::support::{Backend, on_every_backend};

async fn no_page_that_a_link_leads_to_has_a_body_or_a_header(backend: Backend) {
    let stage = Stage::set(backend).await;
    let site = Site::open(stage.console()).await;
    let mut seen = BTreeSet::new();
    let mut ahead = vec![site.url(""), site.url("/in-flight?at=2026-12-01T02:02")];
    while let Some(page) = ahead.pop() {
        if !seen.insert(page.clone()) {
            continue;
        }
        let answer = reqwest::get(&page).await.expect("it answers");
        let from = answer.url().clone();
        let text = answer.text().await.expect("text");
        assert!(!text.contains(BODY), "a body is on {page}");
        assert!(
            !text.contains("x-account") && !text.contains(HEADER),
            "a header is on {page}"
        );
        let links = text
            .split("href=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        let links = links.filter(|link| link.starts_with('.'));
        ahead.extend(links.map(|link| {
            let to = from.join(&link.replace("&amp;", "&")).expect("a link");
            to.to_string()
        }));
    }
    // The three pages, the stylesheet, the file and a page for each row.
    assert!(seen.len() >= 10, "{seen:?}");
}

on_every_backend!(no_page_that_a_link_leads_to_has_a_body_or_a_header);

#[tokio::test]
async fn a_resource_id_is_text_whatever_it_holds() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    for page in [
        page_of("made by a script"),
        "/in-flight?at=2026-12-01T02:02".to_owned(),
    ] {
        let seen = site.get(&page).await;
        assert!(!seen.text.contains(SCRIPT), "{page}");
        assert!(
            seen.text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{page}"
        );
    }
    let typed = site.get("/keys?scoped-key=%22%3E%3Cscript%3E").await;
    typed.is(422);
    assert!(!typed.text.contains("<script"), "{}", typed.text);
}

#[tokio::test]
async fn nothing_prints_the_secret() {
    let stage = Stage::empty(Backend::memory());
    let secret = axum_idempotency::ScopeSecret::new("a-secret-of-the-layer");
    let console = stage.console().secret(secret);
    assert!(!format!("{console:?}").contains("a-secret-of-the-layer"));
}
