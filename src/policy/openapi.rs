//! A policy for programs: a fragment of an `OpenAPI` 3.1 document.

use std::collections::BTreeMap;

use http::HeaderName;
use serde_json::{Map, Value, json};

use super::{
    KeySource, MissingKey, Policy,
    describe::advice,
    headers::header_case,
    situations::{KEY_FAULTS, Situation, every_rejection},
};
use crate::{
    key::{IdempotencyKey, KeyError},
    rejection::Rejection,
};

impl Policy {
    /// This policy as a fragment of an `OpenAPI` 3.1 document, to be merged
    /// into the operations that it protects and into their document:
    ///
    /// - `parameters`, for the operation: the header that carries the key. A
    ///   policy whose key is in the body has none; the extension
    ///   `x-idempotency-key`, for the operation too, says where it is.
    /// - `responses`, for the operation: by status, the problem documents that
    ///   this policy can answer with, and `Retry-After`.
    /// - `components`, for the document: the schema `IdempotencyProblem`, which
    ///   is the same for every policy, and, under their names, the headers that
    ///   mark a replay and tell the record's expiry, for the responses of the
    ///   handler to refer to. (A header whose name is none for a component,
    ///   such as `x!`, is found under one with `_` instead.)
    ///
    /// What [`Policy::describe`] says about the layer goes for this as well.
    ///
    /// ```
    /// use axum_idempotency::{Policy, PrincipalSource};
    ///
    /// let policy = Policy::builder(PrincipalSource::bearer()).build()?;
    /// let fragment = policy.openapi();
    /// assert_eq!(fragment["parameters"][0]["name"], "Idempotency-Key");
    /// assert!(fragment["responses"]["409"].is_object());
    /// # Ok::<(), axum_idempotency::ConfigError>(())
    /// ```
    pub fn openapi(&self) -> Value {
        let mut fragment = json!({
            "parameters": self.key_parameter().into_iter().collect::<Vec<_>>(),
            "responses": self.problem_responses(),
            "components": self.components(),
        });
        if let Some(key) = self.key_elsewhere() {
            fragment[KEY_EXTENSION] = key;
        }
        fragment
    }

    /// The header that carries the key.
    pub(super) fn key_parameter(&self) -> Option<Value> {
        let KeySource::Header(name) = &self.key_source else {
            return None;
        };
        let accepted = self.accepted_keys();
        Some(json!({
            "name": header_case(name),
            "in": "header",
            "required": self.missing_key == MissingKey::Refuse,
            "description": "One key for each operation, and the same one when it is repeated.",
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": IdempotencyKey::MAX_LENGTH,
                "description": format!("{accepted}. Lengths count what is between the quotes, decoded."),
            },
        }))
    }

    /// Where the key is, when no parameter can say so.
    pub(super) fn key_elsewhere(&self) -> Option<Value> {
        let place = match &self.key_source {
            KeySource::Header(_) => return None,
            source if source.needs_body() => "body",
            _ => "header",
        };
        let mut key = json!({
            "in": place,
            "required": self.missing_key == MissingKey::Refuse,
            "description": format!("In {}: {}.", self.key_source.in_markdown(), self.accepted_keys()),
        });
        if let KeySource::BodyPointer(pointer) = &self.key_source {
            key["pointer"] = json!(pointer);
        }
        Some(key)
    }

    /// By status.
    pub(super) fn problem_responses(&self) -> Value {
        let mut by_status: BTreeMap<u16, Vec<Situation>> = BTreeMap::new();
        for situation in self.situations() {
            let status = situation.rejection.status().as_u16();
            by_status.entry(status).or_default().push(situation);
        }
        let responses = by_status.into_iter().map(|(status, situations)| {
            let response = self.problem_response(status, &situations);
            (status.to_string(), response)
        });
        Value::Object(responses.collect())
    }

    fn problem_response(&self, status: u16, situations: &[Situation]) -> Value {
        let rejections = || situations.iter().map(|situation| &situation.rejection);
        let lines = situations.iter().map(|situation| {
            let name = situation.rejection.code();
            format!("- `{name}`: {}", situation.when)
        });
        let mut headers = json!({
            "Link": {
                "description": "The documentation of the problem (`rel=\"describedby\"`), where there is one.",
                "schema": { "type": "string" },
            },
        });
        let waits = || rejections().filter(|rejection| rejection.retry_after().is_some());
        if waits().next().is_some() {
            let codes = quoted(waits().map(Rejection::code));
            headers["Retry-After"] = json!({
                "description": format!("When to repeat the request, in seconds. With {codes}."),
                "schema": { "type": "integer" },
            });
        }
        let retries = rejections().map(|rejection| rejection.retry().as_str());
        let mut properties = json!({
            "status": { "type": "integer", "enum": [status] },
            "code": { "type": "string", "enum": rejections().map(Rejection::code).collect::<Vec<_>>() },
            "retry": { "type": "string", "enum": distinct(retries) },
        });
        // What all of them say.
        let mut required = vec!["status", "code", "retry"];
        let members = MEMBERS.iter().map(|(name, ..)| *name);
        required
            .extend(members.filter(|name| rejections().all(|one| members_of(one).contains(name))));
        if rejections().any(|rejection| members_of(rejection).contains(&"reason")) {
            let reasons = self.key_faults().map(KeyError::reason);
            properties["reason"] = json!({
                "type": "string",
                "enum": reasons.collect::<Vec<_>>(),
            });
        }
        json!({
            "description": lines.collect::<Vec<_>>().join("\n"),
            "headers": headers,
            "content": {
                "application/problem+json": {
                    "schema": {
                        "allOf": [
                            { "$ref": format!("#/components/schemas/{PROBLEM}") },
                            { "type": "object", "properties": properties, "required": required },
                        ],
                    },
                },
            },
        })
    }

    /// What all policies answer with, so that several can share a document.
    fn problem_schema(&self) -> Value {
        let every = every_rejection(self);
        let retries = every.iter().map(Rejection::retry);
        let advice =
            distinct(retries.map(|retry| format!("`{}`: {}", retry.as_str(), advice(retry))));
        let words = distinct(every.iter().map(|one| one.retry().as_str()));
        let mut properties = json!({
            "type": { "type": "string", "format": "uri-reference", "description": "A URI for the code." },
            "title": { "type": "string", "description": "The code in words." },
            "status": { "type": "integer", "description": "The status of the response." },
            "detail": { "type": "string", "description": "What happened and what to do, for a person." },
            "code": {
                "type": "string",
                "description": "What happened, for a program.",
                "enum": every.iter().map(Rejection::code).collect::<Vec<_>>(),
            },
            "retry": {
                "type": "string",
                "description": format!("What to do next. {}.", advice.join("; ")),
                "enum": words,
            },
        });
        let required: Vec<_> = properties
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .cloned()
            .collect();
        for (name, kind, what) in MEMBERS {
            let with = every.iter().filter(|one| members_of(one).contains(&name));
            let with = quoted(with.map(Rejection::code));
            let mut member = json!({ "type": kind, "description": format!("{what} With {with}.") });
            if let [only] = kind {
                member["type"] = json!(only);
            }
            match name {
                "created_at" | "expired_at" => member["format"] = json!("date-time"),
                "outcome" => member["enum"] = json!(["completed", "unknown"]),
                "reason" => {
                    member["enum"] = json!(KEY_FAULTS.map(KeyError::reason));
                }
                _ => {}
            }
            properties[name] = member;
        }
        json!({
            "type": "object",
            "description": "Why a request was not answered by its handler or by a replay (RFC 9457).",
            "properties": properties,
            "required": required,
        })
    }

    /// The schema of problems, and the headers of the handler's own answers.
    pub(super) fn components(&self) -> Value {
        let headers = self.response_headers().into_iter();
        let headers = headers.map(|(name, header)| (component(name), header));
        json!({
            "schemas": { PROBLEM: self.problem_schema() },
            "headers": headers.collect::<Map<_, _>>(),
        })
    }

    /// The headers that the layer adds to what a handler answers. They are the
    /// same for every policy but for their names.
    pub(super) fn response_headers(&self) -> Vec<(&HeaderName, Value)> {
        let mark = self.keep_bodies.then(|| {
            let header = json!({
                "description": "On the answer to a repeat, which is the first answer again; else absent.",
                "schema": { "type": "string", "enum": ["true"] },
            });
            (&self.replay_header, header)
        });
        let expiry = self.expires_header.as_ref().map(|name| {
            let header = json!({
                "description": "When the record of the key expires: a structured-field Date (RFC 9651 section 3.3.7), which is `@` and the seconds since 1970.",
                "schema": { "type": "string", "pattern": "^@-?[0-9]+$" },
            });
            (name, header)
        });
        mark.into_iter().chain(expiry).collect()
    }
}

