//! Where the pages are, and what surrounds them.

use std::collections::BTreeSet;

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::IntoResponse as _,
};
use http::{Method, StatusCode, header::AUTHORIZATION};

use super::{
    http::Site,
    stage::{Stage, derive_form, page_of},
};
use crate::support::Backend;

const PAGES: [&str; 6] = [
    "",
    "/overview",
    "/keys",
    "/in-flight",
    "/in-flight?at=2026-12-01T02:02",
    "/console.css",
];

#[tokio::test]
async fn every_answer_has_headers_that_allow_nothing_from_elsewhere() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let mut pages: Vec<_> = PAGES.map(str::to_owned).into();
    pages.extend([
        page_of("completed"),
        "/nowhere".to_owned(),
        "/keys/x".to_owned(),
    ]);
    pages.push("/in-flight.csv?at=2026-12-01T02:02".to_owned());
    for page in pages {
        let seen = site.get(&page).await;
        assert_eq!(
            seen.header("content-security-policy"),
            "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
             base-uri 'none'; frame-ancestors 'none'",
            "{page}"
        );
        assert_eq!(seen.header("cache-control"), "no-store", "{page}");
        assert_eq!(seen.header("x-content-type-options"), "nosniff", "{page}");
        assert_eq!(seen.header("referrer-policy"), "no-referrer", "{page}");
        if page.contains(".csv") {
            continue;
        }
        let text = seen.text.to_lowercase();
        for script in ["<script", "javascript:", " onclick", " onload", " style="] {
            assert!(!text.contains(script), "{script} on {page}");
        }
        let elsewhere = text.replace("http://www.w3.org", "").contains("http");
        assert!(!elsewhere, "{page} names no other place: {text}");
    }
}

#[tokio::test]
async fn every_page_has_a_title_of_its_own() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let pages = [
        "",
        "/keys",
        "/in-flight",
        "/nowhere",
        "/keys/x",
        &page_of("completed"),
    ];
    let mut titles = BTreeSet::new();
    for page in pages {
        let seen = site.get(page).await;
        let title = seen
            .text
            .split("<title>")
            .nth(1)
            .and_then(|rest| rest.split('<').next());
        let title = title.expect("a title").to_owned();
        assert!(title.ends_with(" – Charges"), "{title}");
        assert!(titles.insert(title.clone()), "{title} is of two pages");
    }
}

#[tokio::test]
async fn links_lead_to_pages_wherever_the_console_is_mounted() {
    let stage = Stage::set(Backend::memory()).await;
    let sites = [
        Site::serve(stage.console().router(), "").await,
        Site::open(stage.console()).await,
        Site::serve(
            Router::new().nest("/a", Router::new().nest("/b/c", stage.console().router())),
            "/a/b/c",
        )
        .await,
    ];
    for site in &sites {
        for page in [
            "",
            "/keys",
            "/in-flight?at=2026-12-01T02:02",
            &page_of("completed"),
            "/no/such/page",
        ] {
            let from = reqwest::Url::parse(&site.url(page)).expect("a URL");
            let links = site.get(page).await.links();
            assert!(links.len() >= 5, "{from} has {links:?}");
            for link in links.iter().filter(|link| link.starts_with('.')) {
                let to = from.join(link).expect("a link");
                let answer = reqwest::get(to.clone()).await.expect("it answers");
                assert_eq!(answer.status(), 200, "{link} on {from} leads to {to}");
            }
        }
        let seen = site.post("/keys", &derive_form("alice", "completed")).await;
        let from = reqwest::Url::parse(&site.url("/keys")).expect("a URL");
        let to = from.join(seen.header("location")).expect("a link");
        let answer = reqwest::get(to).await.expect("it answers");
        assert_eq!(answer.status(), 200);
    }
}

#[tokio::test]
async fn what_only_reads_is_all_there_is() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    site.get("/nowhere")
        .await
        .is(404)
        .says("There is no such page.");
    for page in [
        "",
        "/overview",
        "/in-flight",
        "/in-flight.csv",
        "/console.css",
        &page_of("completed"),
    ] {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let seen = site.ask(method.clone(), page, "").await;
            seen.is(405).says("The console only reads.");
        }
        let head = site.ask(Method::HEAD, page, "").await;
        let is_answered = head.status == StatusCode::OK || page == "/in-flight.csv";
        assert!(is_answered, "HEAD {page}: {}", head.status);
        assert!(head.text.is_empty(), "HEAD {page} has no body");
    }
    site.ask(Method::PUT, "/keys", "").await.is(405);
}

#[tokio::test]
async fn a_layer_around_it_guards_every_page() {
    let stage = Stage::set(Backend::memory()).await;
    let guard = from_fn(async |request: Request, next: Next| {
        if request.headers().contains_key(AUTHORIZATION) {
            next.run(request).await
        } else {
            StatusCode::UNAUTHORIZED.into_response()
        }
    });
    let router = Router::new().nest("/ops", stage.console().router().layer(guard));
    let site = Site::serve(router, "/ops").await;
    for page in PAGES.into_iter().chain(["/nowhere", &page_of("completed")]) {
        assert_eq!(site.get(page).await.status, 401, "{page}");
    }
    assert_eq!(site.post("/keys", &derive_form("a", "k")).await.status, 401);
}
