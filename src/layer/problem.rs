//! Rejections as problem details (RFC 9457).

use std::{fmt, sync::Arc};

use axum::body::Body;
use http::{
    HeaderValue, Response, Uri,
    header::{CACHE_CONTROL, CONTENT_TYPE, LINK, RETRY_AFTER},
};
use serde_json::{Map, Value, json};

use crate::{
    key::IdempotencyKey,
    policy::ConfigError,
    rejection::{LateRetry, Rejection},
};

type RenderHook = dyn Fn(&Rejection) -> Option<Response<Body>> + Send + Sync;

/// How rejections become responses.
#[derive(Clone)]
pub(crate) struct Problems {
    type_base: String,
    described_by: Option<HeaderValue>,
    hook: Option<Arc<RenderHook>>,
}

impl Problems {
    pub(crate) fn new(
        type_base: Option<String>,
        documentation: Option<&str>,
        hook: Option<Arc<RenderHook>>,
    ) -> Result<Self, ConfigError> {
        let check = |uri: &str| {
            let fits = uri.bytes().all(is_in_uris);
            fits.then_some(())
                .ok_or_else(|| ConfigError::BadUri(uri.to_owned()))
        };
        check(type_base.as_deref().unwrap_or_default())?;
        let described_by = documentation.map(|url| {
            let bad = || ConfigError::BadUri(url.to_owned());
            check(url)?;
            url.parse::<Uri>().map_err(|_| bad())?;
            HeaderValue::try_from(format!("<{url}>; rel=\"describedby\"")).map_err(|_| bad())
        });
        Ok(Self {
            type_base: type_base.unwrap_or_else(|| DEFAULT_TYPE_BASE.to_owned()),
            described_by: described_by.transpose()?,
            hook,
        })
    }

    pub(crate) fn render(&self, rejection: &Rejection) -> Response<Body> {
        let hooked = self.hook.as_ref().and_then(|hook| hook(rejection));
        hooked.unwrap_or_else(|| self.problem(rejection))
    }

    fn problem(&self, rejection: &Rejection) -> Response<Body> {
        let slug = rejection.code().replace('_', "-");
        let mut members = Map::new();
        let mut member = |name: &str, value: Value| members.insert(name.to_owned(), value);
        member("type", json!(format!("{}{slug}", self.type_base)));
        member("title", json!(rejection.title()));
        member("status", json!(rejection.status().as_u16()));
        member("detail", json!(rejection.detail()));
        member("code", json!(rejection.code()));
        member("retry", json!(rejection.retry().as_str()));
        match rejection {
            Rejection::KeyMissing { source } => {
                member("header", json!(source));
            }
            Rejection::KeyInvalid { reason } => {
                member("reason", json!(reason.reason()));
                member("max_length", json!(IdempotencyKey::MAX_LENGTH));
            }
            Rejection::BodyTooLarge { limit } => {
                member("limit_bytes", json!(limit));
            }
            Rejection::KeyExpired(late) => {
                let LateRetry {
                    original_status,
                    resource_id,
                    created_at,
                    expired_at,
                    same_request,
                    ..
                } = &**late;
                let outcome = original_status.map_or("unknown", |_| "completed");
                member("original_status", json!(original_status));
                member(
                    "resource_id",
                    json!(
                        resource_id
                            .as_ref()
                            .map(super::super::record::ResourceId::as_str)
                    ),
                );
                member("created_at", json!(created_at.map(|time| time.to_string())));
                member("expired_at", json!(expired_at.map(|time| time.to_string())));
                member("outcome", json!(outcome));
                member("same_request", json!(same_request));
            }
            Rejection::ResponseNotKept {
                original_status,
                resource_id,
                created_at,
            } => {
                member("original_status", json!(original_status));
                member(
                    "resource_id",
                    json!(
                        resource_id
                            .as_ref()
                            .map(super::super::record::ResourceId::as_str)
                    ),
                );
                member("created_at", json!(created_at.to_string()));
            }
            Rejection::OutcomeUnknown { created_at } => {
                member("created_at", json!(created_at.map(|time| time.to_string())));
            }
            Rejection::PrincipalMissing
            | Rejection::BodyUnreadable
            | Rejection::KeyReused
            | Rejection::InProgress { .. }
            | Rejection::StoreUnavailable { .. }
            | Rejection::StoreFull { .. } => {}
        }
        let mut response = Response::new(Body::from(Value::Object(members).to_string()));
        *response.status_mut() = rejection.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = rejection.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(link) = &self.described_by {
            headers.insert(LINK, link.clone());
        }
        response
    }
}

/// RFC 3986 section 2: nothing else stands in a URI, so none can break out of
/// a header or a document.
fn is_in_uris(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}

impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problems")
            .field("type_base", &self.type_base)
            .field("described_by", &self.described_by)
            .field("hook", &self.hook.is_some())
            .finish()
    }
}

const DEFAULT_TYPE_BASE: &str = "urn:axum-idempotency:problem:";
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
