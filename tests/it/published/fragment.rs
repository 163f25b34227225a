use std::collections::BTreeSet;

use axum_idempotency::{ArchiveLookup, KeySource, Policy};
use http::StatusCode;
use serde_json::{Value, json};

use super::{header, policies, policy, rows_of, words};

/// The schema that a status adds to the one of all problems.
fn added(fragment: &Value, status: &str) -> Value {
    fragment["responses"][status]["content"]["application/problem+json"]["schema"]["allOf"][1]
        .clone()
}

#[test]
fn the_key_is_a_header_parameter() {
    let parameter = |policy: Policy| policy.openapi()["parameters"].clone();
    let told = parameter(policy().build().unwrap());
    assert_eq!(
        told.as_array().map(Vec::len),
        Some(1),
        "one parameter: {told}"
    );
    let told = &told[0];
    assert_eq!(told["name"], "Idempotency-Key");
    assert_eq!(told["in"], "header");
    assert_eq!(told["required"], true);
    assert_eq!(told["schema"]["type"], "string");
    assert_eq!(told["schema"]["minLength"], 1);
    assert_eq!(told["schema"]["maxLength"], 255);
    let accepted = told["schema"]["description"].as_str().unwrap_or_default();
    assert!(
        accepted.contains("or bare"),
        "the accepted syntax: {accepted}"
    );
    let other = policy().key_optional().key_source(header("x-request-key"));
    let told = &parameter(other.build().unwrap())[0];
    assert_eq!(told["name"], "X-Request-Key");
    assert_eq!(told["required"], false, "an optional key");
}

#[test]
fn a_key_in_the_body_is_no_parameter_and_is_told_all_the_same() {
    let source = KeySource::BodyPointer("/data/id".to_owned());
    let fragment = policy().key_source(source).build().unwrap().openapi();
    assert_eq!(fragment["parameters"], json!([]));
    let key = &fragment["x-idempotency-key"];
    assert_eq!(key["in"], "body");
    assert_eq!(key["pointer"], "/data/id");
    assert_eq!(key["required"], true);
    let in_header = policy().build().unwrap().openapi();
    assert_eq!(in_header.get("x-idempotency-key"), None);
}

#[test]
fn the_fragment_and_the_table_say_the_same() {
    for policy in policies() {
        let fragment = policy.openapi();
        let mut rows: Vec<_> = rows_of(&policy.describe())
            .into_iter()
            .map(|row| (row.status.to_string(), row.code, row.retry))
            .collect();
        let statuses = fragment["responses"]
            .as_object()
            .expect("responses by status");
        for status in statuses.keys() {
            let schema = added(&fragment, status);
            let number: u16 = status.parse().expect("a status is a number");
            assert_eq!(schema["properties"]["status"]["enum"], json!([number]));
            let retries = words(&schema["properties"]["retry"]["enum"]);
            for code in words(&schema["properties"]["code"]["enum"]) {
                let at = rows
                    .iter()
                    .position(|row| row.0 == *status && row.1 == code);
                let at = at.unwrap_or_else(|| panic!("{status} {code} is in no row"));
                let (.., retry) = rows.remove(at);
                assert!(retries.contains(&retry.as_str()), "{retry} with {status}");
            }
        }
        assert!(rows.is_empty(), "in the table only: {rows:?}");
    }
}

#[test]
fn a_late_retry_shares_the_status_that_the_policy_gives_it() {
    let late = |status| policy().late_status(status).build().unwrap().openapi();
    let fragment = late(StatusCode::UNPROCESSABLE_ENTITY);
    let codes = &added(&fragment, "422")["properties"]["code"]["enum"];
    assert_eq!(
        *codes,
        json!(["idempotency_key_reused", "idempotency_key_expired"])
    );
    let fragment = late(StatusCode::GONE);
    let schema = added(&fragment, "410");
    assert_eq!(
        schema["properties"]["code"]["enum"],
        json!(["idempotency_key_expired"])
    );
    for member in [
        "original_status",
        "resource_id",
        "created_at",
        "expired_at",
        "outcome",
        "same_request",
    ] {
        assert!(
            words(&schema["required"]).contains(&member),
            "{member} is always told"
        );
    }
}

#[test]
fn a_response_says_when_to_retry_only_where_that_is_told() {
    let fragment = policy()
        .late_status(StatusCode::GONE)
        .build()
        .unwrap()
        .openapi();
    for (status, waits) in [
        ("400", false),
        ("401", false),
        ("409", true),
        ("410", false),
        ("413", false),
        ("422", false),
        ("503", true),
    ] {
        let headers = &fragment["responses"][status]["headers"];
        assert_eq!(headers.get("Retry-After").is_some(), waits, "with {status}");
        assert!(
            headers.get("Link").is_some(),
            "the documentation of {status}"
        );
    }
}