/// A header's name as that of a component, which allows fewer characters
/// (`OpenAPI` 3.1 section 4.8.7.1).
pub(super) fn component(name: &HeaderName) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name = header_case(name);
    name.replace(|c| !allowed(c), "_")
}

/// What a problem document of this rejection says beyond what all say.
fn members_of(rejection: &Rejection) -> &'static [&'static str] {
    match rejection {
        Rejection::KeyMissing { .. } => &["header"],
        Rejection::KeyInvalid { .. } => &["reason", "max_length"],
        Rejection::BodyTooLarge { .. } => &["limit_bytes"],
        Rejection::KeyExpired(_) => &[
            "original_status",
            "resource_id",
            "created_at",
            "expired_at",
            "outcome",
            "same_request",
        ],
        Rejection::ResponseNotKept { .. } => &["original_status", "resource_id", "created_at"],
        Rejection::OutcomeUnknown { .. } => &["created_at"],
        Rejection::PrincipalMissing
        | Rejection::BodyUnreadable
        | Rejection::KeyReused
        | Rejection::InProgress { .. }
        | Rejection::StoreUnavailable { .. }
        | Rejection::StoreFull { .. } => &[],
    }
}

fn quoted<'a>(codes: impl Iterator<Item = &'a str>) -> String {
    let codes = codes.map(|code| format!("`{code}`"));
    codes.collect::<Vec<_>>().join(", ")
}

/// Each once, in order.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// Name, types and meaning of every further member, by `members_of`.
const MEMBERS: [Member; 10] = [
    ("header", &["string"], "Where the key belongs."),
    ("reason", &["string"], "What is wrong with the key."),
    (
        "max_length",
        &["integer"],
        "The longest key, in bytes after decoding.",
    ),
    ("limit_bytes", &["integer"], "The longest body, in bytes."),
    (
        "original_status",
        &["integer", "null"],
        "The status of the first answer, where it is known.",
    ),
    (
        "resource_id",
        &["string", "null"],
        "What the request made, where it is known.",
    ),
    (
        "created_at",
        &["string", "null"],
        "When the key was first used, where that is known.",
    ),
    (
        "expired_at",
        &["string", "null"],
        "When its record expired, where that is known.",
    ),
    ("outcome", &["string"], "Whether an outcome was recorded."),
    (
        "same_request",
        &["boolean", "null"],
        "Whether this request is the recorded one, where that can be told.",
    ),
];

type Member = (&'static str, &'static [&'static str], &'static str);

pub(super) const KEY_EXTENSION: &str = "x-idempotency-key";
const PROBLEM: &str = "IdempotencyProblem";
