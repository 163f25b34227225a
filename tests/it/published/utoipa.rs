//! The types of utoipa say what the fragment says, and keep what a user said.

use axum_idempotency::{KeySource, Policy};
use http::StatusCode;
use serde_json::{Value, json};
use utoipa::{
    OpenApi,
    openapi::{Components, OpenApi as Document, path::Operation},
};

use super::{policies, policy};

fn json_of(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("a part of a document is JSON")
}

/// As an operation's author wrote it.
fn operation(written: Value) -> Operation {
    serde_json::from_value(written).expect("the test's operation is one")
}

fn documented(policy: &Policy, written: Value) -> Value {
    let mut operation = operation(written);
    policy.document(&mut operation);
    json_of(operation)
}

#[test]
fn its_types_say_what_the_fragment_says() {
    for policy in policies() {
        let fragment = policy.openapi();
        let parameters: Vec<_> = policy.utoipa_parameter().into_iter().collect();
        assert_eq!(json_of(parameters), fragment["parameters"]);
        assert_eq!(json_of(policy.utoipa_responses()), fragment["responses"]);
        let components = json_of(policy.utoipa_components());
        let told = &fragment["components"];
        assert_eq!(components["schemas"], told["schemas"]);
        let headers = components.get("headers").cloned();
        assert_eq!(headers.unwrap_or_else(|| json!({})), told["headers"]);
    }
}

#[test]
fn an_operation_gets_the_parameter_and_the_responses() {
    let policy = policy().build().unwrap();
    let told = documented(&policy, json!({"responses": {}}));
    let fragment = policy.openapi();
    assert_eq!(told["parameters"], fragment["parameters"]);
    assert_eq!(told["responses"], fragment["responses"]);
}

#[test]
fn what_the_user_has_described_is_kept() {
    let policy = policy().build().unwrap();
    let conflict = json!({"type": "object", "description": "the user's"});
    let told = documented(
        &policy,
        json!({
            "parameters": [
                {"name": "idempotency-key", "in": "header", "required": true, "description": "mine"},
            ],
            "responses": {
                "201": {"description": "Charged"},
                "409": {
                    "description": "A reference is taken",
                    "headers": {"retry-after": {"description": "mine"}},
                    "content": {"application/json": {"schema": conflict.clone()}},
                },
                "422": {
                    "description": "Refused",
                    "content": {"application/problem+json": {"schema": conflict.clone()}},
                },
                "503": {"$ref": "#/components/responses/Down"},
            },
        }),
    );
    assert_eq!(told["parameters"].as_array().map(Vec::len), Some(1));
    assert_eq!(told["parameters"][0]["description"], "mine");
    let responses = &told["responses"];
    assert_eq!(responses["201"]["description"], "Charged");
    let taken = &responses["409"];
    assert_eq!(taken["description"], "A reference is taken");
    assert_eq!(taken["headers"]["retry-after"]["description"], "mine");
    assert_eq!(taken["headers"].get("Retry-After"), None, "twice the same");
    assert!(taken["headers"].get("Link").is_some(), "ours where absent");
    assert_eq!(taken["content"]["application/json"]["schema"], conflict);
    let ours = policy.openapi();
    let ours = &ours["responses"]["409"]["content"]["application/problem+json"];
    assert_eq!(taken["content"]["application/problem+json"], *ours);
    let refused = &responses["422"]["content"]["application/problem+json"];
    assert_eq!(
        refused["schema"], conflict,
        "the user's own problem document"
    );
    assert_eq!(
        responses["503"],
        json!({"$ref": "#/components/responses/Down"})
    );
}

