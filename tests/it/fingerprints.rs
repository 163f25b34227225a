//! What tells a repeat from a reuse, and that a deploy which changes it
//! accuses nobody.

use axum_idempotency::{FingerprintOptions, Retry};
use http::{Method, StatusCode, header::CONTENT_TYPE};

use crate::support::{Answer, Ask, Backend, Shop, on_every_backend};

on_every_backend!(
    method_path_query_and_body_are_covered,
    spellings_of_one_json_value_are_one_under_the_canonical_option,
    what_is_no_json_is_compared_byte_for_byte_under_the_canonical_option,
    chosen_headers_are_covered_with_all_their_values_in_order,
    other_headers_are_not_covered,
    a_function_can_stand_in_for_the_body,
    a_function_of_another_version_accuses_nobody,
    without_a_fingerprint_every_request_with_the_key_is_a_repeat,
    a_deploy_that_changes_the_options_accuses_nobody_and_still_tells_a_reuse,
    a_deploy_to_or_from_what_cannot_be_recomputed_accuses_nobody,
    a_late_retry_is_compared_under_the_stored_options,
    a_request_in_flight_elsewhere_is_compared_under_its_options,
);

async fn with(backend: &Backend, options: FingerprintOptions) -> Shop {
    let opening = backend.shop().policy(|policy| policy.fingerprint(options));
    opening.open().await
}

#[track_caller]
fn is_reuse(answer: &Answer, what: &str) {
    assert_eq!(
        answer.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{what} is a reuse"
    );
    answer.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
}

#[track_caller]
fn is_repeat(answer: &Answer, what: &str) {
    assert!(
        answer.is_marked_as_replay(),
        "{what} is a repeat, not {}",
        answer.status
    );
}

async fn method_path_query_and_body_are_covered(backend: Backend) {
    let shop = with(&backend, FingerprintOptions::raw()).await;
    let first = || shop.post("/transfer?to=a&to=b&x=").key("k");
    first().send().await.expect_run(1);
    is_repeat(&first().send().await, "the same request");
    for path in [
        "/transfer?to=a&to=c&x=",
        "/transfer?to=b&to=a&x=",
        "/transfer?to=a&x=",
        "/transfer?to=a&to=b&x",
        "/transfer?to=a&to=b",
        "/transfer?",
        "/transfer",
        "/transfer/?to=a&to=b&x=",
        "/Transfer?to=a&to=b&x=",
    ] {
        is_reuse(&shop.post(path).key("k").send().await, path);
    }
    let patch = shop.request(Method::PATCH, "/transfer?to=a&to=b&x=");
    is_reuse(&patch.key("k").send().await, "another method");
    for body in ["", "{}", "{\"amount\": 4500}", "{\"amount\":4500}\n"] {
        is_reuse(&first().body(body).send().await, body);
    }
    shop.post("/empty").key("q").send().await.expect_run(2);
    is_reuse(
        &shop.post("/empty?").key("q").send().await,
        "an empty query beside none",
    );
    assert_eq!(shop.work.runs(), 2, "a reused key ran");
}

async fn spellings_of_one_json_value_are_one_under_the_canonical_option(backend: Backend) {
    let shop = with(&backend, FingerprintOptions::canonical_json()).await;
    let ask = |body: &'static str| shop.post("/charges").key("k").body(body).send();
    let first = r#"{"amount":1050,"to":{"iban":"DE1","name":"A"},"tags":["a","b"]}"#;
    ask(first).await.expect_run(1);
    for same in [
        r#"{"tags":["a","b"],"to":{"name":"A","iban":"DE1"},"amount":1050}"#,
        "{ \"amount\" : 1.05e3,\n\"to\":{\"iban\":\"DE1\",\"name\":\"\\u0041\"},\"tags\":[\"a\",\"b\"] }",
    ] {
        is_repeat(&ask(same).await, same);
    }
    for other in [
        r#"{"amount":1050,"to":{"iban":"DE1","name":"A"},"tags":["b","a"]}"#,
        r#"{"amount":1051,"to":{"iban":"DE1","name":"A"},"tags":["a","b"]}"#,
        r#"{"amount":"1050","to":{"iban":"DE1","name":"A"},"tags":["a","b"]}"#,
        r#"{"amount":1050,"to":{"iban":"DE1","name":"A"},"tags":["a","b"],"x":null}"#,
    ] {
        is_reuse(&ask(other).await, other);
    }
}

