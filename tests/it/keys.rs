//! Where the key is read from, how it may be spelt, and which requests the
//! layer leaves alone.

use axum::response::IntoResponse as _;
use axum_idempotency::{Idempotency, KeySource, KeySyntax, PolicyBuilder, PrincipalSource, Retry};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Backend, Verb, Work, on_every_backend};

on_every_backend!(
    quoted_and_bare_are_one_key,
    case_makes_another_key,
    two_lines_are_refused_even_when_they_are_equal,
    strict_syntax_takes_only_a_quoted_string,
    an_optional_key_may_be_absent_and_not_unusable,
    post_and_patch_are_covered_and_other_methods_pass_through_untouched,
    a_policy_says_which_methods_it_covers,
    another_header_can_carry_the_key,
    a_key_in_the_body_protects_like_one_in_a_header,
    a_body_without_its_key_is_refused_or_passes_as_the_policy_says,
    without_a_principal_the_body_that_holds_the_key_is_not_read,
    the_handler_learns_its_key_and_principal,
    every_header_of_the_vectors_is_answered_as_they_say,
);

async fn quoted_and_bare_are_one_key(backend: Backend) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("order-1").send().await;
    first.expect_run(1);
    for spelling in ["\"order-1\"", "  order-1 ", " \"order-1\";v=1"] {
        let repeat = shop.post("/charges").key(spelling).send().await;
        repeat.expect_replay_of(&first);
    }
    let spaced = shop.post("/charges").key("\"order 2\"").send().await;
    spaced.expect_run(2);
}

async fn case_makes_another_key(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges")
        .key("order-a")
        .send()
        .await
        .expect_run(1);
    shop.post("/charges")
        .key("order-A")
        .send()
        .await
        .expect_run(2);
}

async fn two_lines_are_refused_even_when_they_are_equal(backend: Backend) {
    let shop = backend.shop().open().await;
    for (one, other) in [("a", "a"), ("a", "b"), ("a", "\"a\"")] {
        let twice = shop.post("/charges").key(one).key(other).send().await;
        twice
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": "multiple_values", "max_length": 255}));
    }
    assert_eq!(shop.work.runs(), 0, "a request with two keys ran");
}

async fn strict_syntax_takes_only_a_quoted_string(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.key_syntax(KeySyntax::Strict))
        .open()
        .await;
    for (key, reason) in [
        ("order-1", "not_a_string"),
        ("42", "not_a_string"),
        ("\"a", "bad_syntax"),
    ] {
        let answer = shop.post("/charges").key(key).send().await;
        answer
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": reason, "max_length": 255}));
    }
    shop.post("/charges")
        .key("\"order-1\"")
        .send()
        .await
        .expect_run(1);
}

async fn an_optional_key_may_be_absent_and_not_unusable(backend: Backend) {
    let shop = backend
        .shop()
        .policy(PolicyBuilder::key_optional)
        .open()
        .await;
    shop.post("/charges").send().await.expect_run(1);
    shop.post("/charges").send().await.expect_run(2);
    assert_eq!(
        shop.store.calls(Verb::Claim),
        0,
        "a request without a key was claimed"
    );
    let answer = shop.post("/charges").key("\"").send().await;
    answer.expect_problem(400, "idempotency_key_invalid", Retry::Fix);
    let empty = shop.post("/charges").key("").send().await;
    empty.expect_problem(400, "idempotency_key_invalid", Retry::Fix);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(3);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
}

async fn post_and_patch_are_covered_and_other_methods_pass_through_untouched(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let idempotency = seen.parts.extensions.get::<Idempotency>();
        let encoding = seen.parts.headers.get("accept-encoding");
        let is_untouched = idempotency.is_none() && encoding.is_some();
        format!("run {}, untouched: {is_untouched}", seen.run).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let ask = |method: &Method| {
        let key = format!("k-{method}");
        let ask = shop.request(method.clone(), "/charges").key(&key);
        ask.header("accept-encoding", "gzip")
    };
    for method in [Method::POST, Method::PATCH] {
        let first = ask(&method).send().await;
        assert!(
            first.body.ends_with(b"untouched: false"),
            "{method} is covered"
        );
        let repeat = ask(&method).send().await;
        repeat.expect_replay_of(&first);
    }
    let claims = shop.store.calls(Verb::Claim);
    for method in [Method::GET, Method::OPTIONS, Method::PUT, Method::DELETE] {
        let runs = shop.work.runs();
        for run in [runs + 1, runs + 2] {
            let answer = ask(&method).send().await;
            assert_eq!(
                answer.body,
                format!("run {run}, untouched: true"),
                "{method}"
            );
            assert!(!answer.is_marked_as_replay(), "{method} is replayed");
        }
    }
    let runs = shop.work.runs();
    assert_eq!(ask(&Method::HEAD).send().await.status, 200);
    assert_eq!(ask(&Method::HEAD).send().await.status, 200);
    assert_eq!(shop.work.runs(), runs + 2, "HEAD is covered");
    assert_eq!(
        shop.store.calls(Verb::Claim),
        claims,
        "an uncovered method was claimed"
    );
}

async fn a_policy_says_which_methods_it_covers(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.methods([Method::PUT, Method::DELETE]))
        .open()
        .await;
    for (run, method) in [(1, Method::PUT), (2, Method::DELETE)] {
        let key = format!("k-{method}");
        let ask = || shop.request(method.clone(), "/charges").key(&key).send();
        let first = ask().await;
        first.expect_run(run);
        ask().await.expect_replay_of(&first);
    }
    shop.post("/charges").key("k").send().await.expect_run(3);
    shop.post("/charges").key("k").send().await.expect_run(4);
}

