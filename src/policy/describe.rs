//! A policy in words, for the documentation of an API.

use std::{fmt::Write as _, time::Duration};

use super::{InFlight, KeySource, Policy, StoreDown, headers::header_case};
use crate::{
    claim::{Abandoned, ArchiveLookup},
    key::IdempotencyKey,
    scope::Scope,
};

impl Policy {
    /// The window, the scope and the rules of this policy as Markdown, for the
    /// page where an API documents its keys. The draft asks a server to publish
    /// them (draft-ietf-httpapi-idempotency-key-header-07, section 2.5.2).
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let lines = self.on_keys().into_iter();
        for (what, how) in lines.chain(self.on_repeats()).chain(self.on_limits()) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- **{what}**: {how}");
        }
        text
    }

    fn on_keys(&self) -> Vec<Line> {
        let source = match &self.key_source {
            KeySource::Header(name) => format!("the `{}` header", header_case(name)),
            KeySource::BodyPointer(pointer) => format!("the JSON body at `{pointer}`"),
        };
        let required = if self.required {
            "required"
        } else {
            "optional"
        };
        let methods: Vec<_> = self.methods.iter().map(http::Method::as_str).collect();
        let key = format!(
            "{source}, {required} on {}, 1 to {} characters of printable ASCII",
            methods.join(" and "),
            IdempotencyKey::MAX_LENGTH,
        );
        let scope = match self.scope {
            Scope::Principal => "a key is unique per caller and names one operation",
            Scope::PrincipalAndEndpoint => "a key is unique per caller and endpoint",
        };
        vec![
            ("Key", key),
            ("Scope", scope.to_owned()),
            (
                "A repeat is told from a reuse by",
                self.fingerprint.to_string(),
            ),
        ]
    }

    fn on_repeats(&self) -> Vec<Line> {
        let window = format!(
            "repeats get the first answer for {}; bound your retries well inside it",
            in_words(self.ttl.get()),
        );
        let late = format!("{} `idempotency_key_expired`", self.late_status.as_u16());
        let after = match self.archive_lookup {
            ArchiveLookup::TimestampedKeys => format!(
                "a repeat with a ULID or UUIDv7 key gets {late}; any other key is unknown and runs again"
            ),
            ArchiveLookup::AllKeys => format!("a repeat gets {late}"),
            ArchiveLookup::RequireTimestamped => {
                format!("a repeat gets {late}; keys have to be ULIDs or UUIDv7s")
            }
        };
        let in_flight = match self.in_flight {
            InFlight::Reject => {
                "a repeat gets 409 `idempotency_request_in_progress` with `Retry-After`".to_owned()
            }
            InFlight::Wait(longest) => format!(
                "a repeat waits up to {} for the first answer, then gets 409 `idempotency_request_in_progress`",
                in_words(longest),
            ),
        };
        let crash = match self.abandoned {
            Abandoned::TakeOver => {
                format!(
                    "a repeat runs again once {} have passed",
                    in_words(self.lease)
                )
            }
            Abandoned::Refuse => "a repeat gets 409 `idempotency_outcome_unknown`".to_owned(),
        };
        let mark = format!("`{}: true`", header_case(&self.replay_header));
        let mut lines = vec![
            ("Window", window),
            ("After the window", after),
            ("While the first request runs", in_flight),
            ("After a crash", crash),
            ("Mark of a replay", mark),
        ];
        if let Some(name) = &self.expires_header {
            lines.push(("The record's expiry", format!("in `{}`", header_case(name))));
        }
        lines
    }

    fn on_limits(&self) -> Vec<Line> {
        let replayed = if self.keep_bodies {
            format!(
                "at most {} bytes; for a larger one a repeat gets 409 `idempotency_response_not_kept`",
                self.response_limit,
            )
        } else {
            "none: a repeat gets 409 `idempotency_response_not_kept` with the resource id"
                .to_owned()
        };
        let forgotten: Vec<_> = self.forgotten_statuses.iter().map(u16::to_string).collect();
        let forgotten = match forgotten.as_slice() {
            [] => "no status".to_owned(),
            statuses => format!("status {}", statuses.join(", ")),
        };
        let down = match self.store_down {
            StoreDown::Closed => "503 `idempotency_store_unavailable`; nothing runs",
            StoreDown::Open => "requests run without protection",
        };
        vec![
            ("Longest run", in_words(self.max_lease)),
            (
                "Request body",
                format!("at most {} bytes", self.request_limit),
            ),
            ("Replayed body", replayed),
            ("Not recorded, so that a repeat runs again", forgotten),
            ("While the store is down", down.to_owned()),
        ]
    }
}

/// What, and how.
type Line = (&'static str, String);

fn in_words(span: Duration) -> String {
    let seconds = span.as_secs();
    let (number, unit) = match seconds {
        0 => return format!("{} ms", span.as_millis()),
        _ if seconds.is_multiple_of(86_400) => (seconds / 86_400, "day"),
        _ if seconds.is_multiple_of(3_600) => (seconds / 3_600, "hour"),
        _ if seconds.is_multiple_of(60) => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}
