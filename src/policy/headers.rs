//! Which response headers are recorded for a replay.

use std::collections::BTreeSet;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ALT_SVC, CONNECTION, CONTENT_LENGTH, DATE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
        UPGRADE, WWW_AUTHENTICATE,
    },
};

/// Leaves out what belongs to one connection, one moment or one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderRules {
    never: BTreeSet<String>,
    always: BTreeSet<String>,
}

impl HeaderRules {
    pub(crate) fn never_replay(&mut self, names: impl IntoIterator<Item = HeaderName>) {
        self.never
            .extend(names.into_iter().map(|name| name.as_str().to_owned()));
    }

    pub(crate) fn replay(&mut self, names: impl IntoIterator<Item = HeaderName>) {
        self.always
            .extend(names.into_iter().map(|name| name.as_str().to_owned()));
    }

    /// The headers to record, in order, repeated ones included.
    pub(crate) fn recorded(&self, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
        // RFC 9110 section 7.6.1: what Connection names is hop-by-hop too.
        let named: Vec<String> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
            .collect();
        headers
            .iter()
            .filter(|(name, _)| !named.iter().any(|hop| hop == name.as_str()) && self.allows(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    fn allows(&self, name: &HeaderName) -> bool {
        if FRAMING.contains(name) || self.never.contains(name.as_str()) {
            return false;
        }
        let denied = DENIED.contains(name)
            || DENIED_NAMES.contains(&name.as_str())
            || DENIED_PREFIXES
                .iter()
                .any(|prefix| name.as_str().starts_with(prefix));
        !denied || self.always.contains(name.as_str())
    }
}

/// `idempotency-key` as people write it: `Idempotency-Key`.
pub(super) fn header_case(name: &HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

/// Belongs to the connection or is recomputed: no option brings it back.
const FRAMING: [HeaderName; 6] = [
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

const DENIED: [HeaderName; 4] = [ALT_SVC, DATE, SET_COOKIE, WWW_AUTHENTICATE];

const DENIED_NAMES: [&str; 14] = [
    "keep-alive",
    "server-timing",
    // trace and request ids: a replay is a request of its own
    "traceparent",
    "tracestate",
    "baggage",
    "request-id",
    "x-request-id",
    "x-correlation-id",
    "x-trace-id",
    "x-amzn-trace-id",
    "x-amzn-requestid",
    "x-cloud-trace-context",
    "ratelimit",
    "ratelimit-policy",
];

const DENIED_PREFIXES: [&str; 6] = [
    "proxy-",
    "access-control-",
    "x-b3-",
    "ratelimit-",
    "x-ratelimit-",
    "x-rate-limit-",
];
