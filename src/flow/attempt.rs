//! Steps 2 to 6: what a request is, before anybody is asked about it.

use axum::{body::Body, extract::OriginalUri};
use http::{Request, Uri, header::ACCEPT_ENCODING, request::Parts};
use jiff::Timestamp;

use super::{Observed, Setup};
use crate::{
    body::{Replayed, Unheld, Whole, read_request},
    fingerprint::{Comparison, Fingerprint, FingerprintInput, FingerprintOptions},
    handler::Idempotency,
    key::{IdempotencyKey, KeyError},
    policy::MissingKey,
    rejection::Rejection,
    scope::{Principal, ScopedKey},
    timestamp,
};

/// A request with everything that identifies it. Computed once.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) parts: Box<Parts>,
    pub(super) body: Whole,
    pub(super) key: IdempotencyKey,
    pub(super) principal: Principal,
    pub(super) scoped_key: ScopedKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) key_timestamp: Option<Timestamp>,
    /// An earlier attempt may have run whose record is gone from the store.
    pub(super) has_earlier: bool,
    pub(super) observed: Observed,
}

/// What becomes of a request that the policy covers.
#[derive(Debug)]
pub(super) enum Prepared {
    Keyed(Box<Attempt>),
    /// The key is optional and absent.
    PassThrough(Box<Request<Body>>),
}

impl Attempt {
    /// Key, principal and body, in the order that the key source asks for:
    /// without a principal nothing is buffered.
    pub(super) async fn prepare(
        setup: &Setup,
        request: Box<Request<Body>>,
        observed: &Observed,
    ) -> Result<Prepared, Rejection> {
        let (parts, body) = request.into_parts();
        let parts = Box::new(parts);
        let policy = &setup.policy;
        let principal = || {
            policy
                .principal
                .find(&parts)
                .ok_or(Rejection::PrincipalMissing)
        };
        let limit = policy.request_limit;
        let (key, principal, body) = if policy.key_source.needs_body() {
            let principal = principal()?;
            let body = hold(body, limit).await?;
            let Some(key) = setup.key(&parts, &body.data)? else {
                let body = Body::new(Replayed::new(body));
                let request = Request::from_parts(*parts, body);
                return Ok(Prepared::PassThrough(Box::new(request)));
            };
            (key, principal, body)
        } else {
            let Some(key) = setup.key(&parts, &[])? else {
                let request = Request::from_parts(*parts, body);
                return Ok(Prepared::PassThrough(Box::new(request)));
            };
            let principal = principal()?;
            (key, principal, hold(body, limit).await?)
        };
        let observed = observed.clone();
        Ok(Prepared::Keyed(Box::new(Self::identify(
            setup, parts, body, key, principal, observed,
        ))))
    }

    /// A message has nothing but its key.
    pub(super) fn of_message(
        setup: &Setup,
        key: IdempotencyKey,
        principal: Principal,
        observed: Observed,
    ) -> Self {
        let (parts, ()) = Request::new(()).into_parts();
        let parts = Box::new(parts);
        Self::identify(setup, parts, Whole::default(), key, principal, observed)
    }

    /// Scope and fingerprint.
    fn identify(
        setup: &Setup,
        parts: Box<Parts>,
        body: Whole,
        key: IdempotencyKey,
        principal: Principal,
        observed: Observed,
    ) -> Self {
        let endpoint = (&parts.method, original_uri(&parts).path());
        let secret = setup.secret.as_ref();
        let scoped_key = ScopedKey::derive(secret, setup.policy.scope, &principal, endpoint, &key);
        observed.scoped(scoped_key);
        let input = fingerprint_input(&parts, &body, &principal);
        let fingerprint = setup.policy.fingerprint.compute(&input);
        let key_timestamp = timestamp::claimed_at_ms(key.as_str())
            .and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Self {
            parts,
            body,
            key,
            principal,
            scoped_key,
            fingerprint,
            key_timestamp,
            has_earlier: false,
            observed,
        }
    }

    /// This request under the scheme of a stored fingerprint.
    pub(super) fn recompute(&self, stored: &Fingerprint) -> Option<Fingerprint> {
        FingerprintOptions::recompute(stored, &self.input())
    }

    /// Whether this request is the one that left `stored` behind.
    pub(super) fn compare(&self, stored: &Fingerprint) -> Comparison {
        FingerprintOptions::compare_computed(&self.fingerprint, stored, &self.input())
    }

    /// The request as it came, for its handler: the same body, trailers and
    /// extensions, and the attempt beside them. What is recorded has to be the
    /// identity form, so the handler does not learn of other encodings.
    pub(super) fn into_request(self, idempotency: Idempotency) -> Request<Body> {
        let body = Body::new(Replayed::new(self.body));
        let mut request = Request::from_parts(*self.parts, body);
        request.headers_mut().remove(ACCEPT_ENCODING);
        request.extensions_mut().insert(idempotency);
        request
    }

    fn input(&self) -> FingerprintInput<'_> {
        fingerprint_input(&self.parts, &self.body, &self.principal)
    }
}

impl Setup {
    /// `None` when the key is absent and may be.
    fn key(&self, parts: &Parts, body: &[u8]) -> Result<Option<IdempotencyKey>, Rejection> {
        let policy = &self.policy;
        let key = policy
            .key_source
            .find(policy.key_syntax, &parts.headers, body);
        match (key, policy.missing_key) {
            (Ok(key), _) => Ok(Some(key)),
            (Err(KeyError::Missing), MissingKey::Run) => Ok(None),
            (Err(KeyError::Missing), MissingKey::RunAndWarn) => {
                let source = policy.key_source.in_words();
                tracing::warn!(%source, "a request without a key: it runs unprotected");
                Ok(None)
            }
            (Err(error), _) => Err(Rejection::key(error, policy.key_source.in_words())),
        }
    }
}

async fn hold(body: Body, limit: usize) -> Result<Whole, Rejection> {
    read_request(body, limit)
        .await
        .map_err(|unheld| match unheld {
            Unheld::TooLarge => Rejection::BodyTooLarge { limit },
            Unheld::Unreadable => Rejection::BodyUnreadable,
        })
}

fn fingerprint_input<'a>(
    parts: &'a Parts,
    body: &'a Whole,
    principal: &'a Principal,
) -> FingerprintInput<'a> {
    let uri = original_uri(parts);
    FingerprintInput {
        principal,
        method: &parts.method,
        path_and_query: uri.path_and_query().map_or("/", |path| path.as_str()),
        headers: &parts.headers,
        body: &body.data,
    }
}

/// Nested routers take a prefix away and remember the whole.
fn original_uri(parts: &Parts) -> &Uri {
    match parts.extensions.get::<OriginalUri>() {
        Some(OriginalUri(uri)) => uri,
        None => &parts.uri,
    }
}
