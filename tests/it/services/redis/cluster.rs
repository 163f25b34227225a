//! The services on a cluster.

use serde_json::json;

use super::Server;
use crate::services::{Site, races::storm, ulid};

async fn site() -> (Server, Site) {
    let server = Server::cluster().await;
    let url = format!("redis+cluster://{}", server.place());
    let site = Site::over(url).set("ARCHIVE_URL", "sqlite:archive.db");
    (server, site)
}

#[tokio::test]
async fn a_key_sent_to_two_processes_at_once_runs_once() {
    let (_server, site) = site().await;
    let site = site.set("IN_FLIGHT", "wait:10s");
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
async fn a_charge_is_made_once_and_can_be_looked_up() {
    let (_server, site) = site().await;
    let service = site.start("charges").await;
    let body = json!({"amount": 4500, "currency": "gbp", "client_reference": "o-1"});
    let request = service.post("/v1/charges").key(&ulid()).json(&body);
    let made = request.send().await;
    assert_eq!(made.status, 201, "{made}");
    request.send().await.must_replay(&made);
    let found = service.get("/v1/charges?client_reference=o-1").send().await;
    assert_eq!(found.json(), json!([made.json()]));
}
