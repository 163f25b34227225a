//! Work that must not end with the client who asked for it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

/// A future that is polled by its caller for as long as the caller lives. When
/// the caller is dropped while the work is [`Bound`], what is left of it goes on
/// in a task of its own.
///
/// A task from the start would do the same, at the price of a hand-over
/// between threads for every request: most of what the layer would cost.
pub(crate) struct Detachable<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    bound: Bound,
    span: Span,
    runtime: Handle,
}

/// Whether the work has begun something that it has to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_bound: AtomicBool,
    is_alone: AtomicBool,
}

impl Bound {
    /// From here on the work goes on without its caller.
    pub(crate) fn bind(&self) {
        self.0.is_bound.store(true, Ordering::Relaxed);
    }

    /// From here on it ends with its caller. True when the caller is gone
    /// already, and it has to end by itself.
    #[must_use]
    pub(crate) fn unbind(&self) -> bool {
        self.0.is_bound.store(false, Ordering::Relaxed);
        self.0.is_alone.load(Ordering::Relaxed)
    }

    /// The caller is gone: whether the work goes on.
    fn leave(&self) -> bool {
        self.0.is_alone.store(true, Ordering::Relaxed);
        self.0.is_bound.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Detachable<T> {
    /// Has to be called inside a runtime; the current span is kept.
    pub(crate) fn new<F>(work: impl FnOnce(Bound) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let bound = Bound::default();
        Self {
            work: Some(Box::pin(work(bound.clone()))),
            bound,
            span: Span::current(),
            runtime: Handle::current(),
        }
    }
}

impl<T: Send + 'static> Future for Detachable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out, so that work that panics is not taken up again.
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Detachable<T> {
    fn drop(&mut self) {
        let goes_on = self.bound.leave();
        if let Some(work) = self.work.take().filter(|_| goes_on) {
            let span = std::mem::replace(&mut self.span, Span::none());
            tracing::debug!(parent: &span, "the client hung up: its request goes on");
            self.runtime.spawn(work.instrument(span));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Detachable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detachable")
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}
