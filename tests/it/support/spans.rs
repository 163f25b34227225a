//! The spans of the crate's requests, as a subscriber sees them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;
use tracing::{
    Dispatch, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, NoSubscriber},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

use super::PATIENCE;

/// The fields of one span, at its end.
pub(crate) type Fields = BTreeMap<&'static str, String>;

/// Collects the spans that end on this thread while this lives.
#[derive(Debug)]
pub(crate) struct Spans {
    ended: Ended,
    _guard: DefaultGuard,
    /// See [`Logs`](super::Logs).
    _second: Dispatch,
}

impl Spans {
    pub(crate) fn capture() -> Self {
        let ended = Ended::default();
        let second = Dispatch::new(NoSubscriber::new());
        let subscriber = tracing_subscriber::registry().with(ended.clone());
        Self {
            ended,
            _guard: tracing::subscriber::set_default(subscriber),
            _second: second,
        }
    }

    /// Those that have ended since the last call, in that order.
    pub(crate) fn take(&self) -> Vec<Fields> {
        std::mem::take(&mut *self.ended.lock())
    }

    /// The one that ends, or has ended since the last call: a driver's thread may
    /// hold it for a little longer than its request.
    pub(crate) async fn only(&self, request: &str) -> Fields {
        while self.ended.lock().is_empty() {
            let ends = tokio::time::timeout(PATIENCE, self.ended.1.notified());
            ends.await
                .unwrap_or_else(|_| panic!("{request} leaves no span"));
        }
        let mut ended = self.take();
        assert_eq!(ended.len(), 1, "{request} leaves one span, not {ended:?}");
        ended.remove(0)
    }
}

#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<Fields>>>, Arc<Notify>);

impl Ended {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Fields>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ended {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "idempotency" {
            return;
        }
        let mut fields = Read::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("it has just begun");
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("it has not ended");
        if let Some(fields) = span.extensions_mut().get_mut::<Read>() {
            values.record(fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it ends only now");
        let fields = span.extensions_mut().remove::<Read>();
        if let Some(fields) = fields {
            self.lock().push(fields.0);
            self.1.notify_one();
        }
    }
}

#[derive(Debug, Default)]
struct Read(Fields);

impl Visit for Read {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}
