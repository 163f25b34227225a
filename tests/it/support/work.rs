//! The handler under test: it counts its runs, and the test steps it.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use axum_idempotency::Idempotency;
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
    request::Parts,
};
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::sync::watch;
use tracing::Span;
use tracing_subscriber::{Registry, registry::LookupSpan as _};

use super::Gate;

/// The work of one service. Clones are one.
#[derive(Clone)]
pub(crate) struct Work(Arc<Inner>);

struct Inner {
    answer: Box<Answering>,
    counts: watch::Sender<Counts>,
    gates: Mutex<Vec<Gate>>,
}

type Answering = dyn Fn(Seen) -> BoxFuture<'static, Response> + Send + Sync;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    begun: usize,
    ended: usize,
    aborted: usize,
}

/// What a handler sees.
#[derive(Debug)]
pub(crate) struct Seen {
    /// 1 for the first run of this service.
    pub run: usize,
    pub parts: Parts,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Seen {
    /// What the layer tells the handler.
    pub(crate) fn idempotency(&self) -> Idempotency {
        let idempotency = self.parts.extensions.get().cloned();
        idempotency.expect("the request came through the layer with a key")
    }

    /// A charge with an id of its own.
    pub(crate) fn charge(&self) -> Response {
        let id = format!("ch_{}", self.run);
        let attempt = self.parts.extensions.get().map(Idempotency::attempt);
        let charge = json!({"id": id, "run": self.run, "attempt": attempt});
        (
            StatusCode::CREATED,
            [
                (LOCATION, format!("/charges/{id}")),
                (CONTENT_TYPE, "application/json".to_owned()),
            ],
            charge.to_string(),
        )
            .into_response()
    }
}

impl Work {
    /// Makes a charge at every run.
    pub(crate) fn charging() -> Self {
        Self::answering(|seen| async move { seen.charge() })
    }

    /// Answers with the names of the spans that it runs in, the outermost first.
    pub(crate) fn telling_its_spans() -> Self {
        Self::answering(|_| async { spans().into_response() })
    }

    pub(crate) fn answering<F>(answer: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self(Arc::new(Inner {
            answer: Box::new(move |seen| answer(seen).boxed()),
            counts: watch::Sender::default(),
            gates: Mutex::default(),
        }))
    }

    /// How often the handler has run, or begun to.
    pub(crate) fn runs(&self) -> usize {
        self.0.counts.borrow().begun
    }

    /// How many runs were dropped before they had an answer.
    pub(crate) fn aborted(&self) -> usize {
        self.0.counts.borrow().aborted
    }

    /// Waits until the handler has begun so many runs.
    pub(crate) async fn begun(&self, runs: usize) {
        self.wait_for(|counts| counts.begun >= runs).await;
    }

    /// Waits until so many runs have ended with an answer.
    pub(crate) async fn ended(&self, runs: usize) {
        self.wait_for(|counts| counts.ended >= runs).await;
    }

    async fn wait_for(&self, enough: impl Fn(&Counts) -> bool) {
        let mut counts = self.0.counts.subscribe();
        let waited = counts.wait_for(enough).await;
        waited.expect("the work outlives those who watch it");
    }

    /// The next run waits at this gate, after it was counted and before it
    /// answers. Called again, the run after it waits at another.
    pub(crate) fn hold(&self) -> Gate {
        let gate = Gate::closed();
        let mut gates = self.0.gates.lock().expect("nothing panics here");
        gates.push(gate.clone());
        gate
    }

    /// Every path and method leads to the handler.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    fn begin(&self) -> (usize, Option<Gate>) {
        let mut run = 0;
        self.0.counts.send_modify(|counts| {
            counts.begun += 1;
            run = counts.begun;
        });
        let mut gates = self.0.gates.lock().expect("nothing panics here");
        let gate = (!gates.is_empty()).then(|| gates.remove(0));
        (run, gate)
    }
}

/// Counts how a run ended, also when it is dropped.
struct Running {
    work: Work,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = self.ended;
        self.work.0.counts.send_modify(|counts| {
            counts.ended += usize::from(ended);
            counts.aborted += usize::from(!ended);
        });
    }
}

async fn handle(State(work): State<Work>, request: Request<Body>) -> Response {
    let (run, gate) = work.begin();
    let mut running = Running {
        work: work.clone(),
        ended: false,
    };
    let (parts, body) = request.into_parts();
    let whole = body.collect().await.expect("the layer held the whole body");
    let trailers = whole.trailers().cloned();
    let body = whole.to_bytes();
    if let Some(gate) = gate {
        gate.pass().await;
    }
    let seen = Seen {
        run,
        parts,
        body,
        trailers,
    };
    let response = (work.0.answer)(seen).await;
    running.ended = true;
    response
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = *self.0.counts.borrow();
        f.debug_tuple("Work").field(&counts).finish()
    }
}

fn spans() -> String {
    let current = Span::current().id();
    tracing::dispatcher::get_default(|subscriber| {
        let registry = subscriber.downcast_ref::<Registry>();
        let (Some(registry), Some(current)) = (registry, &current) else {
            return "none".to_owned();
        };
        let current = registry.span(current).expect("the current span is open");
        let names = current.scope().from_root().map(|span| span.name());
        names.collect::<Vec<_>>().join(":")
    })
}
