//! A policy in words, for the documentation of an API.

use std::{fmt::Write as _, time::Duration};

use super::{
    Duplicate, InFlight, MissingKey, Policy, StoreDown,
    headers::header_case,
    markdown::{code, plain},
    situations::{IN_PROGRESS, NOT_KEPT, OUTCOME_UNKNOWN, STORE_UNAVAILABLE, Situation},
};
use crate::{
    claim::{Abandoned, ArchiveLookup},
    key::{IdempotencyKey, KeySyntax},
    rejection::{Rejection, Retry},
    scope::Scope,
};

impl Policy {
    /// The window, the scope, the limits and the error codes of this policy as
    /// Markdown, for the page where an API documents its keys. The draft asks a
    /// server to publish them (draft-ietf-httpapi-idempotency-key-header-07,
    /// section 2.5.2).
    ///
    /// The table of codes leaves out what this policy never answers. A policy
    /// does not know its layer, so it is described as one beside an archive, and
    /// a [render hook](crate::IdempotencyLayerBuilder::render) may answer
    /// otherwise. [`Policy::openapi`] tells a program the same.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let lines = self.on_keys().into_iter();
        let lines = lines.chain(self.on_repeats()).chain(self.on_limits());
        for (what, how) in lines.chain(self.on_errors()) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- **{what}**: {how}");
        }
        text.push_str("\n| Status | Code | Retry | When |\n| --- | --- | --- | --- |\n");
        for situation in self.situations() {
            let rejection = situation.rejection;
            let _ = writeln!(
                text,
                "| {} | `{}` | `{}` | {} |",
                rejection.status().as_u16(),
                rejection.code(),
                rejection.retry().as_str(),
                situation.when,
            );
        }
        text
    }

    /// What is taken as a key, in Markdown.
    pub(super) fn accepted_keys(&self) -> String {
        let longest = IdempotencyKey::MAX_LENGTH;
        let spelling = match (&self.key_source, self.key_syntax) {
            _ if self.key_source.needs_body() => "bytes of text",
            (_, KeySyntax::Lenient) => {
                "characters of printable ASCII, in double quotes (a structured-field string, RFC 9651) or bare; a bare key has no space, double quote, comma, semicolon or backslash"
            }
            (_, KeySyntax::Strict) => {
                "characters of printable ASCII, in double quotes (a structured-field string, RFC 9651)"
            }
        };
        let age = match self.archive_lookup {
            ArchiveLookup::RequireTimestamped => "; it has to be a ULID or a UUIDv7",
            _ => "",
        };
        format!("1 to {longest} {spelling}{age}")
    }

    fn on_keys(&self) -> Vec<Line> {
        let required = if self.missing_key == MissingKey::Refuse {
            "required"
        } else {
            "optional"
        };
        let methods = self.methods.iter().map(|method| plain(method.as_str()));
        let key = format!(
            "{}, {required} on {}, {}",
            self.key_source.in_markdown(),
            methods.collect::<Vec<_>>().join(" and "),
            self.accepted_keys(),
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
                plain(&self.fingerprint.to_string()),
            ),
        ]
    }

    fn on_repeats(&self) -> Vec<Line> {
        let acknowledges = self.duplicate == Duplicate::Acknowledge;
        let window = if acknowledges {
            format!(
                "repeats are acknowledged with a 2xx for {}",
                in_words(self.ttl.get())
            )
        } else {
            format!(
                "repeats get the first answer for {}; bound your retries well inside it",
                in_words(self.ttl.get()),
            )
        };
        let late = if acknowledges {
            "200, or runs again where no outcome is known".to_owned()
        } else {
            answer(&self.late())
        };
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
                format!("a repeat gets {} with `Retry-After`", answer(&IN_PROGRESS))
            }
            InFlight::Wait(longest) => format!(
                "a repeat waits up to {} for the first answer, then gets {}",
                in_words(longest),
                answer(&IN_PROGRESS),
            ),
        };
        let crash = match self.abandoned {
            Abandoned::TakeOver => {
                format!(
                    "a repeat runs again once {} have passed",
                    in_words(self.lease)
                )
            }
            Abandoned::Refuse => format!("a repeat gets {}", answer(&OUTCOME_UNKNOWN)),
        };
        let mut lines = vec![
            ("Window", window),
            ("After the window", after),
            ("While the first request runs", in_flight),
            ("After a crash", crash),
        ];
        if self.keep_bodies {
            let mark = format!("{}: true", header_case(&self.replay_header));
            lines.push(("Mark of a replay", code(&mark)));
        }
        if let Some(name) = &self.expires_header {
            let name = code(&header_case(name));
            lines.push((
                "The record's expiry",
                format!("in {name}, a structured-field Date"),
            ));
        }
        lines
    }

    fn on_limits(&self) -> Vec<Line> {
        let (not_kept, with_id) = match self.duplicate {
            Duplicate::Replay => (answer(&NOT_KEPT), " with the resource id"),
            Duplicate::Acknowledge => ("an empty 200".to_owned(), ""),
        };
        let replayed = if self.keep_bodies {
            format!(
                "at most {} bytes; for a larger one a repeat gets {not_kept}",
                self.response_limit,
            )
        } else {
            format!("none: a repeat gets {not_kept}{with_id}")
        };
        let forgotten: Vec<_> = self.forgotten_statuses.iter().map(u16::to_string).collect();
        let forgotten = match forgotten.as_slice() {
            _ if self.keeps_only_success => "everything but 2xx".to_owned(),
            [] => "no status".to_owned(),
            statuses => format!("status {}", statuses.join(", ")),
        };
        let down = match self.store_down {
            StoreDown::Closed => format!("{}; nothing runs", answer(&STORE_UNAVAILABLE)),
            StoreDown::Open => "requests run without protection".to_owned(),
        };
        vec![
            ("Longest run", in_words(self.max_lease)),
            (
                "Request body",
                format!("at most {} bytes", self.request_limit),
            ),
            ("Replayed body", replayed),
            ("Not recorded, so that a repeat runs again", forgotten),
            ("While the store is down", down),
        ]
    }

    fn on_errors(&self) -> Vec<Line> {
        let mut waits = Vec::new();
        let mut retries: Vec<String> = Vec::new();
        for Situation { rejection, .. } in self.situations() {
            let retry = rejection.retry();
            let advice = format!("`{}`: {}", retry.as_str(), advice(retry));
            if !retries.contains(&advice) {
                retries.push(advice);
            }
            if rejection.retry_after().is_some() {
                waits.push(format!("`{}`", rejection.code()));
            }
        }
        vec![
            (
                "Errors",
                "problem details (RFC 9457), `application/problem+json`, with a `code` from the table below".to_owned(),
            ),
            ("`retry` in an error", retries.join("; ")),
            ("`Retry-After`, in seconds", format!("with {}", waits.join(", "))),
        ]
    }
}

/// How the text names an answer.
fn answer(rejection: &Rejection) -> String {
    format!("{} `{}`", rejection.status().as_u16(), rejection.code())
}

pub(super) fn advice(retry: Retry) -> &'static str {
    match retry {
        Retry::Fix => "mend the request",
        Retry::SameKeyLater => "repeat it later with the same key",
        Retry::NewKey => "send it under a key of its own",
        Retry::Reconcile => "look up what happened first",
    }
}

/// What, and how.
type Line = (&'static str, String);

pub(super) fn in_words(span: Duration) -> String {
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
