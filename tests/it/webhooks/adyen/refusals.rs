//! What is no batch, or has an item without a usable id: nothing of it runs.

use axum_idempotency::Retry;
use serde_json::{Value, json};

use super::{Desk, batch, batch_of, id_of, item};
use crate::support::{Answer, Backend, Verb, on_every_backend};

on_every_backend!(
    a_body_that_is_no_batch_runs_nothing,
    an_item_without_a_usable_id_keeps_the_whole_batch_from_running,
    a_name_that_comes_twice_drops_no_item,
);

#[track_caller]
fn expect_refusal(answer: &Answer, code: &str) {
    let problem = answer.expect_problem(400, code, Retry::Fix);
    drop(problem);
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("8851"), "it tells an id: {text}");
}

async fn a_body_that_is_no_batch_runs_nothing(backend: Backend) {
    let desk = Desk::open(&backend);
    let whole = batch_of(["8851"]).to_string();
    let cut = &whole.as_bytes()[..whole.len() - 1];
    let deep = format!(r#"{{"notificationItems":{}"#, "[".repeat(1 << 16));
    for body in [
        b"".as_slice(),
        b"[accepted]",
        b"null",
        b"[]",
        br#""notificationItems""#,
        br#"{"notificationItems":{"NotificationRequestItem":{}}}"#,
        br#"{"notificationItems":[{"NotificationRequestItem":{}},"#,
        br#"{"notificationItems":["NotificationRequestItem"]}"#,
        b"{\"notificationItems\":[],\"live\":\"\xff\"}",
        cut,
        deep.as_bytes(),
        b"eventCode=AUTHORISATION&pspReference=8851&success=true",
    ] {
        expect_refusal(&desk.deliver(body).await, "idempotency_key_invalid");
    }
    for body in ["{}", r#"{"live":"false"}"#, r#"{"notificationItems":[{}]}"#] {
        expect_refusal(&desk.deliver(body).await, "idempotency_key_missing");
    }
    assert_eq!(desk.store.calls(Verb::Claim), 0, "something was claimed");
    desk.deliver(&whole).await.expect_accepted();
    desk.expect_attempts(&[("8851", &[1])]);
}

async fn an_item_without_a_usable_id_keeps_the_whole_batch_from_running(backend: Backend) {
    let desk = Desk::open(&backend);
    let with = |name: &str, value: Value| {
        let mut third = item("88513");
        third["NotificationRequestItem"][name] = value;
        batch([item("88511"), item("88512"), third])
    };
    let without = |name: &str| {
        let mut batch = with(name, Value::Null);
        let third = &mut batch["notificationItems"][2]["NotificationRequestItem"];
        third.as_object_mut().expect("an object").remove(name);
        batch
    };
    let names = ["eventCode", "pspReference", "success"];
    for missing in names
        .map(without)
        .into_iter()
        .chain(names.map(|name| with(name, Value::Null)))
    {
        let refused = desk.deliver(missing.to_string()).await;
        expect_refusal(&refused, "idempotency_key_missing");
    }
    // The parts together count, not each alone.
    let too_long = ["8".repeat(240), "8".repeat(256), "é".repeat(120)];
    for unusable in names
        .map(|name| with(name, json!(8851)))
        .into_iter()
        .chain([
            with("success", json!(true)),
            with("pspReference", json!("")),
        ])
        .chain([
            with("pspReference", json!(" ")),
            with("pspReference", json!("8851\n")),
        ])
        .chain(too_long.map(|psp| with("pspReference", json!(psp))))
    {
        let refused = desk.deliver(unusable.to_string()).await;
        expect_refusal(&refused, "idempotency_key_invalid");
    }
    assert_eq!(desk.store.calls(Verb::Claim), 0, "something was claimed");
    desk.expect_attempts(&[]);
    desk.deliver(batch_of(["88511", "88512", "88513"]).to_string())
        .await
        .expect_accepted();
    // 255 bytes, with the lengths of the parts.
    let longest = "x".repeat(255 - id_of("AUTHORISATION", "", "true").len() - 2);
    assert_eq!(id_of("AUTHORISATION", &longest, "true").len(), 255);
    for psp in [&*longest, "заказ №1"] {
        for _ in 0..2 {
            desk.deliver(batch_of([psp]).to_string())
                .await
                .expect_accepted();
        }
    }
    desk.expect_attempts(&[
        ("88511", &[1]),
        ("88512", &[1]),
        ("88513", &[1]),
        (&longest, &[1]),
        ("заказ №1", &[1]),
    ]);
}

/// Of two members of one name a parser takes one, and the items of the other
/// would be acknowledged without having been looked at.
async fn a_name_that_comes_twice_drops_no_item(backend: Backend) {
    let desk = Desk::open(&backend);
    let [a, b] = ["88511", "88512"].map(item);
    let [in_a, in_b] = [&a, &b].map(|item| &item["NotificationRequestItem"]);
    for body in [
        format!(r#"{{"notificationItems":[{a}],"notificationItems":[{b}]}}"#),
        format!(
            r#"{{"notificationItems":[{{"NotificationRequestItem":{in_a},"NotificationRequestItem":{in_b}}}]}}"#
        ),
    ] {
        expect_refusal(&desk.deliver(body).await, "idempotency_key_invalid");
    }
    desk.expect_attempts(&[]);
}
