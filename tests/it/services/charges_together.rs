//! Charges through two processes that share a database.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{
    Service, Site,
    http::{Answer, Request},
    races::storm,
    ulid,
};

on_every_durable_store!(
    a_charge_sent_to_both_is_made_once,
    of_charges_with_one_reference_through_both_one_is_made,
    refunds_through_both_never_add_up_to_more_than_the_charge,
);

on_redis_beside_postgres!(
    a_charge_sent_to_both_is_made_once,
    of_charges_with_one_reference_through_both_one_is_made,
    refunds_through_both_never_add_up_to_more_than_the_charge,
);

async fn two(site: &Site) -> (Service, Service) {
    tokio::join!(site.start("charges"), site.start("charges"))
}

fn charge(service: &Service, key: &str, reference: &str) -> Request {
    let body = json!({"amount": 4500, "currency": "gbp", "client_reference": reference});
    service.post("/v1/charges").key(key).json(&body)
}

async fn charges_with(service: &Service, reference: &str) -> Vec<Value> {
    let target = format!("/v1/charges?client_reference={reference}");
    let found = service.get(&target).send().await.json();
    found.as_array().expect("a list").clone()
}

async fn a_charge_sent_to_both_is_made_once(site: Site) {
    let site = site.set("IN_FLIGHT", "wait:10s");
    let (one, other) = two(&site).await;
    for number in 0..5 {
        let (key, reference) = (ulid(), format!("o-{number}"));
        let requests = [&one, &other].map(|service| vec![charge(service, &key, &reference); 5]);
        let answers = storm(requests.concat()).await;
        let made = answers.iter().find(|answer| !answer.is_replay());
        let made = made.expect("one that ran");
        assert_eq!(made.status, 201, "{made}");
        for answer in answers.iter().filter(|answer| *answer != made) {
            answer.must_replay(made);
        }
        assert_eq!(charges_with(&one, &reference).await, [made.json()]);
    }
}

/// Each under a key of its own, so that nothing but the unique index is left to
/// tell that they are one charge.
async fn of_charges_with_one_reference_through_both_one_is_made(site: Site) {
    let (one, other) = two(&site).await;
    for number in 0..5 {
        let reference = format!("o-{number}");
        let requests = (0..5).flat_map(|_| [&one, &other]);
        let requests = requests.map(|service| charge(service, &ulid(), &reference));
        let requests: Vec<_> = requests.collect();
        let answers = storm(requests.clone()).await;
        let (made, refused) = made_and_refused(&answers);
        assert_eq!(made.len(), 1, "one charge a reference: {answers:#?}");
        for answer in refused {
            let duplicate = (409, json!("duplicate_reference"));
            assert_eq!((answer.status, answer.json()["code"].clone()), duplicate);
        }
        assert_eq!(charges_with(&other, &reference).await, [made[0].json()]);
        // A refusal is an answer like any other.
        let repeats = join_all(requests.iter().map(Request::send)).await;
        for (repeat, first) in repeats.iter().zip(&answers) {
            repeat.must_replay(first);
        }
    }
}

async fn refunds_through_both_never_add_up_to_more_than_the_charge(site: Site) {
    let (one, other) = two(&site).await;
    let made = charge(&one, &ulid(), "o-1").send().await;
    let refund = |service: &Service, amount: u64| {
        let body = json!({"charge": made.json()["id"], "amount": amount});
        service.post("/v1/refunds").key(&ulid()).json(&body)
    };
    // Ten times 700 is more than 4500.
    let requests = (0..5).flat_map(|_| [&one, &other]);
    let requests: Vec<_> = requests.map(|service| refund(service, 700)).collect();
    let answers = storm(requests.clone()).await;
    let (refunded, refused) = made_and_refused(&answers);
    assert_eq!(refunded.len(), 6, "as many as the charge is good for");
    for answer in refused {
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (404, &json!("not_found"))
        );
    }
    // Whoever repeats a refund is not refunded again.
    let repeats = join_all(requests.iter().map(Request::send)).await;
    for (repeat, first) in repeats.iter().zip(&answers) {
        repeat.must_replay(first);
    }
    assert_eq!(refund(&one, 301).send().await.status, 404, "300 are left");
    assert_eq!(refund(&other, 300).send().await.status, 201, "300 are left");
    assert_eq!(refund(&one, 1).send().await.status, 404, "nothing is left");
}

fn made_and_refused(answers: &[Answer]) -> (Vec<&Answer>, Vec<&Answer>) {
    answers.iter().partition(|answer| answer.status == 201)
}
