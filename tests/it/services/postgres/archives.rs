//! An archive in another database than the store, and one that is away.

use crate::{
    services::{
        Service, Site,
        http::{Answer, Request},
        late::{is_swept, short, tells_of},
        settled, ulid, until,
    },
    support::postgres::{Cluster, Proxy, Schema},
};

/// A sweep goes from one database into another; then the store is lost.
async fn outlives_the_store(site: Site) {
    let archive = Schema::new();
    let site = short(site, "100ms").set("ARCHIVE_URL", &archive.url());
    let service = site.testbed().await;
    let key = ulid();
    let request = |service: &Service| service.post("/echo?status=201").key(&key).body("charge");
    let first = request(&service).send().await;
    is_swept(&service).await;
    tells_of(&request(&service).send().await, &first, true);
    service.stop().await;
    let service = site.set("STORE_URL", "memory:").testbed().await;
    let late = request(&service).send().await;
    tells_of(&late, &first, true);
    assert_eq!(service.executions(&key).await, 0);
}

#[tokio::test]
async fn beside_a_store_in_sqlite_it_outlives_the_store() {
    outlives_the_store(Site::sqlite()).await;
}

#[tokio::test]
async fn beside_a_store_in_another_schema_it_outlives_the_store() {
    outlives_the_store(Site::postgres()).await;
}

/// A swept key, which only the archive still knows.
async fn swept(service: &Service) -> (Request, Answer) {
    let request = service.post("/echo?status=201").key(&ulid()).body("charge");
    let first = request.send().await;
    is_swept(service).await;
    tells_of(&request.send().await, &first, true);
    (request, first)
}

/// Whatever is asked while nobody can know, nothing runs.
#[track_caller]
fn is_refused(answer: &Answer) {
    answer.problem(503, "idempotency_store_unavailable");
    assert!(answer.header("retry-after").is_some(), "{answer}");
}

#[tokio::test]
async fn while_the_server_is_away_an_expired_key_does_not_run() {
    let mut cluster = Cluster::start().await;
    let site = short(Site::over(cluster.url()), "100ms");
    let service = site.testbed().await;
    let (request, first) = swept(&service).await;
    for _ in 0..2 {
        cluster.kill().await;
        let refused = request.send().await;
        refused.problem(503, "idempotency_store_unavailable");
        cluster.restart().await;
        tells_of(&is_late_again(&request).await, &first, true);
    }
    assert_eq!(service.total().await, 1);
}

/// Repeats it until it can be judged again.
async fn is_late_again(request: &Request) -> Answer {
    let judged = async || {
        let answer = settled(request).await;
        (answer.status != 503).then_some(answer)
    };
    until("the archive is back", judged).await
}

/// The store goes on, and gives claims that the archive has to judge.
async fn while_only_the_archive_is_away(store_down: &str) {
    let archive = Schema::new();
    let mut proxy = Proxy::before(&archive.url());
    let site = short(Site::postgres(), "100ms")
        .set("ARCHIVE_URL", &proxy.url())
        .set("STORE_DOWN", store_down);
    let service = site.testbed().await;
    let (request, first) = swept(&service).await;

    proxy.refuse().await;
    proxy.cut();
    for _ in 0..3 {
        is_refused(&request.send().await);
    }
    proxy.accept();
    tells_of(&is_late_again(&request).await, &first, true);

    proxy.stall();
    is_refused(&request.send().await);
    proxy.resume();
    tells_of(&is_late_again(&request).await, &first, true);
    assert_eq!(service.total().await, 1);
}

#[tokio::test]
async fn while_only_the_archive_is_away_an_expired_key_does_not_run() {
    while_only_the_archive_is_away("closed").await;
}

#[tokio::test]
async fn while_only_the_archive_is_away_an_expired_key_does_not_run_unprotected_either() {
    while_only_the_archive_is_away("open").await;
}
