//! A policy in words, for the documentation of an API.

use std::{fmt::Write as _, time::Duration};

use super::{InFlight, KeySource, Policy, StoreDown};
use crate::{
    claim::{Abandoned, ArchiveLookup},
    key::IdempotencyKey,
    rejection::header_case,
    scope::Scope,
};

impl Policy {
    /// The window, the scope and the rules of this policy as Markdown, for the
    /// page where an API documents its keys. The draft asks a server to publish
    /// them (draft-ietf-httpapi-idempotency-key-header-07, section 2.5.2).
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut line = |what: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- **{what}**: {value}");
        };
        let source = match &self.key_source {
            KeySource::Header(name) => format!("the `{}` header", header_case(name)),
            KeySource::BodyPointer(pointer) => format!("the JSON body at `{pointer}`"),
        };
        let required = if self.required {
            "required"
        } else {
            "optional"
        };
        let methods: Vec<_> = self.methods.iter().map(|method| method.as_str()).collect();
        line(
            "Key",
            format!(
                "{source}, {required} on {}, 1 to {} characters of printable ASCII",
                methods.join(" and "),
                IdempotencyKey::MAX_LENGTH,
            ),
        );
        line(
            "Scope",
            match self.scope {
                Scope::Principal => "a key is unique per caller and names one operation".to_owned(),
                Scope::PrincipalAndEndpoint => "a key is unique per caller and endpoint".to_owned(),
            },
        );
        line(
            "A repeat is told from a reuse by",
            self.fingerprint.to_string(),
        );
        line(
            "Window",
            format!(
                "repeats get the first answer for {}; bound your retries well inside it",
                in_words(self.ttl.get()),
            ),
        );
        line(
            "After the window",
            match self.archive_lookup {
                ArchiveLookup::TimestampedKeys => format!(
                    "a repeat with a ULID or UUIDv7 key gets {} `idempotency_key_expired`; any other key is unknown and runs again",
                    self.late_status.as_u16(),
                ),
                ArchiveLookup::AllKeys => format!(
                    "a repeat gets {} `idempotency_key_expired`",
                    self.late_status.as_u16(),
                ),
                ArchiveLookup::RequireTimestamped => format!(
                    "a repeat gets {} `idempotency_key_expired`; keys have to be ULIDs or UUIDv7s",
                    self.late_status.as_u16(),
                ),
            },
        );
        line(
            "While the first request runs",
            match self.in_flight {
                InFlight::Reject => {
                    "a repeat gets 409 `idempotency_request_in_progress` with `Retry-After`"
                        .to_owned()
                }
                InFlight::Wait(longest) => format!(
                    "a repeat waits up to {} for the first answer, then gets 409 `idempotency_request_in_progress`",
                    in_words(longest),
                ),
            },
        );
        line(
            "After a crash",
            match self.abandoned {
                Abandoned::TakeOver => format!(
                    "a repeat runs again once {} have passed",
                    in_words(self.lease)
                ),
                Abandoned::Refuse => "a repeat gets 409 `idempotency_outcome_unknown`".to_owned(),
            },
        );
        line("Longest run", in_words(self.max_lease));
        line(
            "Request body",
            format!("at most {} bytes", self.request_limit),
        );
        line(
            "Replayed body",
            if self.keep_bodies {
                format!(
                    "at most {} bytes; for a larger one a repeat gets 409 `idempotency_response_not_kept`",
                    self.response_limit
                )
            } else {
                "none: a repeat gets 409 `idempotency_response_not_kept` with the resource id"
                    .to_owned()
            },
        );
        let forgotten: Vec<_> = self.forgotten_statuses.iter().map(u16::to_string).collect();
        line(
            "Not recorded, so that a repeat runs again",
            if forgotten.is_empty() {
                "no status".to_owned()
            } else {
                format!("status {}", forgotten.join(", "))
            },
        );
        line(
            "Mark of a replay",
            format!("`{}: true`", header_case(&self.replay_header)),
        );
        if let Some(name) = &self.expires_header {
            line("The record's expiry", format!("in `{}`", header_case(name)));
        }
        line(
            "While the store is down",
            match self.store_down {
                StoreDown::Closed => "503 `idempotency_store_unavailable`; nothing runs".to_owned(),
                StoreDown::Open => "requests run without protection".to_owned(),
            },
        );
        text
    }
}

fn in_words(span: Duration) -> String {
    let seconds = span.as_secs();
    let (number, unit) = match seconds {
        0 => return format!("{} ms", span.as_millis()),
        _ if seconds % 86_400 == 0 => (seconds / 86_400, "day"),
        _ if seconds % 3_600 == 0 => (seconds / 3_600, "hour"),
        _ if seconds % 60 == 0 => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}
