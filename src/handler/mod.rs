//! What the layer and the handler tell each other: the attempt on the way in,
//! what it declares on the way out.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use tokio_util::sync::CancellationToken;

use crate::{
    identity::StoreIdentity,
    key::IdempotencyKey,
    record::{Completion, OwnerToken, ResourceId},
    scope::{Principal, ScopedKey},
};

mod derive;
mod marks;

use self::marks::Marks;
pub use self::marks::Recording;
pub(crate) use self::marks::{Committed, WorkState};

/// Extracts the attempt that a handler runs under.
///
/// `Option<Idempotency>` is `None` on a request that passed through without a
/// key; the plain extractor answers 500 there, since a handler that asks for
/// it relies on the layer. A [`Job`](crate::worker::Job) has one too.
///
/// ```
/// use axum::http::StatusCode;
/// use axum_idempotency::{Idempotency, Recording, ResourceId};
///
/// async fn charge(idempotency: Idempotency) -> Result<String, StatusCode> {
///     if idempotency.attempt() > 1 {
///         // An earlier attempt may have had its effect: look before charging.
///     }
///     // The key for the next service down the line: the same at every attempt.
///     let psp_key = idempotency.derive("stripe");
///     if idempotency.is_lease_lost() {
///         // Another attempt has taken over, and this one is the second truth:
///         // stop before the irreversible step.
///         return Err(StatusCode::CONFLICT);
///     }
///     // Known before the response is: a late retry is told of it, whatever
///     // becomes of this handler.
///     if let Some(id) = ResourceId::new("ch_1") {
///         idempotency.set_resource_id(id);
///     }
///     let card_was_declined = true;
///     if card_was_declined {
///         idempotency.set_recording(Recording::Forget);
///         return Err(StatusCode::PAYMENT_REQUIRED);
///     }
///     Ok(format!("charged under {}", psp_key.as_str()))
/// }
/// ```
///
/// An outcome that is learned only later, of an attempt that left none, is
/// recorded with [`IdempotencyLayer::settle`](crate::IdempotencyLayer::settle)
/// under this attempt's [`scoped_key`](Self::scoped_key).
#[derive(Clone)]
pub struct Idempotency(Arc<Attempt>);

struct Attempt {
    key: IdempotencyKey,
    principal: Principal,
    scoped_key: ScopedKey,
    token: OwnerToken,
    number: u32,
    lost: CancellationToken,
    host: Arc<dyn Host>,
    marks: Mutex<Marks>,
}

/// What an attempt asks of the layer that runs it.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    expect(dead_code, reason = "only a store in SQL commits with the work")
)]
#[async_trait]
pub(crate) trait Host: fmt::Debug + Send + Sync {
    /// The store that the claim was made in.
    fn store(&self) -> StoreIdentity;

    /// How long a lease is granted for.
    fn lease(&self) -> Duration;

    /// How long the lease of `token` still runs unless it is renewed.
    fn lease_left(&self, token: OwnerToken) -> Duration;

    /// The outcome of `token` is on its way to the store, or has come back from
    /// it.
    fn ending(&self, token: OwnerToken, is_ending: bool);

    /// Whether nothing is recorded of this response.
    fn forgets(&self, response: &Response<Body>) -> bool;

    /// What is recorded of a response, and the response again.
    async fn completion(&self, response: Response<Body>) -> (Completion, Response<Body>);
}

/// Who an attempt is, for [`Idempotency::new`].
pub(crate) struct Identity {
    pub(crate) key: IdempotencyKey,
    pub(crate) principal: Principal,
    pub(crate) scoped_key: ScopedKey,
    pub(crate) token: OwnerToken,
    pub(crate) number: u32,
}

impl Idempotency {
    pub(crate) fn new(identity: Identity, lost: CancellationToken, host: Arc<dyn Host>) -> Self {
        let Identity {
            key,
            principal,
            scoped_key,
            token,
            number,
        } = identity;
        Self(Arc::new(Attempt {
            key,
            principal,
            scoped_key,
            token,
            number,
            lost,
            host,
            marks: Mutex::default(),
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

    /// How long the lease still runs unless it is renewed, by this process's
    /// clock. It is renewed while the handler runs, when a third of it is over,
    /// so less than half means that the store is slow to answer. Zero when it is
    /// over, and for a request that runs without protection
    /// ([`StoreDown::Open`](crate::StoreDown::Open)).
    pub fn lease_left(&self) -> Duration {
        self.0.host.lease_left(self.0.token)
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

    /// The key under which this operation calls another service: the same at
    /// every attempt, another one for every `name` and for every operation.
    ///
    /// Version 1: SHA-256 over the length-prefixed parts
    /// `axum-idempotency:derive:v1`, the [scoped key](Self::scoped_key) as text,
    /// and `name`. Where the client's key carries its time (a ULID, a `UUIDv7`),
    /// so does this one, so that the next service can tell its age too: a ULID
    /// of that time and the digest's first 80 bits. Otherwise a `UUIDv8`
    /// (RFC 9562 section 5.8) of its first 122. Both fit where a key may only
    /// have 36 characters.
    ///
    /// Nobody can compute it who does not know principal and key, and with a
    /// [scope secret](crate::ScopeSecret) nobody without that. Whoever changes
    /// the secret or the scope changes derived keys too.
    pub fn derive(&self, name: &str) -> IdempotencyKey {
        derive::key(self.0.scoped_key, &self.0.key, name)
    }

    /// Names what the request made, for the record, as soon as that is known: it
    /// is recorded also when the handler panics or fails later. A
    /// [`ResourceId`] beside the response comes before it.
    pub fn set_resource_id(&self, id: ResourceId) {
        self.marks().resource_id = Some(id);
    }

    /// Overrides what the policy does with this one response. A [`Recording`]
    /// beside the response comes before it; a handler that panics has not
    /// declared anything, since nobody knows how far it came.
    pub fn set_recording(&self, recording: Recording) {
        self.marks().recording = Some(recording);
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.0.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a store asks that records the outcome in a transaction of the handler's.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Idempotency {
    pub(crate) fn token(&self) -> OwnerToken {
        self.0.token
    }

    pub(crate) fn store(&self) -> StoreIdentity {
        self.0.host.store()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.0.host.lease()
    }

    pub(crate) fn forgets(&self, response: &Response<Body>) -> bool {
        self.0.host.forgets(response)
    }

    pub(crate) async fn completion(
        &self,
        response: Response<Body>,
    ) -> (Completion, Response<Body>) {
        self.0.host.completion(response).await
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
