//! Asks the store, with a deadline.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::{Mutex, Semaphore},
    time::{Instant, timeout_at},
};

use super::{Console, count::Kept};
use crate::{
    inspect::{InFlightThen, KeyHistory, OpenQuery},
    scope::ScopedKey,
    store::{StoreError, StoreErrorKind},
};

/// What all pages of a console share.
#[derive(Debug)]
pub(super) struct Desk {
    pub console: Console,
    pub kept: Arc<Mutex<Option<Kept>>>,
    /// Whoever reads a whole table holds it.
    reader: Semaphore,
}

impl Desk {
    pub(super) fn of(console: Console) -> Self {
        Self {
            console,
            kept: Arc::default(),
            reader: Semaphore::new(1),
        }
    }

    pub(super) async fn now(&self) -> Answer<Timestamp> {
        let patience = Patience::of(&self.console);
        patience.ask(self.console.inspector.now()).await
    }

    pub(super) async fn key(&self, key: ScopedKey) -> Answer<KeyHistory> {
        let patience = Patience::of(&self.console);
        let inspector = &self.console.inspector;
        if inspector.inspected_store().is_none() && inspector.inspected_archive().is_none() {
            return Err(Unanswered::CannotTell);
        }
        patience.ask(inspector.key(key)).await
    }

    pub(super) async fn in_flight(&self, query: &OpenQuery) -> Answer<InFlightThen> {
        let patience = Patience::of(&self.console);
        let inspector = &self.console.inspector;
        if inspector.inspected_store().is_none() && inspector.inspected_archive().is_none() {
            return Err(Unanswered::CannotTell);
        }
        let question = async {
            // It is never closed, and nobody would wait for ever if it were.
            let _turn = self.reader.acquire().await.ok();
            inspector.in_flight(query).await
        };
        patience.ask(question).await
    }
}

pub(super) type Answer<T> = Result<T, Unanswered>;

/// How long one page waits for all that it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    span: Duration,
    until: Instant,
}

impl Patience {
    pub(super) fn of(console: &Console) -> Self {
        let now = Instant::now();
        Self {
            span: console.deadline,
            until: now.checked_add(console.deadline).unwrap_or(now),
        }
    }

    pub(super) async fn ask<T>(
        self,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Answer<T> {
        match timeout_at(self.until, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                tracing::warn!(error = %error.causes(), "the console got no answer");
                Err(Unanswered::Failed(error.kind()))
            }
            Err(_elapsed) => {
                tracing::warn!(deadline = ?self.span, "the console got no answer in time");
                Err(Unanswered::TooSlow(self.span))
            }
        }
    }
}

/// Why there is no answer, in words for an operator. The causes are in the log
/// alone, where they may name hosts and users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Nothing came in time.
    TooSlow(Duration),
    /// The store or the archive failed.
    Failed(StoreErrorKind),
    /// It has no such view.
    CannotTell,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSlow(span) => {
                write!(f, "No answer within {}.", super::text::span(*span))
            }
            Self::Failed(StoreErrorKind::Unavailable) => {
                f.write_str("Not reachable, or too slow. The log has the cause.")
            }
            Self::Failed(StoreErrorKind::Corrupt) => {
                f.write_str("A stored row cannot be read. The log has the cause.")
            }
            Self::Failed(StoreErrorKind::Setup) => {
                f.write_str("Not set up as it has to be. The log has the cause.")
            }
            Self::Failed(StoreErrorKind::Full) => f.write_str("The store is full."),
            Self::CannotTell => f.write_str("This store or archive has no view for operators."),
        }
    }
}
