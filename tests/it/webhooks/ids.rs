//! Where the id of an event is, and who may meet it.

use axum_idempotency::{
    ConfigError, IdempotencyKey, KeySource, Policy, PolicyBuilder, PrincipalSource, Retry, Scope,
    webhook::Webhook,
};
use http::Method;
use serde_json::json;

use super::{deliver, stripe};
use crate::support::{Backend, Logs, Opening, Shop, on_every_backend};

on_every_backend!(
    an_id_in_a_body_is_any_text,
    an_id_that_cannot_be_used_runs_nothing,
    two_endpoints_do_not_share_an_event,
    two_shops_do_not_share_a_delivery,
    a_delivery_of_no_shop_is_nobodys,
    the_key_of_a_client_does_not_meet_an_event,
    parts_of_a_composite_id_do_not_run_together,
    the_first_source_that_has_an_id_gives_it,
);

fn keyed_by(backend: &Backend, source: KeySource) -> Opening {
    let constant = PrincipalSource::constant("acme");
    let opening = backend.shop().principal(constant);
    opening.policy(|policy| policy.key_source(source))
}

fn header(name: &str) -> KeySource {
    KeySource::Header(name.parse().expect("a test's header name is one"))
}

fn field(name: &str) -> KeySource {
    KeySource::FormField(name.to_owned())
}

async fn an_id_in_a_body_is_any_text(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let longest = "é".repeat(127) + "e";
    for id in ["заказ №1", "注文-42", "\\u6ce8文-42", " a b ", &longest] {
        let runs = shop.work.runs();
        let first = deliver(&shop, id).send().await;
        let is_escaped_form_of_another = id.starts_with('\\');
        if !is_escaped_form_of_another {
            first.expect_run(runs + 1);
        }
        let duplicate = deliver(&shop, id).send().await;
        assert!(duplicate.is_marked_as_replay(), "{id} ran twice");
    }
    assert_eq!(shop.work.runs(), 4, "two spellings of one id ran");
}

