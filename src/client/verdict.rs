//! What an answer means for the next attempt.

use std::time::Duration;

use http::{StatusCode, header::CONTENT_TYPE};
use reqwest::Response;
use reqwest_middleware::{Error, Result};
use serde_json::Value;

use super::{Key, KeyExpired, KnownOutcome, body, wait};
use crate::{clock::Clock, rejection::Retry};

/// What to do after an attempt.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is the caller's answer.
    Final(Response),
    /// It says that the key has expired.
    Expired(Box<KeyExpired>),
    /// It failed in a way that a repeat would not mend.
    Broken(Error),
    /// The same request may be sent again, once the time has passed that the
    /// server asked for. Until then this is what came of it.
    Again {
        last: Result<Response>,
        asked: Duration,
    },
}

pub(super) async fn judge(sent: Result<Response>, key: &Key, clock: &dyn Clock) -> Verdict {
    let response = match sent {
        Ok(response) => response,
        Err(error) if passes_by(&error) => return again(Err(error), None),
        Err(error) => return Verdict::Broken(error),
    };
    let is_problem = is_problem(&response);
    let may_pass_by = PASSING.contains(&response.status()) && !is_replay(&response);
    if !is_problem && !may_pass_by {
        return Verdict::Final(response);
    }
    let asked = wait::retry_after(response.headers(), clock.now());
    // The body of a passing answer is read as well: it is what the caller gets
    // when no attempt follows, and no connection waits for that.
    let (response, whole) = match body::peek(response).await {
        Ok(peeked) => peeked,
        Err(error) => return again(Err(error.into()), asked),
    };
    let problem = whole.filter(|_| is_problem).and_then(|whole| read(&whole));
    let problem = problem.unwrap_or_default();
    if problem["code"] == KEY_EXPIRED {
        return Verdict::Expired(Box::new(expired(&problem, key, response.status())));
    }
    match word_of(&problem) {
        Some(Retry::SameKeyLater) => again(Ok(response), asked),
        None if may_pass_by => again(Ok(response), asked),
        _ => Verdict::Final(response),
    }
}

fn again(last: Result<Response>, asked: Option<Duration>) -> Verdict {
    Verdict::Again {
        last,
        asked: asked.unwrap_or_default(),
    }
}

/// Whether an error is of the way to the server and back: no connection, one
/// that broke, or a timeout. Errors of the client's own making, such as a URL
/// that is none, are not; nor are those of other middleware.
fn passes_by(error: &Error) -> bool {
    match error {
        Error::Reqwest(error) => {
            error.is_connect() || error.is_timeout() || error.is_request() || error.is_body()
        }
        Error::Middleware(_) => false,
    }
}

fn is_problem(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    let essence = content_type
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| {
        essence
            .trim()
            .eq_ignore_ascii_case("application/problem+json")
    })
}

/// What was recorded is what every repeat gets.
fn is_replay(response: &Response) -> bool {
    let marked = response.headers().get("idempotent-replayed");
    marked.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

fn read(whole: &[u8]) -> Option<Value> {
    serde_json::from_slice(whole).ok()
}

/// The document's `retry`. Documents of others may have another, or none.
fn word_of(problem: &Value) -> Option<Retry> {
    let word = problem["retry"].as_str()?;
    let words = [
        Retry::Fix,
        Retry::SameKeyLater,
        Retry::NewKey,
        Retry::Reconcile,
    ];
    words.into_iter().find(|known| known.as_str() == word)
}

fn expired(problem: &Value, key: &Key, status: StatusCode) -> KeyExpired {
    let text = |name: &str| problem[name].as_str();
    let time = |name: &str| text(name).and_then(|time| time.parse().ok());
    let original_status = problem["original_status"].as_u64();
    KeyExpired {
        key: key.clone(),
        key_made_at: key.made_at(),
        status,
        original_status: original_status.and_then(|status| u16::try_from(status).ok()),
        resource_id: text("resource_id").map(str::to_owned),
        created_at: time("created_at"),
        expired_at: time("expired_at"),
        outcome: match text("outcome") {
            Some("completed") => KnownOutcome::Completed,
            _ => KnownOutcome::Unknown,
        },
        same_request: problem["same_request"].as_bool(),
    }
}

/// Statuses that speak of the moment and not of the request. Not among them:
/// 408 and 500, which this crate's server records, since nobody knows whether
/// the effect happened; a repeat would only get them again.
const PASSING: [StatusCode; 5] = [
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

const KEY_EXPIRED: &str = "idempotency_key_expired";
