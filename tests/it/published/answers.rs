//! What the layer really answers is what its policy has told.

use std::{collections::BTreeSet, io, time::Duration};

use axum_idempotency::{ArchiveLookup, PolicyBuilder};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::Value;

use super::{codes_of, policy, rows_of, words};
use crate::support::{Answer, Backend, Fault, Shop, Verb, in_time};

/// A service, and what its policy tells.
struct Documented {
    shop: Shop,
    text: String,
    fragment: Value,
}

impl Documented {
    fn open(backend: &Backend, change: impl Fn(PolicyBuilder) -> PolicyBuilder) -> Self {
        let told = change(policy())
            .build()
            .expect("the test's policy can work");
        Self {
            shop: backend.shop().policy(change).in_memory(),
            text: told.describe(),
            fragment: told.openapi(),
        }
    }

    /// Notes the code of a problem once it is found to be told.
    #[track_caller]
    fn expect_told(&self, answer: &Answer, seen: &mut BTreeSet<String>) {
        let problem = answer.json();
        let code = problem["code"].as_str().expect("a problem has a code");
        let status = answer.status.as_u16();
        let retry = problem["retry"].as_str().expect("a problem has advice");
        let rows = rows_of(&self.text);
        let row = rows.iter().find(|row| row.code == code);
        let row = row.unwrap_or_else(|| panic!("{code} is in no row of:\n{}", self.text));
        assert_eq!(
            (row.status, row.retry.as_str()),
            (status, retry),
            "the row of {code}"
        );
        let response = &self.fragment["responses"][status.to_string()];
        let kind = answer.header("content-type").expect("a problem has a type");
        let schema = &response["content"][kind]["schema"]["allOf"][1];
        for (member, value) in [("code", code), ("retry", retry)] {
            let told = words(&schema["properties"][member]["enum"]);
            assert!(
                told.contains(&value),
                "{value} is not told under {status}: {told:?}"
            );
        }
        self.expect_members(&problem, schema);
        let waits = response["headers"]["Retry-After"]["description"].as_str();
        let is_told = waits.is_some_and(|codes| codes.contains(&format!("`{code}`")));
        assert_eq!(
            answer.header("retry-after").is_some(),
            is_told,
            "Retry-After with {code}"
        );
        seen.insert(code.to_owned());
    }

    /// Each is described, as what it is, and none that is required is missing.
    #[track_caller]
    fn expect_members(&self, problem: &Value, schema: &Value) {
        let every = &self.fragment["components"]["schemas"]["IdempotencyProblem"];
        for (name, value) in problem.as_object().expect("a problem is an object") {
            let told = &every["properties"][name];
            let kind = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "integer",
                _ => "string",
            };
            let kinds = &told["type"];
            let is_told = kinds == kind || words(kinds).contains(&kind);
            assert!(is_told, "{name}, a {kind}, is not as told: {told}");
            for told in [told, &schema["properties"][name]] {
                if let Some(values) = told["enum"].as_array() {
                    assert!(
                        values.contains(value),
                        "{name} is none of {values:?}: {value}"
                    );
                }
            }
            let with = told["description"].as_str().unwrap_or_default();
            let code = problem["code"].as_str().unwrap_or_default();
            let is_common = words(&every["required"]).contains(&name.as_str());
            assert!(
                is_common || with.contains(code),
                "{name} is not told with {code}"
            );
        }
        for part in [every, schema] {
            for name in words(&part["required"]) {
                assert!(problem.get(name).is_some(), "{name} is not in {problem}");
            }
        }
    }
}

#[tokio::test]
async fn every_answer_that_is_no_answer_of_the_handler_is_told() {
    in_time(async {
        let mut seen = BTreeSet::new();
        requests_to_mend(&mut seen).await;
        repeats(&mut seen).await;
        stores(&mut seen).await;
        let every = codes_of(&policy().build().unwrap()).into_iter();
        let unseen: Vec<_> = every.filter(|code| !seen.contains(code)).collect();
        assert!(unseen.is_empty(), "told, and not answered here: {unseen:?}");
    })
    .await;
}

