//! What is kept of a response, and what a repeat gets.

use std::{any::Any, panic::AssertUnwindSafe};

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
    response,
};
use jiff::Timestamp;

use super::Setup;
use crate::{
    body::{Held, hold_response},
    claim::CompletedRecord,
    handler::Recording,
    record::{Completion, KeptResponse, ResourceId},
    rejection::Rejection,
    resource,
};

impl Setup {
    /// Whether a retry after this response runs again.
    pub(super) fn forgets(&self, response: &Response<Body>) -> bool {
        match response.extensions().get::<Recording>() {
            Some(Recording::Keep) => false,
            Some(Recording::Forget) => true,
            Some(Recording::Stream) | None => !self.policy.keeps(response.status()),
        }
    }

    /// What is recorded of a response, unless a retry is to run again.
    pub(super) async fn kept(
        &self,
        response: Response<Body>,
    ) -> (Option<Completion>, Response<Body>) {
        if self.forgets(&response) {
            return (None, response);
        }
        let (completion, response) = self.completion(response).await;
        // A body that panics makes another response of it.
        let kept = (!self.forgets(&response)).then_some(completion);
        (kept, response)
    }

    /// Holds the response as far as it can be kept.
    pub(super) async fn completion(
        &self,
        response: Response<Body>,
    ) -> (Completion, Response<Body>) {
        let (mut parts, body) = response.into_parts();
        let limit = self.policy.response_limit;
        let held = if is_stream(&parts) {
            Held::Streaming(body)
        } else {
            // A body is the handler's code too.
            let whole = hold_response(body, limit, self.policy.response_deadline);
            match AssertUnwindSafe(whole).catch_unwind().await {
                Ok(held) => held,
                Err(panic) => {
                    tracing::error!(panic = message(&*panic), "the body of a response panicked");
                    let (failed, body) = server_error().into_parts();
                    parts = failed;
                    hold_response(body, limit, self.policy.response_deadline).await
                }
            }
        };
        let mut completion = Completion {
            status: parts.status.as_u16(),
            resource_id: None,
            response: None,
        };
        let body = match held {
            Held::Whole(data) => {
                completion.resource_id = self.resource_id(&parts, &data);
                if self.policy.keep_bodies {
                    completion.response = Some(KeptResponse {
                        headers: self.policy.headers.recorded(&parts.headers),
                        body: data.clone(),
                    });
                }
                Body::from(data)
            }
            Held::Streaming(body) => {
                completion.resource_id = self.resource_id(&parts, &[]);
                body
            }
        };
        (completion, Response::from_parts(parts, body))
    }

    /// From the handler, else from a JSON body, else from `Location`.
    fn resource_id(&self, parts: &response::Parts, body: &[u8]) -> Option<ResourceId> {
        if let Some(id) = parts.extensions.get::<ResourceId>() {
            return Some(id.clone());
        }
        let in_body = || {
            let json = content_type(parts).is_some_and(is_json);
            json.then(|| resource::in_json(body, &self.policy.resource_id_pointer))
                .flatten()
        };
        let in_location = || {
            let location = parts.headers.get(LOCATION)?.to_str().ok()?;
            resource::in_location(location)
        };
        in_body().or_else(in_location)
    }

    /// The first answer again.
    pub(super) fn replay(&self, record: &CompletedRecord) -> Result<Response<Body>, Rejection> {
        let completion = &record.completion;
        let Some(mut response) = self.answer_of(completion) else {
            return Err(Rejection::ResponseNotKept {
                original_status: completion.status,
                resource_id: completion.resource_id.clone(),
                created_at: record.created_at,
            });
        };
        self.mark_expiry(&mut response, record.expires_at);
        Ok(response)
    }

    /// `None` when the response was not kept, and has to be.
    pub(super) fn answer_of(&self, completion: &Completion) -> Option<Response<Body>> {
        self.or_acknowledgement(self.kept_answer(completion))
    }

    fn kept_answer(&self, completion: &Completion) -> Option<Response<Body>> {
        let kept = completion.response.as_ref()?;
        let mut response = Response::new(Body::from(kept.body.clone()));
        *response.status_mut() = status_of(completion)?;
        let headers = response.headers_mut();
        headers.reserve(kept.headers.len() + 2);
        for (name, value) in &kept.headers {
            headers.append(name.clone(), value.clone());
        }
        self.mark_replay(&mut response);
        Some(response)
    }

    pub(super) fn mark_replay(&self, response: &mut Response<Body>) {
        let name = self.policy.replay_header.clone();
        response.headers_mut().insert(name, TRUE);
    }

    pub(super) fn mark_expiry(&self, response: &mut Response<Body>, expires_at: Timestamp) {
        if let Some(name) = &self.policy.expires_header {
            let date = HeaderValue::try_from(format!("@{}", expires_at.as_second()));
            if let Ok(date) = date {
                response.headers_mut().insert(name.clone(), date);
            }
        }
    }
}

/// What leaves of an outcome that was committed with its work. `None` where its
/// body was not kept, and what was answered is another response.
pub(super) fn first_answer(
    completion: &Completion,
    headers: HeaderMap,
    answered: Option<Response<Body>>,
) -> Option<Response<Body>> {
    let Some(kept) = &completion.response else {
        return answered.filter(|answered| answered.status() == completion.status);
    };
    let mut response = Response::new(Body::from(kept.body.clone()));
    *response.status_mut() = status_of(completion)?;
    *response.headers_mut() = headers;
    Some(response)
}

fn status_of(completion: &Completion) -> Option<StatusCode> {
    StatusCode::from_u16(completion.status).ok()
}

/// A response that has no end to wait for: an upgrade, an event stream, or one
/// that its handler marked.
fn is_stream(parts: &response::Parts) -> bool {
    parts.status == StatusCode::SWITCHING_PROTOCOLS
        || parts.extensions.get() == Some(&Recording::Stream)
        || content_type(parts).is_some_and(is_event_stream)
}

fn content_type(parts: &response::Parts) -> Option<&str> {
    parts.headers.get(CONTENT_TYPE)?.to_str().ok()
}

// A media type may be spelt in any case (RFC 9110 section 8.3.1).

fn is_event_stream(content_type: &str) -> bool {
    let start = content_type.get(..EVENT_STREAM.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM))
}

fn is_json(content_type: &str) -> bool {
    let mut windows = content_type.as_bytes().windows(4);
    windows.any(|window| window.eq_ignore_ascii_case(b"json"))
}

const EVENT_STREAM: &str = "text/event-stream";
const TRUE: HeaderValue = HeaderValue::from_static("true");

pub(super) fn server_error() -> Response<Body> {
    let mut response = Response::new(Body::from("Internal Server Error"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
