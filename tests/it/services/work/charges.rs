//! Money under `kill -9` at random moments: each reference is charged once, and
//! each key has one answer for ever.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Site, on_both};
use crate::services::{
    Service,
    http::{Answer, Request},
    ulid,
};

on_both!(whoever_is_killed_each_reference_is_charged_once);

async fn whoever_is_killed_each_reference_is_charged_once(site: Site) {
    let site = site.set("LEASE", "1s");
    let mut service = site.start("charges").await;
    let address = Arc::new(Mutex::new(service.address));
    let end = Instant::now() + STORM;
    let clients = (0..CLIENTS).map(|_| tokio::spawn(client(Arc::clone(&address), end)));
    let clients: Vec<_> = clients.collect();
    let mut kills = 0_u64;
    while Instant::now() < end {
        // Anywhere in the way of the requests that are under way then.
        let random = uuid::Uuid::new_v4().as_bytes()[0];
        sleep(Duration::from_millis(150 + 2 * u64::from(random))).await;
        service.kill().await;
        kills += 1;
        service = site.start("charges").await;
        *address.lock().unwrap_or_else(PoisonError::into_inner) = service.address;
    }
    let mut charged = Vec::new();
    let mut cut_off = 0;
    for client in clients {
        let (seen, broken) = client.await.expect("a client met a fault");
        charged.extend(seen);
        cut_off += broken;
    }
    println!(
        "{} charges, {kills} kills, {cut_off} requests cut off",
        charged.len()
    );
    assert!(cut_off > 0, "the kills met nobody");
    for some in charged.chunks(CLIENTS) {
        join_all(some.iter().map(|charged| last_word(&service, charged))).await;
    }
}

/// A key, which is the reference too, and its answer.
struct Charged {
    key: String,
    answer: Answer,
}

/// The answer for ever, and the one charge.
async fn last_word(service: &Service, charged: &Charged) {
    let key = &charged.key;
    let again = charge(service.address, key).send().await;
    again.must_replay(&charged.answer);
    let find = format!("/v1/charges?client_reference={key}");
    let found = service.get(&find).send().await.json();
    assert_eq!(found, json!([charged.answer.json()]), "charges of {key}");
}

/// Charges one after another, each until it is answered.
async fn client(address: Arc<Mutex<SocketAddr>>, end: Instant) -> (Vec<Charged>, usize) {
    let (mut charged, mut broken) = (Vec::new(), 0);
    while Instant::now() < end {
        let key = ulid();
        let answer = loop {
            let address = *address.lock().unwrap_or_else(PoisonError::into_inner);
            match charge(address, &key).try_send().await {
                Ok(answer) if answer.status == 201 => break answer,
                Ok(answer) => {
                    let code = answer.code();
                    let is_early = code.as_deref() == Some("idempotency_request_in_progress");
                    assert!(is_early || answer.status == 503, "{key} is told {answer}");
                }
                Err(_) => broken += 1,
            }
            assert!(Instant::now() < end + PATIENCE, "{key} is not answered");
            sleep(PAUSE).await;
        };
        charged.push(Charged { key, answer });
    }
    (charged, broken)
}

fn charge(to: SocketAddr, key: &str) -> Request {
    let body = json!({"amount": 4500, "currency": "gbp", "client_reference": key});
    Request::new(to, "POST", "/v1/charges").key(key).json(&body)
}

const STORM: Duration = Duration::from_secs(6);
const CLIENTS: usize = 24;
const PATIENCE: Duration = Duration::from_secs(20);
/// Before a client asks again.
const PAUSE: Duration = Duration::from_millis(25);
