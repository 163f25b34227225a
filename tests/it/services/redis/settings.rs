//! Servers that cannot be used are named, and passwords are not.

use super::over;
use crate::{
    services::{Site, settings, ulid},
    support::redis::Server,
};

/// Warnings about the server are not what is asked here.
async fn is_refused(site: Site, names: &[&str]) -> String {
    settings::is_refused(site.set("RUST_LOG", "error"), names).await
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    for scheme in ["redis", "redis+cluster"] {
        let url = format!("{scheme}://shop:s3cret@127.0.0.1:1");
        let text = is_refused(Site::over(url), &["STORE_URL", "127.0.0.1:1"]).await;
        assert!(!text.contains("s3cret"), "tells the password: {text}");
    }
}

#[tokio::test]
async fn a_password_that_is_refused_is_named_and_not_told() {
    let server = Server::with(&["--requirepass", ""]).await;
    let url = format!("redis://shop:s3cret@{}", server.place());
    let text = is_refused(Site::over(url), &["STORE_URL", "password"]).await;
    assert!(!text.contains("s3cret"), "tells the password: {text}");
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_what_may_be_a_password() {
    for url in [
        "redis://:s3cret@:x",
        "redis://:s3cret",
        "redis://:s3?cret@host",
    ] {
        let text = is_refused(Site::over(url.to_owned()), &["STORE_URL"]).await;
        assert!(!text.contains("s3"), "tells the password: {text}");
    }
}

#[tokio::test]
async fn a_scheme_that_is_not_known_is_refused_with_those_that_are() {
    let known = [
        "memory:",
        "sqlite:",
        "postgres://",
        "redis://",
        "redis+cluster://",
    ];
    let store = Site::over("redis+sentinel://127.0.0.1:1".to_owned());
    is_refused(
        store,
        &[&["STORE_URL", "redis+sentinel:"], &known[..]].concat(),
    )
    .await;
    let server = Server::start().await;
    // Redis keeps no archive, also not that of its own store.
    let archive = over(&server).set("ARCHIVE_URL", &server.url());
    let text = is_refused(archive, &[&["ARCHIVE_URL", "none"], &known[..3]].concat()).await;
    assert!(!text.contains("redis+cluster"), "no archive either: {text}");
}

#[tokio::test]
async fn all_keys_cannot_be_looked_up_without_an_archive() {
    let server = Server::start().await;
    for archive in ["none", ""] {
        let site = over(&server).set("ARCHIVE_URL", archive);
        is_refused(site.set("ARCHIVE_LOOKUP", "all"), &["archive"]).await;
    }
    let missing = over(&server).set("ARCHIVE_URL", "sqlite:no/such/directory/a.db");
    is_refused(missing, &["ARCHIVE_URL", "create its directory"]).await;
}

#[tokio::test]
async fn a_server_that_may_evict_is_refused_unless_every_key_is_looked_up() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]).await;
    is_refused(
        over(&server).set("ARCHIVE_LOOKUP", "timestamped"),
        &["evict"],
    )
    .await;
    is_refused(over(&server).set("ARCHIVE_URL", "none"), &["evict"]).await;
    for lookup in ["require", "all"] {
        let site = over(&server).set("ARCHIVE_LOOKUP", lookup);
        site.start("charges").await;
        let service = site.testbed().await;
        let request = service.post("/echo").key(&ulid()).body("charge");
        let first = request.send().await;
        assert_eq!(first.status, 200, "{first}");
        request.send().await.must_replay(&first);
    }
}
