//! What the layer and the handler tell each other: the attempt on the way in,
//! marks on the response on the way out.

use std::{convert::Infallible, fmt, sync::Arc};

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, IntoResponseParts, Response, ResponseParts},
};
use http::{StatusCode, request::Parts};
use tokio_util::sync::CancellationToken;

use crate::{
    key::IdempotencyKey,
    record::ResourceId,
    scope::{Principal, ScopedKey},
};

/// Extracts the attempt that a handler runs under.
///
/// `Option<Idempotency>` is `None` on a request that passed through without a
/// key; the plain extractor answers 500 there, since a handler that asks for
/// it relies on the layer.
///
/// ```
/// use axum_idempotency::Idempotency;
///
/// async fn charge(idempotency: Idempotency) -> String {
///     if idempotency.attempt() > 1 {
///         // an earlier attempt may have had its effect: look before charging
///     }
///     if idempotency.is_lease_lost() {
///         // another attempt has taken over: stop before the irreversible step
///     }
///     format!("attempt {}", idempotency.attempt())
/// }
/// ```
#[derive(Clone)]
pub struct Idempotency(Arc<Attempt>);

struct Attempt {
    key: IdempotencyKey,
    principal: Principal,
    scoped_key: ScopedKey,
    number: u32,
    lost: CancellationToken,
}

impl Idempotency {
    pub(crate) fn new(
        key: IdempotencyKey,
        principal: Principal,
        scoped_key: ScopedKey,
        number: u32,
        lost: CancellationToken,
    ) -> Self {
        Self(Arc::new(Attempt {
            key,
            principal,
            scoped_key,
            number,
            lost,
        }))
    }

    /// The client's key, decoded.
    pub fn key(&self) -> &IdempotencyKey {
        &self.0.key
    }

    /// Who sent it.
    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// The name of the record: safe to log.
    pub fn scoped_key(&self) -> ScopedKey {
        self.0.scoped_key
    }

    /// 1 on the first attempt. More means that an earlier one lapsed without
    /// an outcome and may have had its effect.
    pub fn attempt(&self) -> u32 {
        self.0.number
    }

    /// Whether the lease is known to be lost: another attempt may run, and
    /// this one's answer will not be recorded. Check it before an irreversible
    /// step.
    pub fn is_lease_lost(&self) -> bool {
        self.0.lost.is_cancelled()
    }

    /// Completes when the lease is lost.
    pub async fn lease_lost(&self) {
        self.0.lost.cancelled().await;
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("scoped_key", &self.0.scoped_key)
            .field("attempt", &self.0.number)
            .finish_non_exhaustive()
    }
}

impl<S: Sync> FromRequestParts<S> for Idempotency {
    type Rejection = IdempotencyMissing;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or(IdempotencyMissing)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Idempotency {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The handler asked for [`Idempotency`] on a request that the layer did not
/// protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyMissing;

impl fmt::Display for IdempotencyMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request did not pass through IdempotencyLayer with a key")
    }
}

impl std::error::Error for IdempotencyMissing {}

impl IntoResponse for IdempotencyMissing {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

/// What a handler declares about one response, against its policy. Return it
/// beside the response: `(StatusCode::PAYMENT_REQUIRED, Recording::Forget)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recording {
    /// Final, whatever its status: it is recorded.
    Keep,
    /// Nothing happened: it is not recorded, and a retry runs again.
    Forget,
    /// A stream: it goes to its client as it comes, and is recorded as not
    /// kept.
    Stream,
}

impl IntoResponseParts for Recording {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

/// Names what the request made, for the record. Return it beside the response.
impl IntoResponseParts for ResourceId {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}
