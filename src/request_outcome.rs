//! How a request that a policy covers was answered: one word for its span and
//! for the metrics.

use crate::rejection::Rejection;

/// How a request, or a message of a queue, was answered: the field `outcome` of
/// its tracing span, and the label of `idempotency_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// Its handler ran, and its outcome was recorded, with or without its
    /// response; or it waits to be, behind a store that does not answer.
    Executed,
    /// Its handler ran, and nothing was recorded, so that a retry runs again: a
    /// status that is not kept, or the handler said so.
    Forgotten,
    /// Its handler ran, and the answer is that of the attempt that took over
    /// meanwhile.
    Fenced,
    /// Its handler ran although the store did not answer, as
    /// [`StoreDown::Open`](crate::StoreDown::Open) wants: without protection.
    Unprotected,
    /// The inner service failed with an error instead of a response.
    Failed,
    /// It has no key and needs none: its handler ran, without protection.
    NoKey,
    /// It is a repeat and got the first answer.
    Replayed,
    /// It is a repeat of a webhook or of a message that is done: it was
    /// acknowledged without the first answer.
    Acknowledged,
    /// It is a repeat, and the first is still running.
    RequestInProgress,
    /// Its key belongs to another request.
    KeyReused,
    /// It is a late retry: its record has expired.
    KeyExpired,
    /// It is a repeat, and the first answer was not kept.
    ResponseNotKept,
    /// An attempt ran, and how it ended is not known.
    OutcomeUnknown,
    /// Store or archive did not answer. Nothing ran.
    StoreUnavailable,
    /// The store has no room. Nothing ran.
    StoreFull,
    /// It has no key and needs one.
    KeyMissing,
    /// Its key cannot be used.
    KeyInvalid,
    /// It has no principal.
    PrincipalMissing,
    /// Its body is over the limit.
    BodyTooLarge,
    /// Its body ended too early.
    BodyUnreadable,
}

impl RequestOutcome {
    /// All there are.
    pub const ALL: [Self; 20] = [
        Self::Executed,
        Self::Forgotten,
        Self::Fenced,
        Self::Unprotected,
        Self::Failed,
        Self::NoKey,
        Self::Replayed,
        Self::Acknowledged,
        Self::RequestInProgress,
        Self::KeyReused,
        Self::KeyExpired,
        Self::ResponseNotKept,
        Self::OutcomeUnknown,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::PrincipalMissing,
        Self::BodyTooLarge,
        Self::BodyUnreadable,
    ];

    /// The word. For a refusal it is the problem document's `code` without its
    /// `idempotency_`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Forgotten => "forgotten",
            Self::Fenced => "fenced",
            Self::Unprotected => "unprotected",
            Self::Failed => "failed",
            Self::NoKey => "no_key",
            Self::Replayed => "replayed",
            Self::Acknowledged => "acknowledged",
            Self::RequestInProgress => "request_in_progress",
            Self::KeyReused => "key_reused",
            Self::KeyExpired => "key_expired",
            Self::ResponseNotKept => "response_not_kept",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreFull => "store_full",
            Self::KeyMissing => "key_missing",
            Self::KeyInvalid => "key_invalid",
            Self::PrincipalMissing => "principal_missing",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyUnreadable => "body_unreadable",
        }
    }
}

impl From<&Rejection> for RequestOutcome {
    fn from(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::KeyMissing { .. } => Self::KeyMissing,
            Rejection::KeyInvalid { .. } => Self::KeyInvalid,
            Rejection::PrincipalMissing => Self::PrincipalMissing,
            Rejection::BodyTooLarge { .. } => Self::BodyTooLarge,
            Rejection::BodyUnreadable => Self::BodyUnreadable,
            Rejection::KeyReused => Self::KeyReused,
            Rejection::InProgress { .. } => Self::RequestInProgress,
            Rejection::KeyExpired(_) => Self::KeyExpired,
            Rejection::ResponseNotKept { .. } => Self::ResponseNotKept,
            Rejection::OutcomeUnknown { .. } => Self::OutcomeUnknown,
            Rejection::StoreUnavailable { .. } => Self::StoreUnavailable,
            Rejection::StoreFull { .. } => Self::StoreFull,
        }
    }
}