#[test]
fn the_reasons_are_those_that_the_policy_has() {
    let reasons = |lookup| {
        let fragment = policy().archive_lookup(lookup).build().unwrap().openapi();
        let schema = added(&fragment, "400");
        words(&schema["properties"]["reason"]["enum"]).join(" ")
    };
    assert!(!reasons(ArchiveLookup::TimestampedKeys).contains("timestamp_missing"));
    assert!(reasons(ArchiveLookup::RequireTimestamped).contains("timestamp_missing"));
    assert!(!reasons(ArchiveLookup::AllKeys).contains("timestamp_future"));
}

#[test]
fn the_headers_of_the_handlers_answers_are_components() {
    let names = |policy: Policy| {
        let fragment = policy.openapi();
        let headers = fragment["components"]["headers"].as_object().cloned();
        let names: Vec<_> = headers.unwrap_or_default().keys().cloned().collect();
        names.join(" ")
    };
    assert_eq!(names(policy().build().unwrap()), "Idempotent-Replayed");
    let expiring = policy().expires_header("idempotency-expires".parse().unwrap());
    let expiring = expiring.build().unwrap();
    assert_eq!(names(expiring), "Idempotency-Expires Idempotent-Replayed");
    let secret = policy().keep_no_bodies().build().unwrap();
    assert_eq!(names(secret), "", "there is no replay to mark");
}

/// By the rules of `OpenAPI` 3.1 for the objects that a fragment is made of.
#[test]
fn every_fragment_is_valid_openapi() {
    for policy in policies() {
        let fragment = policy.openapi();
        let allowed = ["components", "parameters", "responses", "x-idempotency-key"];
        for part in fragment.as_object().expect("an object").keys() {
            assert!(allowed.contains(&part.as_str()), "{part} belongs nowhere");
        }
        let components = fragment["components"].as_object().expect("an object");
        for name in components
            .values()
            .filter_map(Value::as_object)
            .flat_map(|map| map.keys())
        {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(name.chars().all(is_allowed), "{name:?} names no component");
        }
        for header in components["headers"].as_object().into_iter().flatten() {
            expect_header(header.1);
        }
        expect_schema(
            &fragment,
            &fragment["components"]["schemas"]["IdempotencyProblem"],
        );
        for parameter in fragment["parameters"].as_array().expect("a list") {
            let keys: BTreeSet<_> = parameter.as_object().expect("an object").keys().collect();
            let expected = ["description", "in", "name", "required", "schema"];
            assert!(keys.into_iter().eq(expected.iter()), "{parameter}");
            expect_schema(&fragment, &parameter["schema"]);
        }
        for (status, response) in fragment["responses"].as_object().expect("an object") {
            assert!(
                status.len() == 3 && status.parse::<u16>().is_ok(),
                "{status}"
            );
            let description = response["description"].as_str();
            assert!(
                description.is_some_and(|text| !text.is_empty()),
                "{response}"
            );
            for header in response["headers"].as_object().into_iter().flatten() {
                expect_header(header.1);
            }
            let content = response["content"].as_object().expect("an object");
            assert_eq!(
                content.keys().collect::<Vec<_>>(),
                ["application/problem+json"]
            );
            expect_schema(&fragment, &content["application/problem+json"]["schema"]);
        }
    }
}

fn expect_header(header: &Value) {
    assert!(
        header["description"].is_string() && header["schema"]["type"].is_string(),
        "{header}"
    );
}

/// Each part has a type or refers to one that is there, and requires only what
/// it describes.
fn expect_schema(fragment: &Value, schema: &Value) {
    if let Some(parts) = schema["allOf"].as_array() {
        for part in parts {
            expect_schema(fragment, part);
        }
        return;
    }
    if let Some(target) = schema["$ref"].as_str() {
        let found = fragment.pointer(target.trim_start_matches('#'));
        assert!(found.is_some(), "{target} is not in the fragment");
        return;
    }
    let types = ["string", "integer", "boolean", "null", "object"];
    let kind = &schema["type"];
    let kinds = kind.as_str().map_or_else(|| words(kind), |kind| vec![kind]);
    assert!(
        !kinds.is_empty() && kinds.iter().all(|kind| types.contains(kind)),
        "{schema}"
    );
    let every = &fragment["components"]["schemas"]["IdempotencyProblem"]["properties"];
    for name in words(&schema["required"]) {
        assert!(
            every.get(name).is_some(),
            "{name} is required and not described"
        );
    }
    for part in schema["properties"].as_object().into_iter().flatten() {
        expect_schema(fragment, part.1);
    }
}

#[test]
fn policies_share_the_components_of_a_document() {
    let schema = |policy: &Policy| policy.openapi()["components"]["schemas"].clone();
    let all = policies();
    for policy in &all {
        assert_eq!(
            schema(policy),
            schema(&all[0]),
            "one schema for all policies"
        );
    }
}
