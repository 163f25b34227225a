//! The service to copy: charges, refunds, payouts.

use serde_json::{Value, json};

use super::{Service, Site, http::Request, ulid};

on_every_store!(
    a_charge_is_made_once_and_can_be_looked_up,
    a_client_reference_outlives_every_key,
    a_refund_may_use_the_key_of_its_charge,
    a_payout_needs_a_key_that_tells_its_age,
    another_tenants_charge_does_not_exist,
    what_is_no_charge_runs_nothing,
);

fn charge(service: &Service, key: &str, body: &Value) -> Request {
    service.post("/v1/charges").key(key).json(body)
}

fn order(number: u32) -> Value {
    json!({"amount": 4500, "currency": "gbp", "client_reference": format!("o-{number}")})
}

async fn charges_of(service: &Service, tenant: &str) -> usize {
    let found = service.get("/v1/charges").tenant(tenant).send().await;
    found.json().as_array().expect("a list").len()
}

async fn a_charge_is_made_once_and_can_be_looked_up(site: Site) {
    let mut service = site.start("charges").await;
    let key = ulid();
    let first = charge(&service, &key, &order(1)).send().await;
    assert_eq!(first.status, 201, "{first}");
    let made = first.json();
    let id = made["id"].as_str().expect("an id");
    assert!(id.starts_with("ch_"), "{first}");
    let told = ["amount", "currency", "client_reference"].map(|name| &made[name]);
    assert_eq!(told, [&json!(4500), &json!("gbp"), &json!("o-1")]);
    assert!(super::is_time(&made["created_at"]), "{first}");

    if site.is_durable() {
        service.stop().await;
        service = site.start("charges").await;
    }
    charge(&service, &key, &order(1))
        .send()
        .await
        .must_replay(&first);
    let other = charge(&service, &key, &order(2)).send().await;
    other.problem(422, "idempotency_key_reused");

    let location = first.header("location").expect("where it is");
    assert_eq!(location, format!("/v1/charges/{id}"));
    assert_eq!(service.get(location).send().await.json(), made);
    let by_reference = service.get("/v1/charges?client_reference=o-1").send().await;
    assert_eq!(by_reference.json(), json!([made]));
    let unknown = service.get("/v1/charges?client_reference=o-2").send().await;
    assert_eq!(unknown.json(), json!([]));
    assert_eq!(charges_of(&service, "acct_1").await, 1);
}

async fn a_client_reference_outlives_every_key(site: Site) {
    let service = site.start("charges").await;
    charge(&service, &ulid(), &order(1)).send().await;
    let key = ulid();
    let again = charge(&service, &key, &order(1)).send().await;
    assert_eq!(
        (again.status, &again.json()["code"]),
        (409, &json!("duplicate_reference"))
    );
    charge(&service, &key, &order(1))
        .send()
        .await
        .must_replay(&again);
    let another_tenant = charge(&service, &ulid(), &order(1))
        .tenant("acct_2")
        .send()
        .await;
    assert_eq!(another_tenant.status, 201, "{another_tenant}");
    let without = json!({"amount": 1, "currency": "gbp"});
    for _ in 0..2 {
        let made = charge(&service, &ulid(), &without).send().await;
        assert_eq!(made.status, 201, "a reference is optional: {made}");
    }
    assert_eq!(charges_of(&service, "acct_1").await, 3);
}

async fn a_refund_may_use_the_key_of_its_charge(site: Site) {
    let service = site.start("charges").await;
    let key = ulid();
    let made = charge(&service, &key, &order(1)).send().await;
    let body = json!({"charge": made.json()["id"], "amount": 100});
    let refund = service.post("/v1/refunds").key(&key).json(&body);
    let refunded = refund.send().await;
    assert_eq!(refunded.status, 201, "{refunded}");
    assert_eq!(refunded.json()["charge"], made.json()["id"]);
    refund.send().await.must_replay(&refunded);
    charge(&service, &key, &order(1))
        .send()
        .await
        .must_replay(&made);
    // The key of a charge is not free for a second charge.
    let payout = json!({"amount": 1, "currency": "gbp"});
    let payout = service
        .post("/v1/payouts")
        .key(&key)
        .json(&payout)
        .send()
        .await;
    payout.problem(422, "idempotency_key_reused");
}

async fn a_payout_needs_a_key_that_tells_its_age(site: Site) {
    let service = site.start("charges").await;
    let payout = |key: &str| {
        let body = json!({"amount": 900, "currency": "gbp"});
        service.post("/v1/payouts").key(key).json(&body)
    };
    let opaque = payout("payout-1").send().await;
    let problem = opaque.problem(400, "idempotency_key_invalid");
    assert_eq!(problem["reason"], "timestamp_missing");
    let key = ulid();
    let paid = payout(&key).send().await;
    assert_eq!(paid.status, 201, "{paid}");
    payout(&key).send().await.must_replay(&paid);
    let opaque = charge(&service, "charge-1", &order(1)).send().await;
    assert_eq!(opaque.status, 201, "charges take any key: {opaque}");
}

async fn another_tenants_charge_does_not_exist(site: Site) {
    let service = site.start("charges").await;
    let made = charge(&service, &ulid(), &order(1)).send().await;
    let location = made.header("location").expect("where it is");
    assert_eq!(service.get(location).send().await.status, 200);
    assert_eq!(
        service.get(location).tenant("acct_2").send().await.status,
        404
    );
    assert_eq!(service.get(location).anonymous().send().await.status, 401);
    let refund = json!({"charge": made.json()["id"], "amount": 100});
    let refund = service
        .post("/v1/refunds")
        .key(&ulid())
        .json(&refund)
        .tenant("acct_2");
    let refused = refund.send().await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (404, &json!("not_found"))
    );
    let by_reference = service
        .get("/v1/charges?client_reference=o-1")
        .tenant("acct_2");
    assert_eq!(by_reference.send().await.json(), json!([]));
    assert_eq!(charges_of(&service, "acct_2").await, 0);
}

async fn what_is_no_charge_runs_nothing(site: Site) {
    let service = site.start("charges").await;
    let bodies = [
        "{\"amount\":4500,\"currency\":",
        "{\"amount\":\"much\",\"currency\":\"gbp\"}",
        "{\"currency\":\"gbp\"}",
        "{\"amount\":0,\"currency\":\"gbp\"}",
        "{\"amount\":-1,\"currency\":\"gbp\"}",
        "{\"amount\":1,\"currency\":\"pounds\"}",
        "",
        "null",
    ];
    for body in bodies {
        for content_type in ["application/json", "text/plain"] {
            let request = service.post("/v1/charges").key(&ulid());
            let request = request.header("Content-Type", content_type).body(body);
            let refused = request.send().await;
            assert!(
                (400..500).contains(&refused.status),
                "{body:?} as {content_type}: {refused}"
            );
            request.send().await.must_replay(&refused);
        }
    }
    let keyless = service.post("/v1/charges").json(&order(1)).send().await;
    keyless.problem(400, "idempotency_key_missing");
    let anonymous = charge(&service, &ulid(), &order(1))
        .anonymous()
        .send()
        .await;
    anonymous.problem(401, "idempotency_principal_missing");
    assert_eq!(charges_of(&service, "acct_1").await, 0);
}
