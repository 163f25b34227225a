//! Ids of every kind.

use serde_json::json;

use super::{GITHUB, HOOKS, STANDARD, STRIPE, is_processed, processed, ran};
use crate::services::Site;

on_every_store!(
    an_id_that_cannot_be_used_is_refused_and_nothing_is_recorded,
    an_id_may_be_as_long_as_255_bytes_and_in_a_body_any_text,
);

async fn an_id_that_cannot_be_used_is_refused_and_nothing_is_recorded(site: Site) {
    let service = site.start("webhooks").await;
    let too_long = "e".repeat(256);
    let in_body = [
        json!(7),
        json!(true),
        json!(["evt_1"]),
        json!({"id": "evt_1"}),
        json!(""),
        json!(" "),
        json!("evt_1\n"),
        json!(too_long),
        json!("é".repeat(128)),
    ];
    for id in in_body {
        let refused = STRIPE.post(&service).json(&json!({"id": id})).send().await;
        refused.problem(400, "idempotency_key_invalid");
    }
    let twice = STRIPE.post(&service).body(r#"{"id":"evt_1","id":"evt_2"}"#);
    twice.send().await.problem(400, "idempotency_key_invalid");
    for hook in [GITHUB, STANDARD] {
        let header = hook.id_in.expect("its ids are in a header");
        for id in ["", "a,b", "\"a", "заказ-1", &too_long] {
            let refused = hook.deliver(&service, id).send().await;
            refused.problem(400, "idempotency_key_invalid");
        }
        let twice = hook.deliver(&service, "evt_1").header(header, "evt_1");
        twice.send().await.problem(400, "idempotency_key_invalid");
    }
    for hook in HOOKS {
        for id in ["evt_1", "a", "7"] {
            assert_eq!(hook.ask(&service, id).await.status, 404);
            is_processed(&site, hook, id, 0).await;
        }
        if let Some(count) = processed(&site, hook, None).await {
            assert_eq!(count, 0, "one ran as if it had no id");
        }
    }
}

async fn an_id_may_be_as_long_as_255_bytes_and_in_a_body_any_text(site: Site) {
    let service = site.start("webhooks").await;
    let longest = "e".repeat(255);
    let long = "é".repeat(127) + "e";
    let in_body = [
        &*longest,
        &long,
        "заказ №1",
        "注文-42",
        " a b ",
        "a/b?c=%41",
        "\"quoted\"",
    ];
    let in_header = |hook| [(hook, &*longest), (hook, "a/b?c=%41"), (hook, "a:b")];
    let ids = in_body.map(|id| (STRIPE, id)).into_iter();
    for (hook, id) in ids.chain(in_header(GITHUB)).chain(in_header(STANDARD)) {
        let first = hook.deliver(&service, id).send().await;
        ran(&first);
        hook.deliver(&service, id).send().await.must_replay(&first);
        is_processed(&site, hook, id, 1).await;
        hook.is_told_as(&hook.ask(&service, id).await, id, "completed");
    }
}
