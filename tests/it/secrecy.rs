//! Keys, principals and bodies appear in no log and in no `Debug` output.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{
    FingerprintInput, FingerprintOptions, Idempotency, IdempotencyKey, Policy, Principal,
    PrincipalSource, Scope, ScopeSecret, ScopedKey, StoreDown,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use tower::Layer as _;

use crate::support::{Backend, Fault, Logs, Verb, Work, on_every_backend, scoped};

on_every_backend!(
    no_log_holds_a_key_a_principal_or_a_body,
    no_debug_output_holds_a_key_a_principal_or_a_body,
    the_store_holds_nothing_of_the_request,
);

/// What must not be seen, and parts of it that would be enough.
const SECRETS: [&str; 6] = [
    "sk_live_alice",
    "order-4711",
    "4242424242424242",
    "receipt-for-alice",
    "hmac-secret",
    "aGlkZGVu",
];

#[track_caller]
fn holds_no_secret(where_: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is in {where_}: {text}");
    }
}

async fn no_log_holds_a_key_a_principal_or_a_body(backend: Backend) {
    let logs = Logs::capture();
    let work = Work::answering(|seen| async move {
        assert!(
            !seen.parts.headers.contains_key("panic"),
            "as the test asked"
        );
        ([("x-secret", "aGlkZGVu")], "receipt-for-alice").into_response()
    });
    let stuck = backend.shop().work(work.clone()).open().await;
    stuck.loses_its_leases();
    let shop = backend.shop().work(work).open().await;
    let open = backend
        .shop()
        .policy(|policy| policy.store_down(StoreDown::Open))
        .open()
        .await;
    let ask = |shop: &crate::support::Shop, path: &str| {
        let ask = shop.post(path).from("sk_live_alice").key("order-4711");
        ask.body(r#"{"card":"4242424242424242"}"#)
    };
    // Run, replayed, reused, invalid, of nobody, too slow.
    ask(&shop, "/charges").send().await;
    ask(&shop, "/charges").send().await;
    ask(&shop, "/refunds").send().await;
    ask(&shop, "/charges").key("order-4711").send().await;
    ask(&shop, "/charges").anonymous().send().await;
    // Every call that can fail, fails.
    for verb in [Verb::Claim, Verb::Complete, Verb::Release] {
        shop.store.next(verb, Fault::DOWN);
    }
    let other = || {
        shop.post("/charges")
            .from("sk_live_alice")
            .body("4242424242424242")
    };
    other().key("order-4711-a").send().await;
    other().key("order-4711-b").send().await;
    let old = backend.ulid_made_before(Duration::from_hours(48));
    shop.archive.next(Verb::Lookup, Fault::DOWN);
    shop.store.next(Verb::Release, Fault::DOWN);
    other().key(&old).send().await;
    open.store.next(Verb::Claim, Fault::DOWN);
    ask(&open, "/charges").send().await;
    // A panic, a takeover, a fenced attempt, a late retry.
    other()
        .key("order-4711-c")
        .header("panic", "yes")
        .send()
        .await;
    let handler = stuck.work.hold();
    let first = ask(&stuck, "/payouts")
        .key("order-4711-d")
        .without("idempotency-key".parse().unwrap());
    let first = first.key("order-4711-d").start();
    handler.reached().await;
    backend.clock.advance(Duration::from_secs(30));
    let second = ask(&shop, "/payouts").without("idempotency-key".parse().unwrap());
    second.key("order-4711-d").send().await;
    handler.open();
    first.answer().await;
    backend.clock.advance(Duration::from_hours(24));
    ask(&shop, "/charges").send().await;

    let text = logs.text();
    for expected in [
        &scoped("sk_live_alice", "order-4711").to_string(),
        "nothing runs",
        "running without protection",
        "the handler panicked",
        "takeover",
        "fenced",
        "late retry",
    ] {
        assert!(
            text.contains(expected),
            "the log does not tell of {expected:?}: {text}"
        );
    }
    holds_no_secret("the log", &text);
}

async fn no_debug_output_holds_a_key_a_principal_or_a_body(backend: Backend) {
    let key = IdempotencyKey::new("order-4711").unwrap();
    let alice = Principal::new("sk_live_alice");
    let secret = ScopeSecret::new("hmac-secret");
    let endpoint = (&Method::POST, "/charges");
    let name = ScopedKey::derive(Some(&secret), Scope::Principal, &alice, endpoint, &key);
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", HeaderValue::from_static("order-4711"));
    headers.insert(
        "authorization",
        HeaderValue::from_static("Bearer sk_live_alice"),
    );
    let body = Bytes::from("4242424242424242");
    let input = FingerprintInput {
        principal: &alice,
        method: &Method::POST,
        path_and_query: "/charges?card=4242424242424242",
        headers: &headers,
        body: &body,
    };
    let fingerprint = FingerprintOptions::raw().compute(&input);
    holds_no_secret("Debug", &format!("{key:?} {alice:?} {secret:?} {name:?}"));
    holds_no_secret("Debug", &format!("{fingerprint:?} {input:?}"));

    let policy = Policy::builder(PrincipalSource::constant("sk_live_alice"));
    let builder = axum_idempotency::IdempotencyLayer::builder(backend.process())
        .policy(policy.clone().build().unwrap())
        .scope_secret(secret);
    holds_no_secret("Debug", &format!("{policy:?} {builder:?}"));

    let (seen, told) = tokio::sync::oneshot::channel();
    let seen = std::sync::Mutex::new(Some(seen));
    let work = Work::answering(move |got| {
        let sender = seen.lock().unwrap().take();
        let idempotency: Idempotency = got.idempotency();
        let _sent = sender.map(|sender| sender.send(idempotency));
        async { ([("x-secret", "aGlkZGVu")], "receipt-for-alice").into_response() }
    });
    let shop = backend
        .shop()
        .work(work)
        .layer(|layer| layer.scope_secret(ScopeSecret::new("hmac-secret")))
        .open()
        .await;
    let ask = shop
        .post("/charges")
        .from("sk_live_alice")
        .key("order-4711");
    ask.body("4242424242424242").send().await;
    let idempotency = told.await.expect("the handler ran");
    let service = shop.layer.layer(shop.work.router());
    holds_no_secret(
        "Debug",
        &format!("{idempotency:?} {:?} {service:?}", shop.layer),
    );
    let record = axum_idempotency::store::Store::get(&shop.store, idempotency.scoped_key()).await;
    let record = record.unwrap().expect("the record is there");
    holds_no_secret("Debug", &format!("{record:?} {:?}", record.tombstone()));
}

async fn the_store_holds_nothing_of_the_request(backend: Backend) {
    let shop = backend.shop().open().await;
    let ask = shop
        .post("/charges?card=4242424242424242")
        .from("sk_live_alice");
    let ask = ask.key("order-4711").body("4242424242424242");
    ask.send().await.expect_run(1);
    let record = backend.record_of("sk_live_alice", "order-4711").await;
    let record = record.expect("the request left a record");
    let axum_idempotency::RecordState::Completed(completion) = record.state else {
        panic!("the record has no outcome");
    };
    let kept = completion.response.expect("the response is kept");
    let mut stored = record.key.to_string().into_bytes();
    stored.extend_from_slice(record.fingerprint.as_bytes());
    for (name, value) in &kept.headers {
        stored.extend_from_slice(name.as_str().as_bytes());
        stored.extend_from_slice(value.as_bytes());
    }
    stored.extend_from_slice(&kept.body);
    holds_no_secret("the store", &String::from_utf8_lossy(&stored));
}
