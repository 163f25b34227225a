//! What a handler declares about its response, and how far it has come with
//! committing it.

use std::{convert::Infallible, mem};

use axum::{
    body::Body,
    response::{IntoResponseParts, Response, ResponseParts},
};
use http::HeaderMap;

use super::Idempotency;
use crate::record::{Completion, ResourceId};

/// What a handler declares about one response, against its policy. Return it
/// beside the response, `(StatusCode::PAYMENT_REQUIRED, Recording::Forget)`, or
/// give it to [`Idempotency::set_recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recording {
    /// Final, whatever its status: it is recorded.
    Keep,
    /// Nothing happened: it is not recorded, and a retry runs again.
    Forget,
    /// A stream: it goes to its client as it comes, and is recorded as not
    /// kept.
    Stream,
}

impl IntoResponseParts for Recording {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

/// Names what the request made, for the record. Return it beside the response.
impl IntoResponseParts for ResourceId {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

/// What was declared during the attempt.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) resource_id: Option<ResourceId>,
    pub(super) recording: Option<Recording>,
    work: WorkState,
    /// The handler has ended: it commits nothing any more.
    ended: bool,
}

/// How far an attempt has come with committing its outcome in a transaction of
/// its own.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    expect(dead_code, reason = "only a store in SQL commits with the work")
)]
#[derive(Debug, Default)]
pub(crate) enum WorkState {
    /// It has not, or the transaction was rolled back.
    #[default]
    Open,
    /// The commit was sent, and nobody has heard how it ended.
    Sent,
    /// The outcome is recorded.
    Committed(Box<Committed>),
}

/// A response as it was recorded.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) completion: Completion,
    /// All that the handler gave, also what is never replayed.
    pub(crate) headers: HeaderMap,
}

impl Idempotency {
    /// Puts beside a response what was declared during the attempt, unless the
    /// response says so itself.
    pub(crate) fn mark(&self, response: &mut Response<Body>) {
        if let Some(recording) = self.marks().recording {
            response.extensions_mut().get_or_insert(recording);
        }
        self.mark_resource(response);
    }

    /// The same for what stands for a handler that panicked or failed.
    pub(crate) fn mark_resource(&self, response: &mut Response<Body>) {
        if let Some(id) = self.marks().resource_id.clone() {
            response.extensions_mut().get_or_insert(id);
        }
    }

    /// Whether a commit may be sent: not once the handler has ended, and its
    /// answer is being recorded.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn begin_commit(&self) -> bool {
        let mut marks = self.marks();
        if !marks.ended {
            marks.work = WorkState::Sent;
            // A handler may go on for long after its commit.
            self.0.host.ending(self.0.token, true);
        }
        !marks.ended
    }

    /// The commit that was sent came to its end.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn end_commit(&self, work: WorkState) {
        if matches!(work, WorkState::Open) {
            self.0.host.ending(self.0.token, false);
        }
        self.marks().work = work;
    }

    /// The handler has ended: how far did its work come?
    pub(crate) fn end(&self) -> WorkState {
        let mut marks = self.marks();
        marks.ended = true;
        mem::take(&mut marks.work)
    }
}
