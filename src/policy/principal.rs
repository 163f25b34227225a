//! How a policy finds the principal of a request.

use std::{fmt, sync::Arc};

use http::{HeaderName, header::AUTHORIZATION, request::Parts};

use crate::scope::Principal;

/// Finds the principal in a request's head. There is no default: whoever
/// protects a route says who its keys belong to.
///
/// It trusts what it reads. Put the layer inside the one that authenticates,
/// or read what only that layer can have set.
#[derive(Clone)]
pub struct PrincipalSource {
    name: &'static str,
    find: Arc<FindPrincipal>,
}

type FindPrincipal = dyn Fn(&Parts) -> Option<Principal> + Send + Sync;

impl PrincipalSource {
    /// The bearer token of `Authorization` (RFC 6750 section 2.1), hashed. A
    /// rotated token is a new principal whose keys are unknown: prefer an
    /// account id where the authentication layer offers one.
    pub fn bearer() -> Self {
        Self::of("bearer token", |parts| {
            let value = single(parts, &AUTHORIZATION)?;
            let (scheme, token) = value.split_at_checked("Bearer".len())?;
            let token = token.strip_prefix(b" ")?.trim_ascii();
            (scheme.eq_ignore_ascii_case(b"Bearer") && !token.is_empty())
                .then(|| Principal::bearer(token))
        })
    }

    /// The value of a header that the authentication layer or a gateway sets.
    /// Absent, empty or repeated, there is no principal.
    pub fn header(name: HeaderName) -> Self {
        Self::of("request header", move |parts| {
            let value = single(parts, &name)?.trim_ascii();
            (!value.is_empty()).then(|| Principal::new(value))
        })
    }

    /// From a request extension that the authentication layer has set.
    pub fn extension<T: Send + Sync + 'static>(
        principal: impl Fn(&T) -> Principal + Send + Sync + 'static,
    ) -> Self {
        Self::of("request extension", move |parts| {
            let found = parts.extensions.get().map(&principal);
            if found.is_none() {
                let expected = std::any::type_name::<T>();
                tracing::error!(
                    expected,
                    "no such request extension: add the layer that sets it after this one, so that it runs before"
                );
            }
            found
        })
    }

    /// Whatever `find` makes of the request's head.
    pub fn from_fn(find: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static) -> Self {
        Self::of("function", find)
    }

    /// One principal for every request, such as the provider of a webhook.
    pub fn constant(name: impl AsRef<[u8]>) -> Self {
        let principal = Principal::constant(name);
        Self::of(CONSTANT, move |_| Some(principal.clone()))
    }

    /// Whether every request has a principal.
    pub(crate) fn is_constant(&self) -> bool {
        self.name == CONSTANT
    }

    /// The principal of this request, if it has one.
    pub fn find(&self, parts: &Parts) -> Option<Principal> {
        (self.find)(parts)
    }

    fn of(
        name: &'static str,
        find: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            find: Arc::new(find),
        }
    }
}

impl fmt::Debug for PrincipalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrincipalSource({})", self.name)
    }
}

/// The value of a header that came exactly once: with two values it is
/// unknown which of them the authentication looked at.
fn single<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = parts.headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

const CONSTANT: &str = "constant";
