//! The services on a cluster that nothing happens to.

use futures_util::future::join_all;
use serde_json::json;

use crate::{
    services::{Site, races::storm, settled, ulid},
    support::redis::shared_cluster_url,
};

async fn site() -> Site {
    Site::over(shared_cluster_url().await).set("ARCHIVE_URL", "sqlite:archive.db")
}

#[tokio::test]
async fn a_key_sent_to_two_processes_at_once_runs_once() {
    let site = site().await.set("IN_FLIGHT", "wait:10s");
    let (one, other) = tokio::join!(site.testbed(), site.testbed());
    for _ in 0..10 {
        let key = ulid();
        let requests = [&one, &other].map(|service| {
            let request = service.post("/echo?delay_ms=30").key(&key).body("once");
            vec![request; 5]
        });
        let answers = storm(requests.concat()).await;
        let first = answers.iter().find(|answer| !answer.is_replay());
        let first = first.expect("one that ran");
        assert_eq!(first.status, 200, "{first}");
        for answer in answers.iter().filter(|answer| *answer != first) {
            answer.must_replay(first);
        }
        assert_eq!(other.executions(&key).await, 1);
    }
}

#[tokio::test]
async fn what_a_killed_process_left_is_taken_over_once_its_lease_is_over() {
    let site = site().await.set("LEASE", "2s");
    let (killed, survivor) = tokio::join!(site.testbed(), site.testbed());
    let keys: Vec<_> = (0..12).map(|_| ulid()).collect();
    let slow = "/echo?delay_ms=3000&status=201";
    let mut running = Vec::new();
    for key in &keys {
        running.push(killed.post(slow).key(key).body("charge").begin().await);
    }
    for key in &keys {
        survivor.has_executed(key, 1).await;
    }
    killed.kill().await;
    let retries: Vec<_> = keys
        .iter()
        .map(|key| survivor.post(slow).key(key).body("charge"))
        .collect();
    let taken_over = join_all(retries.iter().map(settled)).await;
    for ((key, retry), answer) in keys.iter().zip(&retries).zip(&taken_over) {
        assert_eq!(answer.status, 201, "{answer}");
        assert_eq!(answer.json()["attempt"], 2, "{answer}");
        assert_eq!(answer.json()["execution"], 2, "{answer}");
        retry.send().await.must_replay(answer);
        assert_eq!(survivor.executions(key).await, 2);
    }
}

#[tokio::test]
async fn a_charge_is_made_once_and_can_be_looked_up() {
    let service = site().await.start("charges").await;
    let body = json!({"amount": 4500, "currency": "gbp", "client_reference": "o-1"});
    let request = service.post("/v1/charges").key(&ulid()).json(&body);
    let made = request.send().await;
    assert_eq!(made.status, 201, "{made}");
    request.send().await.must_replay(&made);
    let found = service.get("/v1/charges?client_reference=o-1").send().await;
    assert_eq!(found.json(), json!([made.json()]));
}