async fn an_id_that_cannot_be_used_runs_nothing(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let too_long = format!(r#"{{"id":"{}"}}"#, "é".repeat(128));
    for (body, reason) in [
        ("no json", "bad_syntax"),
        ("", "bad_syntax"),
        (r#"{"id":"evt_1""#, "bad_syntax"),
        (r#"{"id":7}"#, "not_a_string"),
        (r#"{"id":{"id":"evt_1"}}"#, "not_a_string"),
        (r#"{"id":["evt_1"]}"#, "not_a_string"),
        (r#"{"id":true}"#, "not_a_string"),
        (r#"{"id":""}"#, "empty"),
        (r#"{"id":"\u3000 "}"#, "blank"),
        (r#"{"id":"a\nb"}"#, "bad_character"),
        (r#"{"id":"a","id":"b"}"#, "multiple_values"),
        (too_long.as_str(), "too_long"),
    ] {
        let refused = shop.post("/hooks").body(body.to_owned()).send().await;
        refused
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": reason, "max_length": 255}));
    }
    let form = keyed_by(&backend, field("id")).open().await;
    for (body, reason) in [
        ("id=", "empty"),
        ("id=%20", "blank"),
        ("id=a%0A", "bad_character"),
        ("id=%FF", "bad_character"),
        ("id=a&id=a", "multiple_values"),
    ] {
        let refused = form.post("/hooks").body(body).send().await;
        refused
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": reason, "max_length": 255}));
    }
    let runs = shop.work.runs() + form.work.runs();
    assert_eq!(runs, 0, "an event without a usable id ran");
}

async fn two_endpoints_do_not_share_an_event(backend: Backend) {
    let shop = stripe(&backend).open().await;
    let event = r#"{"id":"evt_1"}"#;
    let at = |path| shop.post(path).body(event).send();
    at("/hooks/ledger").await.expect_run(1);
    at("/hooks/mail").await.expect_run(2);
    for path in ["/hooks/ledger", "/hooks/mail"] {
        assert!(at(path).await.is_marked_as_replay(), "{path} ran twice");
    }
}

const DELIVERY: &str = "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043";

fn shopify(shop: &Shop, domain: &str) -> crate::support::Ask {
    shop.post("/hooks")
        .header("x-shopify-webhook-id", DELIVERY)
        .header("x-shopify-shop-domain", domain)
}

async fn two_shops_do_not_share_a_delivery(backend: Backend) {
    let shop = backend.shop().policy(|_| Webhook::shopify().policy());
    let shop = shop.open().await;
    let one = shopify(&shop, "one.myshopify.com").send().await;
    one.expect_run(1);
    let other = shopify(&shop, "other.myshopify.com").send().await;
    other.expect_run(2);
    let again = shopify(&shop, "one.myshopify.com").send().await;
    again.expect_replay_of(&one);
    let id = IdempotencyKey::from_id(DELIVERY).expect("an id");
    for (domain, is_known) in [
        ("other.myshopify.com", true),
        ("third.myshopify.com", false),
    ] {
        let of_shop = Webhook::shopify().principal_of(domain);
        let endpoint = (&Method::POST, "/hooks");
        let key = shop.layer.scoped_key(&of_shop, endpoint, &id);
        let found = shop
            .layer
            .find(key)
            .await
            .expect("store and archive answer");
        assert_eq!(found.is_some(), is_known, "for {domain}");
    }
}

async fn a_delivery_of_no_shop_is_nobodys(backend: Backend) {
    let shop = backend.shop().policy(|_| Webhook::shopify().policy());
    let shop = shop.open().await;
    let nobody = shop.post("/hooks").header("x-shopify-webhook-id", "1");
    let two = shopify(&shop, "one.myshopify.com").header("x-shopify-shop-domain", "other");
    for ask in [nobody, two, shopify(&shop, "")] {
        let refused = ask.send().await;
        refused.expect_problem(401, "idempotency_principal_missing", Retry::Fix);
    }
    assert_eq!(shop.work.runs(), 0);
}

/// The same key, on the same path, of a client who is called like the provider.
async fn the_key_of_a_client_does_not_meet_an_event(backend: Backend) {
    let shop = stripe(&backend)
        .routes(|work, layer| {
            let clients = PrincipalSource::header("x-account".parse().expect("a name"));
            let clients = Policy::builder(clients).scope(Scope::PrincipalAndEndpoint);
            let clients = clients.build().expect("a policy");
            let clients = layer.with_policy(clients).expect("a layer");
            let events = work.router().layer(layer.clone());
            let clients = work.router().layer(clients);
            axum::Router::new().fallback(move |request: axum::extract::Request| {
                let is_of_a_client = request.headers().contains_key("x-account");
                let router = if is_of_a_client {
                    clients.clone()
                } else {
                    events.clone()
                };
                tower::ServiceExt::oneshot(router, request)
            })
        })
        .open()
        .await;
    let client = || {
        deliver(&shop, "evt_1")
            .key("evt_1")
            .header("x-account", "stripe")
    };
    let charge = client().send().await;
    charge.expect_run(1);
    let event = deliver(&shop, "evt_1").send().await;
    event.expect_run(2);
    client().send().await.expect_replay_of(&charge);
    deliver(&shop, "evt_1")
        .send()
        .await
        .expect_replay_of(&event);
}

async fn parts_of_a_composite_id_do_not_run_together(backend: Backend) {
    let both = KeySource::AllOf(vec![field("sid"), field("status")]);
    let shop = keyed_by(&backend, both).open().await;
    let send = |body: String| shop.post("/hooks").body(body).send();
    for (run, body) in [
        (1, "sid=1&status=23"),
        (2, "sid=12&status=3"),
        (3, "sid=1,1:2&status=3"),
        (4, "sid=1&status=1:2,3"),
    ] {
        send(body.to_owned()).await.expect_run(run);
    }
    let reordered = send("status=23&sid=1".to_owned()).await;
    assert_eq!(
        reordered.status, 422,
        "an id is its parts, wherever they are"
    );
    for incomplete in ["sid=1", "status=23", "other=1"] {
        let refused = send(incomplete.to_owned()).await;
        refused
            .expect_problem(400, "idempotency_key_missing", Retry::Fix)
            .with(&json!({"header": "the form field sid together with the form field status"}));
    }
    // `123:` and `,123:` beside them.
    let filling = |status: usize| format!("sid={}&status={}", "x".repeat(123), "y".repeat(status));
    send(filling(123)).await.expect_run(5);
    let refused = send(filling(124)).await;
    refused
        .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
        .with(&json!({"reason": "too_long", "max_length": 255}));
    assert_eq!(shop.work.runs(), 5);
}

async fn the_first_source_that_has_an_id_gives_it(backend: Backend) {
    let either = KeySource::FirstOf(vec![
        header("x-one"),
        KeySource::AllOf(vec![field("sid"), field("status")]),
        field("sid"),
    ]);
    let shop = keyed_by(&backend, either).open().await;
    let ask = |body: &'static str| shop.post("/hooks").body(body);
    let by_header = ask("sid=1").header("x-one", "a").send().await;
    by_header.expect_run(1);
    ask("sid=1").send().await.expect_run(2);
    ask("sid=1&status=x").send().await.expect_run(3);
    let again = ask("sid=1").header("x-one", "a").send().await;
    again.expect_replay_of(&by_header);
    for (unusable, reason) in [("a,b", "bad_character"), (r#""a"#, "bad_syntax")] {
        let refused = ask("sid=9").header("x-one", unusable).send().await;
        refused
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": reason, "max_length": 255}));
    }
    let refused = ask("status=x").send().await;
    refused.expect_problem(400, "idempotency_key_missing", Retry::Fix);
    assert_eq!(shop.work.runs(), 3);
}

#[tokio::test]
async fn a_delivery_without_an_id_runs_and_is_logged() {
    let backend = Backend::memory();
    for webhook in [Webhook::stripe(), Webhook::github(), Webhook::twilio()] {
        let logs = Logs::capture();
        let shop = backend.shop().policy(|_| webhook.policy()).in_memory();
        for run in [1, 2] {
            let answer = shop.post("/hooks").body("{}").send().await;
            answer.expect_run(run);
            assert_eq!(answer.json()["attempt"], json!(null), "it is not protected");
        }
        let warnings = logs.text().matches("WARN").count();
        assert_eq!(warnings, 2, "of {webhook:?}: {}", logs.text());
    }
}

#[tokio::test]
async fn a_delivery_without_an_id_is_refused_where_that_is_asked_for() {
    let backend = Backend::memory();
    for webhook in [Webhook::stripe(), Webhook::github(), Webhook::twilio()] {
        let webhook = webhook.refuse_missing_id();
        let shop = backend.shop().policy(|_| webhook.policy()).in_memory();
        let refused = shop.post("/hooks").body("{}").send().await;
        refused.expect_problem(400, "idempotency_key_missing", Retry::Fix);
        assert_eq!(shop.work.runs(), 0);
    }
}

#[tokio::test]
async fn an_optional_key_that_nobody_misses_is_not_logged() {
    let backend = Backend::memory();
    let logs = Logs::capture();
    for source in [header("x-one"), KeySource::BodyPointer("/id".to_owned())] {
        let shop = keyed_by(&backend, source).policy(PolicyBuilder::key_optional);
        let shop = shop.in_memory();
        shop.post("/hooks").body("{}").send().await.expect_run(1);
    }
    assert!(!logs.text().contains("unprotected"), "{}", logs.text());
}

#[test]
fn a_source_that_cannot_work_is_not_built() {
    let bad = || KeySource::BodyPointer("id".to_owned());
    let of = |source: KeySource| {
        let policy = Policy::builder(PrincipalSource::constant("acme")).key_source(source);
        policy.build().err()
    };
    let bad_pointer = Some(ConfigError::BadPointer("id".to_owned()));
    for (source, error) in [
        (KeySource::FirstOf(vec![]), Some(ConfigError::NoKeySource)),
        (KeySource::AllOf(vec![]), Some(ConfigError::NoKeySource)),
        (
            KeySource::FirstOf(vec![header("x"), KeySource::AllOf(vec![])]),
            Some(ConfigError::NoKeySource),
        ),
        (
            KeySource::FirstOf(vec![header("x"), bad()]),
            bad_pointer.clone(),
        ),
        (
            KeySource::FirstOf(vec![KeySource::AllOf(vec![field("a"), bad()])]),
            bad_pointer,
        ),
        (KeySource::AllOf(vec![field("a"), header("x")]), None),
    ] {
        assert_eq!(of(source.clone()), error, "{source:?}");
    }
}