async fn what_is_no_json_is_compared_byte_for_byte_under_the_canonical_option(backend: Backend) {
    let shop = with(&backend, FingerprintOptions::canonical_json()).await;
    let ask = |key: &str, body: &'static [u8]| shop.post("/charges").key(key).body(body).send();
    // Not JSON; a name twice; an integer that readers round.
    let bodies: [(&[u8], &[u8]); 3] = [
        (b"amount=4500", b"amount=4500 "),
        (br#"{"a":1,"a":2}"#, br#"{"a":1, "a":2}"#),
        (b"9007199254740993", b"9007199254740992"),
    ];
    for (run, (first, other)) in bodies.into_iter().enumerate() {
        let key = format!("k-{run}");
        ask(&key, first).await.expect_run(run + 1);
        is_repeat(&ask(&key, first).await, "the same bytes");
        is_reuse(&ask(&key, other).await, "other bytes");
    }
}

async fn chosen_headers_are_covered_with_all_their_values_in_order(backend: Backend) {
    let options = FingerprintOptions::raw()
        .with_headers(["x-account".parse().unwrap(), "x-version".parse().unwrap()]);
    let shop = with(&backend, options).await;
    let ask = |headers: &[(&str, &str)]| {
        let ask = shop.post("/charges").key("k");
        let add = |ask: Ask, (name, value): &(&str, &str)| ask.header(name, value);
        headers.iter().fold(ask, add).send()
    };
    ask(&[("x-account", "a"), ("x-account", "b"), ("x-version", "1")])
        .await
        .expect_run(1);
    let reordered = [("x-version", "1"), ("x-account", "a"), ("x-account", "b")];
    is_repeat(&ask(&reordered).await, "the same values");
    let others: [&[(&str, &str)]; 6] = [
        &[("x-account", "b"), ("x-account", "a"), ("x-version", "1")],
        &[("x-account", "a"), ("x-version", "1")],
        &[("x-account", "ab"), ("x-version", "1")],
        &[("x-account", "a"), ("x-version", "b"), ("x-version", "1")],
        &[("x-account", "a"), ("x-account", "b"), ("x-version", "2")],
        &[],
    ];
    for other in others {
        is_reuse(&ask(other).await, &format!("{other:?}"));
    }
}

async fn other_headers_are_not_covered(backend: Backend) {
    let shop = with(&backend, FingerprintOptions::raw()).await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let repeat = shop.post("/charges").key("k").header("x-retry", "1");
    let repeat = repeat.without(CONTENT_TYPE).send().await;
    is_repeat(&repeat, "a request with other headers");
}

/// Only what stands before the first `|` counts.
fn up_to_the_bar(version: u32) -> FingerprintOptions {
    FingerprintOptions::custom(version, |input| {
        let counts = input.body.split(|byte| *byte == b'|').next();
        counts.unwrap_or_default().to_vec()
    })
}

async fn a_function_can_stand_in_for_the_body(backend: Backend) {
    let shop = with(&backend, up_to_the_bar(1)).await;
    let ask = |path: &str, body: &'static str| shop.post(path).key("k").body(body).send();
    ask("/charges", "part|boundary-1").await.expect_run(1);
    is_repeat(&ask("/charges", "part|boundary-2").await, "the same parts");
    is_reuse(&ask("/charges", "other|boundary-1").await, "another part");
    is_reuse(&ask("/refunds", "part|boundary-1").await, "another path");
}

async fn a_function_of_another_version_accuses_nobody(backend: Backend) {
    let old = with(&backend, up_to_the_bar(1)).await;
    old.post("/charges")
        .key("k")
        .body("part|1")
        .send()
        .await
        .expect_run(1);
    let new = with(&backend, up_to_the_bar(2)).await;
    let retry = new.post("/charges").key("k").body("whatever").send().await;
    is_repeat(&retry, "what cannot be compared");
    assert_eq!(new.work.runs(), 0, "a deploy made a request run again");
}

async fn without_a_fingerprint_every_request_with_the_key_is_a_repeat(backend: Backend) {
    let shop = with(&backend, FingerprintOptions::none()).await;
    shop.post("/hooks")
        .key("k")
        .body("first")
        .send()
        .await
        .expect_run(1);
    let patch = shop
        .request(Method::PATCH, "/other?x=1")
        .key("k")
        .body("second");
    is_repeat(&patch.send().await, "any request");
}

/// Raw bytes, canonical JSON, and each with a header.
fn recomputable() -> [FingerprintOptions; 4] {
    let header = || ["x-account".parse().unwrap()];
    [
        FingerprintOptions::raw(),
        FingerprintOptions::canonical_json(),
        FingerprintOptions::raw().with_headers(header()),
        FingerprintOptions::canonical_json().with_headers(header()),
    ]
}

async fn a_deploy_that_changes_the_options_accuses_nobody_and_still_tells_a_reuse(
    backend: Backend,
) {
    let shops =
        futures_util::future::join_all(recomputable().map(|options| with(&backend, options)));
    let shops = shops.await;
    for (before, old) in shops.iter().enumerate() {
        for (after, new) in shops.iter().enumerate() {
            let key = format!("k-{before}-{after}");
            let runs = old.work.runs();
            let body = r#"{"b":1,"a":2}"#;
            let ask = |shop: &Shop, body: &'static str| {
                shop.post("/charges")
                    .key(&key)
                    .header("x-account", "a")
                    .body(body)
                    .send()
            };
            ask(old, body).await.expect_run(runs + 1);
            let deploy = format!("a deploy from {before} to {after}");
            is_repeat(&ask(new, body).await, &deploy);
            is_reuse(&ask(new, r#"{"b":1,"a":3}"#).await, &deploy);
            // The record was made under the old options, and they decide.
            let respelt = ask(new, r#"{ "a":2, "b":1 }"#).await;
            let is_canonical = before % 2 == 1;
            assert_eq!(respelt.is_marked_as_replay(), is_canonical, "{deploy}");
            let other_header = new
                .post("/charges")
                .key(&key)
                .header("x-account", "b")
                .body(body);
            let is_covered = before >= 2;
            let other_header = other_header.send().await;
            assert_eq!(other_header.is_marked_as_replay(), !is_covered, "{deploy}");
        }
    }
}

async fn a_deploy_to_or_from_what_cannot_be_recomputed_accuses_nobody(backend: Backend) {
    let raw = with(&backend, FingerprintOptions::raw()).await;
    let none = with(&backend, FingerprintOptions::none()).await;
    let custom = with(&backend, up_to_the_bar(1)).await;
    let ask =
        |shop: &Shop, key: &str, body: &'static str| shop.post("/x").key(key).body(body).send();
    ask(&raw, "from-raw", "one").await.expect_run(1);
    is_repeat(&ask(&none, "from-raw", "one").await, "raw to none");
    is_repeat(&ask(&custom, "from-raw", "one").await, "raw to custom");
    is_reuse(
        &ask(&custom, "from-raw", "two").await,
        "raw to custom, another body",
    );
    ask(&none, "from-none", "one").await.expect_run(1);
    is_repeat(&ask(&raw, "from-none", "two").await, "none to raw");
    ask(&custom, "from-custom", "one").await.expect_run(1);
    is_repeat(&ask(&raw, "from-custom", "two").await, "custom to raw");
}

async fn a_late_retry_is_compared_under_the_stored_options(backend: Backend) {
    let old = with(&backend, FingerprintOptions::canonical_json()).await;
    let new = with(&backend, FingerprintOptions::raw()).await;
    let key = backend.ulid_made_before(std::time::Duration::ZERO);
    old.post("/charges")
        .key(&key)
        .body(r#"{"a":1,"b":2}"#)
        .send()
        .await
        .expect_run(1);
    backend.clock.advance(std::time::Duration::from_hours(24));
    for where_ in ["the live row", "the archive"] {
        let ask = |body: &'static str| new.post("/charges").key(&key).body(body).send();
        let same = ask(r#"{"b":2,"a":1}"#).await.json();
        assert_eq!(same["same_request"], true, "by {where_}");
        let other = ask(r#"{"b":2,"a":2}"#).await.json();
        assert_eq!(other["same_request"], false, "by {where_}");
        backend.sweep().await;
    }
}

async fn a_request_in_flight_elsewhere_is_compared_under_its_options(backend: Backend) {
    let old = with(&backend, FingerprintOptions::canonical_json()).await;
    let new = with(&backend, FingerprintOptions::raw()).await;
    let handler = old.work.hold();
    let first = old
        .post("/charges")
        .key("k")
        .body(r#"{"a":1,"b":2}"#)
        .start();
    handler.reached().await;
    let ask = |body: &'static str| new.post("/charges").key("k").body(body).send();
    let same = ask(r#"{"b":2,"a":1}"#).await;
    same.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    is_reuse(&ask(r#"{"b":2,"a":2}"#).await, "another value");
    handler.open();
    first.answer().await.expect_run(1);
}
