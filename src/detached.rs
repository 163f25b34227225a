//! Work that must not end with the client who asked for it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tracing::{Instrument as _, Span};

/// A future that is polled by its caller for as long as the caller lives, and
/// goes on in a task of its own when the caller is dropped.
///
/// A task from the start would do the same, at the price of a hand-over
/// between threads for every request: most of what the layer costs.
pub(crate) struct Detached<F: Future<Output: Send> + Send + 'static> {
    work: Option<Work<F>>,
    runtime: Handle,
}

struct Work<F> {
    future: Pin<Box<F>>,
    span: Span,
    /// Shutdown waits for it.
    tracked: TaskTrackerToken,
}

impl<F: Future<Output: Send> + Send + 'static> Detached<F> {
    /// Must be called inside a runtime; the current span is kept.
    pub(crate) fn new(tasks: &TaskTracker, future: F) -> Self {
        Self {
            work: Some(Work {
                future: Box::pin(future),
                span: Span::current(),
                tracked: tasks.token(),
            }),
            runtime: Handle::current(),
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Detached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let output = ready!(work.future.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        // A future that panicked cannot go on.
        if let Some(work) = self.work.take().filter(|_| !std::thread::panicking()) {
            let Work {
                future,
                span,
                tracked,
            } = work;
            tracing::debug!(parent: &span, "the client hung up: its request goes on");
            self.runtime.spawn(
                async move {
                    future.await;
                    drop(tracked);
                }
                .instrument(span),
            );
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> fmt::Debug for Detached<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").finish_non_exhaustive()
    }
}
