//! Who asks, of a service whose callers have bearer tokens.

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use axum_idempotency::{Policy, Principal, PrincipalSource};

use super::support::{BoxError, policy_from_env};

/// The rules for the keys of these callers, with what the environment asks for.
pub(crate) fn policy() -> Result<axum_idempotency::PolicyBuilder, BoxError> {
    policy_from_env(Policy::builder(PrincipalSource::bearer()))
}

/// The caller of a request that is not covered, such as a GET.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Principal);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let principal = PrincipalSource::bearer().find(parts);
        principal.map(Self).ok_or(StatusCode::UNAUTHORIZED)
    }
}
