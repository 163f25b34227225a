//! Money under `kill -9`: what the business table holds, whatever the clients
//! were told.

use futures_util::future::join_all;
use serde_json::json;

use super::{over, server::durable};
use crate::services::{
    Service,
    http::{Answer, Request},
    settled, ulid, until,
};

#[tokio::test]
async fn whoever_is_killed_there_is_one_charge_a_reference_and_its_client_learns_of_it() {
    let server = durable().await;
    let site = over(&server)
        .set("ARCHIVE_LOOKUP", "all")
        .set("LEASE", "1s")
        .set("MAX_LEASE", "3s");
    let (mut killed, mut survivor) = tokio::join!(site.start("charges"), site.start("charges"));
    let mut cut_off = 0;
    for _ in 0..ROUNDS {
        let keys: Vec<_> = (0..AT_ONCE).map(|_| ulid()).collect();
        let sent: Vec<_> = keys
            .iter()
            .map(|key| charge(&killed, key))
            .map(|request| tokio::spawn(async move { request.try_send().await.ok() }))
            .collect();
        until("one is made", async || {
            (!made(&survivor, &keys[0]).await.is_empty()).then_some(())
        })
        .await;
        killed.kill().await;
        let answers = join_all(sent).await;
        cut_off += answers
            .iter()
            .filter(|answer| matches!(answer, Ok(None)))
            .count();
        let learnt = keys.iter().zip(answers).map(async |(key, answer)| {
            let answer = answer.expect("no panic");
            learns(&survivor, key, answer.as_ref()).await;
        });
        join_all(learnt).await;
        killed = survivor;
        survivor = site.start("charges").await;
    }
    println!("{cut_off} of {} requests met a kill", ROUNDS * AT_ONCE);
    assert!(cut_off > 0, "the kills met nobody");
}

/// The key is the reference too.
fn charge(service: &Service, key: &str) -> Request {
    let body = json!({"amount": 4500, "currency": "gbp", "client_reference": key});
    service.post("/v1/charges").key(key).json(&body)
}

async fn made(service: &Service, reference: &str) -> Vec<serde_json::Value> {
    let find = format!("/v1/charges?client_reference={reference}");
    let found = service.get(&find).send().await.json();
    found.as_array().expect("charges").clone()
}

/// A client that was answered gets its answer again; another, who is told of
/// another attempt at the reference, or of a response not kept, looks it up.
async fn learns(service: &Service, key: &str, answer: Option<&Answer>) {
    let retried = settled(&charge(service, key)).await;
    let made = made(service, key).await;
    assert_eq!(made.len(), 1, "charges of {key}: {made:?}");
    let id = &made[0]["id"];
    if let Some(answer) = answer {
        retried.must_replay(answer);
    }
    match (retried.status, retried.code().as_deref()) {
        (201, None) => assert_eq!(retried.json()["id"], *id, "{retried}"),
        (409, None) => assert_eq!(retried.json()["code"], "duplicate_reference", "{retried}"),
        (409, Some("idempotency_response_not_kept")) => {
            let told = retried.json();
            let is_it = told["original_status"] == 201 && told["resource_id"] == *id;
            assert!(is_it || told["original_status"] == 409, "{retried}");
        }
        _ => panic!("{key} is told {retried}"),
    }
    charge(service, key).send().await.must_be_like(&retried);
}

impl Answer {
    /// The same again, replay or not.
    #[track_caller]
    fn must_be_like(&self, first: &Self) {
        assert_eq!(self.status, first.status, "{self}\nfirst: {first}");
        assert!(self.body == first.body, "{self}\nfirst: {first}");
    }
}

const ROUNDS: usize = 3;
const AT_ONCE: usize = 40;