async fn another_header_can_carry_the_key(backend: Backend) {
    let source = KeySource::Header("x-request-key".parse().unwrap());
    let shop = backend
        .shop()
        .policy(|policy| policy.key_source(source))
        .open()
        .await;
    let ask = || shop.post("/charges").header("x-request-key", "k").send();
    let first = ask().await;
    first.expect_run(1);
    ask().await.expect_replay_of(&first);
}

async fn a_key_in_the_body_protects_like_one_in_a_header(backend: Backend) {
    let source = KeySource::BodyPointer("/event/id".to_owned());
    let shop = backend
        .shop()
        .principal(PrincipalSource::constant("stripe"))
        .policy(|policy| policy.key_source(source))
        .open()
        .await;
    let event = r#"{"event":{"id":"evt_1"}}"#;
    let first = shop.post("/hooks").body(event).send().await;
    first.expect_run(1);
    let repeat = shop.post("/hooks").body(event).send().await;
    repeat.expect_replay_of(&first);
    let another = shop.post("/hooks").body(r#"{"event":{"id":"evt_2"}}"#);
    another.send().await.expect_run(2);
}

async fn a_body_without_its_key_is_refused_or_passes_as_the_policy_says(backend: Backend) {
    let source = KeySource::BodyPointer("/id".to_owned());
    let required = backend
        .shop()
        .policy(|policy| policy.key_source(source.clone()))
        .open()
        .await;
    let missing = required.post("/hooks").body("{}").send().await;
    missing
        .expect_problem(400, "idempotency_key_missing", Retry::Fix)
        .with(&json!({"header": "the body at /id"}));
    for (body, reason) in [
        ("no json", "bad_syntax"),
        (r#"{"id":7}"#, "not_a_string"),
        (r#"{"id":""}"#, "empty"),
        (r#"{"id":"a","id":"b"}"#, "multiple_values"),
    ] {
        let answer = required.post("/hooks").body(body).send().await;
        answer
            .expect_problem(400, "idempotency_key_invalid", Retry::Fix)
            .with(&json!({"reason": reason, "max_length": 255}));
    }
    assert_eq!(required.work.runs(), 0, "a hook without a usable key ran");

    let echo = Work::answering(|seen| async move { seen.body.into_response() });
    let optional = backend
        .shop()
        .work(echo)
        .policy(|policy| policy.key_source(source).key_optional())
        .open()
        .await;
    let passed = optional.post("/hooks").body(r#"{"no":"id"}"#).send().await;
    assert_eq!(
        passed.body, r#"{"no":"id"}"#,
        "the body did not reach the handler"
    );
    let unusable = optional.post("/hooks").body(r#"{"id":7}"#).send().await;
    unusable.expect_problem(400, "idempotency_key_invalid", Retry::Fix);
}

async fn without_a_principal_the_body_that_holds_the_key_is_not_read(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.key_source(KeySource::BodyPointer("/id".to_owned())))
        .in_memory();
    let unread = futures_util::stream::poll_fn(
        |_| -> std::task::Poll<Option<std::io::Result<http_body::Frame<bytes::Bytes>>>> {
            panic!("a body of nobody was read")
        },
    );
    let unread = http_body_util::StreamBody::new(unread);
    let answer = shop.post("/hooks").anonymous().stream(unread).send().await;
    answer.expect_problem(401, "idempotency_principal_missing", Retry::Fix);
}

async fn the_handler_learns_its_key_and_principal(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let idempotency = seen.idempotency();
        let text = format!(
            "{} {} {}",
            idempotency.key().as_str(),
            idempotency.attempt(),
            idempotency.scoped_key(),
        );
        assert_eq!(
            idempotency.principal(),
            &axum_idempotency::Principal::bearer("alice")
        );
        text.into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let answer = shop.post("/charges").key("\"order 1\"").send().await;
    let scoped = crate::support::scoped("alice", "order 1");
    assert_eq!(answer.body, format!("order 1 1 {scoped}"));
}

/// The head reaches the layer as the vectors spell it; a socket would take
/// white space away.
async fn every_header_of_the_vectors_is_answered_as_they_say(backend: Backend) {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/key-header.json")).unwrap();
    let mut failures = Vec::new();
    for (syntax, name) in [
        (KeySyntax::Strict, "strict"),
        (KeySyntax::Lenient, "lenient"),
    ] {
        let work = Work::answering(|seen| async move {
            seen.idempotency().key().as_str().to_owned().into_response()
        });
        let shop = backend
            .shop()
            .work(work)
            .policy(|policy| policy.key_syntax(syntax))
            .in_memory();
        for case in cases
            .iter()
            .filter(|case| case["header_value_constructible"] == true)
        {
            let lines = case["raw_hex"].as_array().unwrap().iter();
            let lines = lines.map(|line| from_hex(line.as_str().unwrap()));
            let ask = lines.fold(shop.post("/charges"), |ask, line| ask.key_bytes(&line));
            let path = format!("/{name}/{}", case["id"].as_str().unwrap());
            let answer = ask.from(&path).send().await;
            let got = match answer.status.as_u16() {
                200 => json!({"expect": "accept", "key": String::from_utf8_lossy(&answer.body)}),
                400 => {
                    let problem = answer.json();
                    let reason = problem
                        .get("reason")
                        .cloned()
                        .unwrap_or_else(|| "missing".into());
                    json!({"expect": "reject", "key": null, "code": problem["code"], "reason": reason})
                }
                other => json!({"status": other}),
            };
            if got != case[name] {
                failures.push(format!("{path}: expected {}, got {got}", case[name]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}
