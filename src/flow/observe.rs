//! What is told of a request while it goes its way: to its span, and to the
//! metrics. Neither learns the client's key or the principal.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{Span, field::Empty};

use crate::{
    metrics, rejection::Rejection, request_outcome::RequestOutcome, scope::ScopedKey,
    store::StoreError,
};

/// The span of one request, or of one message.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    span: Span,
    began: Instant,
}

impl Observed {
    /// Begins a span inside the current one.
    pub(crate) fn begin() -> Self {
        Self {
            span: tracing::info_span!(
                "idempotency",
                outcome = Empty,
                scoped_key = Empty,
                attempt = Empty,
                claim_ms = Empty,
                archive_ms = Empty,
                handler_ms = Empty,
                record_ms = Empty,
                total_ms = Empty,
            ),
            began: Instant::now(),
        }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Where the request belongs.
    pub(super) fn scoped(&self, key: ScopedKey) {
        if !self.span.is_disabled() {
            self.span.record("scoped_key", tracing::field::display(key));
        }
    }

    /// The store was asked from `asked` on.
    pub(super) fn claimed(&self, asked: Instant) {
        self.took("claim_ms", asked.elapsed());
    }

    /// It runs, as this attempt.
    pub(super) fn attempt(&self, number: u32) {
        self.span.record("attempt", number);
    }

    /// The archive was asked from `asked` on.
    pub(super) fn looked_up<T>(&self, asked: Instant, answer: &Result<Option<T>, StoreError>) {
        let took = asked.elapsed();
        metrics::archive_lookup(took, answer.as_ref().ok().map(Option::is_some));
        self.took("archive_ms", took);
    }

    /// Its handler ran from `began` on.
    pub(super) fn ran(&self, began: Instant) {
        self.took("handler_ms", began.elapsed());
    }

    /// Its outcome was told to the store from `began` on.
    pub(super) fn recorded(&self, began: Instant) {
        self.took("record_ms", began.elapsed());
    }

    /// It is over.
    pub(super) fn ended(&self, outcome: RequestOutcome) {
        metrics::request(outcome.as_str());
        self.span.record("outcome", outcome.as_str());
        self.took("total_ms", self.began.elapsed());
    }

    pub(super) fn refused(&self, rejection: &Rejection) {
        if matches!(rejection, Rejection::KeyExpired(_)) {
            metrics::expired_replay();
        }
        self.ended(rejection.into());
    }

    fn took(&self, field: &str, time: Duration) {
        if !self.span.is_disabled() {
            self.span.record(field, millis(time));
        }
    }
}

/// Milliseconds to the microsecond: what is finer says nothing.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
