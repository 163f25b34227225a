//! The service's future: unboxed for a request that passes through.

use std::{
    error::Error as StdError,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;

use crate::detached::Detachable;

pin_project! {
    /// The future of [`IdempotencyService`](super::IdempotencyService).
    pub struct ResponseFuture<F, E>
    where
        E: Send,
        E: 'static,
    {
        #[pin]
        way: Way<F, E>,
    }
}

pin_project! {
    #[project = WayProjection]
    enum Way<F, E>
    where
        E: Send,
        E: 'static,
    {
        Bypass { #[pin] future: F },
        Protect { #[pin] future: Detachable<Result<Response<Body>, E>> },
    }
}

impl<F, E: Send + 'static> ResponseFuture<F, E> {
    pub(super) fn bypass(future: F) -> Self {
        Self {
            way: Way::Bypass { future },
        }
    }

    pub(super) fn protect(future: Detachable<Result<Response<Body>, E>>) -> Self {
        Self {
            way: Way::Protect { future },
        }
    }
}

impl<F, E: Send + 'static, R> Future for ResponseFuture<F, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            WayProjection::Bypass { future } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(response.map(Body::new)))
            }
            WayProjection::Protect { future } => future.poll(cx),
        }
    }
}

impl<F, E: Send + 'static> fmt::Debug for ResponseFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
