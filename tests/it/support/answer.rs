//! What a client got, and what a test expects of it.

use axum_idempotency::Retry;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use serde_json::{Map, Value};

/// A response, read to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub version: Version,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
    /// The body ended in an error.
    pub is_cut_short: bool,
}

impl Answer {
    /// The one value of a header, if it has one.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} came more than once");
        Some(value.to_str().expect("a header value that is text"))
    }

    /// All values of a header, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&[u8]> {
        let values = self.headers.get_all(name).iter();
        values.map(HeaderValue::as_bytes).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error} in the body of {}: {text}", self.status))
    }

    pub(crate) fn is_marked_as_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The handler made it, at this run, for this client.
    #[track_caller]
    pub(crate) fn expect_run(&self, run: usize) {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, 201, "the handler did not answer: {text}");
        assert_eq!(self.json()["run"], run, "another run answered");
        assert!(
            !self.is_marked_as_replay(),
            "an answer of the handler is marked as a replay"
        );
    }

    /// The first answer again.
    #[track_caller]
    pub(crate) fn expect_replay_of(&self, first: &Self) {
        let text = String::from_utf8_lossy(&self.body);
        assert!(
            self.is_marked_as_replay(),
            "no replay, but {}: {text}",
            self.status
        );
        assert_eq!(self.status, first.status, "a replay has the first status");
        assert_eq!(self.body, first.body, "a replay has the first body");
    }

    /// A problem document of this code, in the form that all have in common.
    #[track_caller]
    pub(crate) fn expect_problem(&self, status: u16, code: &str, retry: Retry) -> Problem {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "expected {code}, got: {text}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "a rejection is a problem document"
        );
        assert_eq!(
            self.header("cache-control"),
            Some("no-store"),
            "a rejection is never cached"
        );
        assert!(
            !self.is_marked_as_replay(),
            "a rejection is marked as a replay"
        );
        let Value::Object(mut members) = self.json() else {
            panic!("a problem document is an object: {text}");
        };
        let mut common = |name: &str| members.remove(name).unwrap_or_default();
        assert_eq!(common("code"), code, "the code of {text}");
        assert_eq!(common("status"), status, "the status member of {text}");
        assert_eq!(common("retry"), retry.as_str(), "the advice of {text}");
        let slug = code.replace('_', "-");
        let kind = common("type");
        assert!(
            kind.as_str().is_some_and(|kind| kind.ends_with(&slug)),
            "the type {kind} names {slug}"
        );
        for words in ["title", "detail"] {
            let said = common(words);
            assert!(
                said.as_str().is_some_and(|said| !said.is_empty()),
                "{code} has no {words}"
            );
        }
        Problem {
            code: code.to_owned(),
            retry_after: self.header("retry-after").map(str::to_owned),
            members,
        }
    }
}

/// What a problem document says beyond what all say.
#[derive(Debug)]
pub(crate) struct Problem {
    code: String,
    retry_after: Option<String>,
    members: Map<String, Value>,
}

impl Problem {
    /// Exactly these members, and no `Retry-After`.
    #[track_caller]
    pub(crate) fn with(self, members: &Value) {
        assert_eq!(
            self.retry_after, None,
            "{} does not ask to retry",
            self.code
        );
        self.members_are(members);
    }

    /// No further member, and a `Retry-After` of at least a second and at most
    /// `longest`.
    #[track_caller]
    pub(crate) fn with_retry_after_up_to(self, longest: u64) {
        let seconds = self.retry_after.as_deref().map(str::parse::<u64>);
        let Some(Ok(seconds)) = seconds else {
            panic!("{} says {seconds:?} instead of when to retry", self.code);
        };
        assert!(
            (1..=longest).contains(&seconds),
            "{} says to retry after {seconds} s, not within 1..={longest}",
            self.code
        );
        self.members_are(&Value::Object(Map::new()));
    }

    #[track_caller]
    fn members_are(self, members: &Value) {
        assert_eq!(
            &Value::Object(self.members),
            members,
            "what else {} says",
            self.code
        );
    }
}
