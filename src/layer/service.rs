//! The service: bypass, or enter the flow.

use std::{
    error::Error as StdError,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;
use tracing::Instrument as _;

use super::{future::ResponseFuture, problem::Problems};
use crate::{
    detached::Detachable,
    flow::{Observed, Refusal, Setup, protect},
    policy::MissingKey,
};

type BoxError = Box<dyn StdError + Send + Sync>;

/// A service whose requests are safe to repeat. Made by
/// [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    setup: Arc<Setup>,
    problems: Arc<Problems>,
}

impl<S> IdempotencyService<S> {
    pub(super) fn new(inner: S, setup: Arc<Setup>, problems: Arc<Problems>) -> Self {
        Self {
            inner,
            setup,
            problems,
        }
    }

    /// Whether the policy leaves this request alone: another method, or no key
    /// where none is required or missed.
    fn passes_through<B>(&self, request: &Request<B>) -> bool {
        let policy = &self.setup.policy;
        !policy.covers(request.method())
            || (policy.missing_key == MissingKey::Run
                && policy.key_source.is_absent(request.headers()))
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let bypassed = self.passes_through(&request);
        let request = request.map(Body::new);
        if bypassed {
            return ResponseFuture::bypass(self.inner.call(request));
        }
        let request = Box::new(request);
        // The service that was ready is the one to call; its clone may not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let setup = Arc::clone(&self.setup);
        let problems = Arc::clone(&self.problems);
        let observed = Observed::begin();
        let span = observed.span().clone();
        let work = |bound| async move {
            let handler = move |request| async move {
                inner
                    .call(request)
                    .await
                    .map(|response| response.map(Body::new))
            };
            match protect(setup, request, handler, bound, observed).await {
                Ok(response) => Ok(response),
                Err(Refusal::Rejected(rejection)) => Ok(problems.render(&rejection)),
                Err(Refusal::Inner(error)) => Err(error),
            }
        };
        ResponseFuture::protect(Detachable::new(|bound| work(bound).instrument(span)))
    }
}