async fn requests_to_mend(seen: &mut BTreeSet<String>) {
    let backend = Backend::memory();
    let told = Documented::open(&backend, |policy| policy.request_limit(8));
    let ask = || told.shop.post("/charges").body("{}");
    told.expect_told(&ask().send().await, seen);
    for key in ["", "\"\"", "\" \"", "\"k", "a b", &"k".repeat(256)] {
        told.expect_told(&ask().key(key).send().await, seen);
    }
    told.expect_told(&ask().key("k").key("k").send().await, seen);
    let ahead = backend.ulid_made_ahead(Duration::from_hours(25));
    told.expect_told(&ask().key(&ahead).send().await, seen);
    told.expect_told(&ask().key("k").anonymous().send().await, seen);
    told.expect_told(&ask().key("k").body("123456789").send().await, seen);
    let frames = [
        Ok(Frame::data(Bytes::from("half"))),
        Err(io::Error::other("the line went dead")),
    ];
    let half = StreamBody::new(stream::iter(frames));
    told.expect_told(&ask().key("k").stream(half).send().await, seen);

    let told = Documented::open(&backend, |policy| {
        policy.archive_lookup(ArchiveLookup::RequireTimestamped)
    });
    let answer = told.shop.post("/charges").key("order-1").send().await;
    assert_eq!(answer.json()["reason"], "timestamp_missing");
    told.expect_told(&answer, seen);
}

async fn repeats(seen: &mut BTreeSet<String>) {
    let backend = Backend::memory();
    let told = Documented::open(&backend, |policy| policy.late_status(StatusCode::GONE));
    let ask = || told.shop.post("/charges").key("k");
    let handler = told.shop.work.hold();
    let first = ask().start();
    handler.reached().await;
    told.expect_told(&ask().send().await, seen);
    told.expect_told(&ask().body("{}").send().await, seen);
    // Nobody renews a record that has expired.
    backend.clock.advance(Duration::from_hours(24));
    handler.open();
    told.expect_told(&first.answer().await, seen);
    let late = ask().send().await;
    assert_eq!(late.status, 410, "as the policy wants");
    told.expect_told(&late, seen);
    told.shop.post("/charges").key("known").send().await;
    backend.clock.advance(Duration::from_hours(24));
    let late = told.shop.post("/charges").key("known").send().await;
    told.expect_told(&late, seen);

    let told = Documented::open(&backend, PolicyBuilder::keep_no_bodies);
    told.shop.post("/charges").key("secret").send().await;
    let repeat = told.shop.post("/charges").key("secret").send().await;
    told.expect_told(&repeat, seen);
}

async fn stores(seen: &mut BTreeSet<String>) {
    let backend = Backend::with_capacity(1);
    let told = Documented::open(&backend, |policy| policy);
    let ask = |key| told.shop.post("/charges").key(key).send();
    told.shop.store.next(Verb::Claim, Fault::DOWN);
    told.expect_told(&ask("k").await, seen);
    ask("k").await;
    told.expect_told(&ask("another").await, seen);
}

#[tokio::test]
async fn the_headers_of_an_answer_are_those_told() {
    in_time(async {
        let backend = Backend::memory();
        let told = Documented::open(&backend, |policy| {
            policy.expires_header("idempotency-expires".parse().unwrap())
        });
        let ask = || told.shop.post("/charges").key("k").send();
        ask().await.expect_run(1);
        let replay = ask().await;
        let headers = &told.fragment["components"]["headers"];
        for (name, header) in headers.as_object().expect("headers by name") {
            let value = replay.header(name);
            let value = value.unwrap_or_else(|| panic!("{name} is told, and absent"));
            let schema = &header["schema"];
            let fits = match schema["pattern"].as_str() {
                Some(_) => value
                    .strip_prefix('@')
                    .is_some_and(|date| date.parse::<i64>().is_ok()),
                None => words(&schema["enum"]).contains(&value),
            };
            assert!(fits, "{name} is {value}, against {schema}");
        }
        assert_eq!(headers.as_object().map(serde_json::Map::len), Some(2));
    })
    .await;
}