#[test]
fn a_response_to_a_range_is_where_ours_begins() {
    let policy = policy().build().unwrap();
    let told = documented(
        &policy,
        json!({
            "responses": {
                "4XX": {"description": "Refused", "content": {"application/json": {}}},
                "default": {"description": "Anything else"},
            },
        }),
    );
    let conflict = &told["responses"]["409"];
    assert_eq!(conflict["description"], "Refused");
    let content = conflict["content"].as_object().expect("an object");
    let types: Vec<_> = content.keys().map(String::as_str).collect();
    assert!(types.contains(&"application/json"), "{types:?}");
    assert!(types.contains(&"application/problem+json"), "{types:?}");
    assert_eq!(told["responses"]["503"]["description"], "Anything else");
    let default = &told["responses"]["default"];
    assert_eq!(default.get("content"), None, "the default is the user's");
}

#[test]
fn the_answers_of_the_handler_tell_their_headers() {
    let policy = policy().expires_header("idempotency-expires".parse().unwrap());
    let policy = policy.build().unwrap();
    let told = documented(
        &policy,
        json!({
            "responses": {
                "201": {"description": "Charged"},
                "429": {"description": "Later"},
            },
        }),
    );
    let headers = &told["responses"]["201"]["headers"];
    for name in ["Idempotent-Replayed", "Idempotency-Expires"] {
        let component = format!("#/components/headers/{name}");
        assert_eq!(headers[name], json!({"$ref": component}));
    }
    let forgotten = &told["responses"]["429"];
    assert_eq!(forgotten.get("headers"), None, "a 429 is not recorded");
}

#[test]
fn a_key_in_the_body_is_told_by_the_operation() {
    let source = KeySource::BodyPointer("/id".to_owned());
    let policy = policy().key_source(source).build().unwrap();
    let told = documented(&policy, json!({"responses": {}}));
    assert_eq!(told.get("parameters"), None);
    assert_eq!(
        told["x-idempotency-key"],
        policy.openapi()["x-idempotency-key"]
    );
}

/// A document of two routes under policies of their own.
#[test]
fn every_reference_of_a_document_leads_somewhere() {
    /// Charges a card.
    #[utoipa::path(post, path = "/charges", responses((status = 201, description = "Charged")))]
    #[expect(dead_code, reason = "only its description is used")]
    fn charge() {}

    /// Pays out.
    #[utoipa::path(post, path = "/payouts", responses((status = 201, description = "Paid")))]
    #[expect(dead_code, reason = "only its description is used")]
    fn pay_out() {}

    #[derive(OpenApi)]
    #[openapi(paths(charge, pay_out))]
    struct Api;

    let odd = policy().replay_header("x-re*played!".parse().unwrap());
    let odd = odd.late_status(StatusCode::GONE).build().unwrap();
    let mut document: Document = Api::openapi();
    for (path, policy) in [("/charges", policy().build().unwrap()), ("/payouts", odd)] {
        policy.document_components(&mut document);
        let item = document.paths.paths.get_mut(path);
        let operation = item.and_then(|item| item.post.as_mut());
        policy.document(operation.expect("the route is described"));
    }
    let told = json_of(&document);
    assert!(told["paths"]["/payouts"]["post"]["responses"]["410"].is_object());
    let text = told.to_string();
    let references: Vec<_> = text.split("\"$ref\":\"#").skip(1).collect();
    assert!(references.len() > 10, "the routes refer to the components");
    for reference in references {
        let pointer = reference.split('"').next().unwrap_or_default();
        assert!(told.pointer(pointer).is_some(), "{pointer} leads nowhere");
    }
}

#[test]
fn components_of_the_user_are_kept() {
    let mut document = Document::default();
    let schema = json!({"schemas": {"IdempotencyProblem": {"type": "string"}}});
    let theirs: Components = serde_json::from_value(schema).expect("components");
    document.components = Some(theirs);
    policy().build().unwrap().document_components(&mut document);
    let told = json_of(&document);
    let components = &told["components"];
    assert_eq!(
        components["schemas"]["IdempotencyProblem"]["type"],
        "string"
    );
    assert!(components["headers"]["Idempotent-Replayed"].is_object());
}
