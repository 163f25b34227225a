//! A store that cannot be reached: its database is locked by somebody else.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::{ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions};

use tokio::time::sleep;

use super::{Service, Site, eventually, http::Waiting, ulid, until};

/// Holds the database of a site against all who write.
async fn locked(site: &Site) -> SqliteConnection {
    let options: SqliteConnectOptions = site.store_url.parse().expect("a URL");
    let mut connection = options.connect().await.expect("a connection");
    run(&mut connection, "BEGIN IMMEDIATE").await;
    connection
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(connection).await;
    done.expect("the statement runs");
}

#[tokio::test]
async fn closed_nothing_runs_until_the_store_is_back() {
    let site = Site::sqlite();
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo").key(&key).body("charge");
    let mut lock = locked(&site).await;
    let refused = request.send().await;
    let problem = refused.problem(503, "idempotency_store_unavailable");
    assert_eq!(problem["retry"], "same-key-later");
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused}");
    run(&mut lock, "COMMIT").await;
    let first = runs(&service, &key).await;
    assert_eq!(first, 1, "the first attempt never ran");
}

/// The claim that was refused leaves nothing behind that would block the key.
async fn runs(service: &Service, key: &str) -> u64 {
    let request = service.post("/echo").key(key).body("charge");
    let answered = async || {
        let answer = request.send().await;
        (answer.status == 200).then(|| answer.json()["execution"].as_u64().expect("a count"))
    };
    until("the key is free again", answered).await
}

/// Completions and renewals of the same leases wait for the store together.
#[tokio::test]
async fn a_store_that_stalls_takes_no_lease_away() {
    let site = Site::sqlite().set("LEASE", "3s");
    let service = site.testbed().await;
    let mut running = Vec::new();
    for _ in 0..20 {
        let request = service.post("/echo?delay_ms=900").key(&ulid());
        running.push(request.begin().await);
    }
    eventually("all requests run", async || service.total().await == 20).await;
    // Handlers end after 0.9 s, leases are renewed after 1 s.
    let mut lock = locked(&site).await;
    sleep(Duration::from_millis(1_300)).await;
    run(&mut lock, "COMMIT").await;
    for answer in join_all(running.into_iter().map(Waiting::answer)).await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.json()["attempt"], 1, "{answer}");
    }
    let log = std::fs::read_to_string(&service.log).expect("the log");
    assert!(!log.contains("lease lost"), "a false alarm: {log}");
}

#[tokio::test]
async fn open_the_handler_runs_without_protection() {
    let site = Site::sqlite().set("STORE_DOWN", "open").set("LEASE", "1s");
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo").key(&key).body("charge");
    let mut lock = locked(&site).await;
    let waiting = request.begin().await;
    service.has_logged("running without protection").await;
    // The effect is in the same database.
    run(&mut lock, "COMMIT").await;
    let answer = waiting.answer().await.expect("an answer");
    assert_eq!(answer.status, 200, "{answer}");
    assert!(!answer.is_replay(), "{answer}");
    assert_eq!(service.executions(&key).await, 1);
}
