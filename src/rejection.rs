//! The situations in which the client gets no answer from a handler.

use http::StatusCode;
use jiff::Timestamp;

use crate::{key::KeyError, record::ResourceId};

/// Why a request was not answered by its handler or by a replay. A
/// [render hook](crate::IdempotencyLayerBuilder::render) gets it to make a
/// response of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// The policy requires a key and the request has none.
    KeyMissing {
        /// Where it would have been, such as the name of a header.
        source: String,
    },
    /// The request has a key that cannot be used.
    KeyInvalid {
        /// What is wrong with it.
        reason: KeyError,
    },
    /// The request has no principal.
    PrincipalMissing,
    /// The request body is over the policy's limit.
    BodyTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The request body ended in an error before it was complete.
    BodyUnreadable,
    /// The key belongs to another request.
    KeyReused,
    /// The first request with the key is still running.
    InProgress {
        /// When to try again, in seconds.
        retry_after: u64,
    },
    /// The key's record has expired: this is a late retry.
    KeyExpired(Box<LateRetry>),
    /// The request ran, and its response was not kept.
    ResponseNotKept {
        /// The status it was answered with.
        original_status: u16,
        /// What it made.
        resource_id: Option<ResourceId>,
        /// When the key was first claimed.
        created_at: Timestamp,
    },
    /// An attempt ran, and how it ended is not known.
    OutcomeUnknown {
        /// When the key was first claimed.
        created_at: Option<Timestamp>,
    },
    /// The store or the archive cannot be reached. Nothing ran.
    StoreUnavailable {
        /// When to try again, in seconds.
        retry_after: u64,
    },
    /// The store has no room for another key. Nothing ran.
    StoreFull {
        /// When to try again, in seconds.
        retry_after: u64,
    },
}

/// What is still known about the request that a late retry repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateRetry {
    /// The status to answer with, from the policy.
    pub answer_status: StatusCode,
    /// The recorded status; `None` when no outcome was recorded.
    pub original_status: Option<u16>,
    /// What the request made.
    pub resource_id: Option<ResourceId>,
    /// When the key was first claimed; `None` when the archive no longer
    /// reaches back that far.
    pub created_at: Option<Timestamp>,
    /// When the record expired.
    pub expired_at: Option<Timestamp>,
    /// Whether this request is the one that was recorded; `None` when that
    /// cannot be told.
    pub same_request: Option<bool>,
}

impl LateRetry {
    /// The key is older than the archive reaches back: nothing is known.
    pub(crate) fn unjudged(answer_status: StatusCode) -> Self {
        Self {
            answer_status,
            original_status: None,
            resource_id: None,
            created_at: None,
            expired_at: None,
            same_request: None,
        }
    }
}

/// What the client may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Mend the request; it cannot succeed as it is.
    Fix,
    /// Repeat it with the same key after a while.
    SameKeyLater,
    /// Send it under a key of its own.
    NewKey,
    /// Look up what happened before doing anything else.
    Reconcile,
}

impl Retry {
    /// The word in the problem document's `retry` member.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fix => "fix",
            Self::SameKeyLater => "same-key-later",
            Self::NewKey => "new-key",
            Self::Reconcile => "reconcile",
        }
    }
}

impl Rejection {
    pub(crate) fn key(error: KeyError, source: String) -> Self {
        match error {
            KeyError::Missing => Self::KeyMissing { source },
            reason => Self::KeyInvalid { reason },
        }
    }

    /// The stable, machine-readable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::KeyMissing { .. } => "idempotency_key_missing",
            Self::KeyInvalid { .. } => "idempotency_key_invalid",
            Self::PrincipalMissing => "idempotency_principal_missing",
            Self::BodyTooLarge { .. } => "idempotency_body_too_large",
            Self::BodyUnreadable => "idempotency_body_unreadable",
            Self::KeyReused => "idempotency_key_reused",
            Self::InProgress { .. } => "idempotency_request_in_progress",
            Self::KeyExpired(_) => "idempotency_key_expired",
            Self::ResponseNotKept { .. } => "idempotency_response_not_kept",
            Self::OutcomeUnknown { .. } => "idempotency_outcome_unknown",
            Self::StoreUnavailable { .. } => "idempotency_store_unavailable",
            Self::StoreFull { .. } => "idempotency_store_full",
        }
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing { .. } | Self::KeyInvalid { .. } | Self::BodyUnreadable => {
                StatusCode::BAD_REQUEST
            }
            Self::PrincipalMissing => StatusCode::UNAUTHORIZED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InProgress { .. }
            | Self::ResponseNotKept { .. }
            | Self::OutcomeUnknown { .. } => StatusCode::CONFLICT,
            Self::KeyExpired(late) => late.answer_status,
            Self::StoreUnavailable { .. } | Self::StoreFull { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// What the client may do next.
    pub fn retry(&self) -> Retry {
        match self {
            Self::KeyMissing { .. }
            | Self::KeyInvalid { .. }
            | Self::PrincipalMissing
            | Self::BodyTooLarge { .. }
            | Self::BodyUnreadable => Retry::Fix,
            Self::KeyReused => Retry::NewKey,
            Self::InProgress { .. } | Self::StoreUnavailable { .. } | Self::StoreFull { .. } => {
                Retry::SameKeyLater
            }
            Self::KeyExpired(_) | Self::ResponseNotKept { .. } | Self::OutcomeUnknown { .. } => {
                Retry::Reconcile
            }
        }
    }

    /// Seconds for a `Retry-After` header, where waiting helps.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::InProgress { retry_after }
            | Self::StoreUnavailable { retry_after }
            | Self::StoreFull { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// A short summary that is the same for every occurrence.
    pub fn title(&self) -> &'static str {
        match self {
            Self::KeyMissing { .. } => "An idempotency key is required",
            Self::KeyInvalid { .. } => "The idempotency key cannot be used",
            Self::PrincipalMissing => "The caller is not authenticated",
            Self::BodyTooLarge { .. } => "The request body is too large",
            Self::BodyUnreadable => "The request body could not be read",
            Self::KeyReused => "The idempotency key belongs to another request",
            Self::InProgress { .. } => "The first request with this key is still running",
            Self::KeyExpired(_) => "The idempotency key has expired",
            Self::ResponseNotKept { .. } => "The request ran, but its response was not kept",
            Self::OutcomeUnknown { .. } => "The outcome of the first request is not known",
            Self::StoreUnavailable { .. } => "The idempotency store cannot be reached",
            Self::StoreFull { .. } => "The idempotency store is full",
        }
    }

    /// What happened and what to do, for a person who reads it.
    pub fn detail(&self) -> String {
        match self {
            Self::KeyMissing { source } => {
                format!("Send a unique key in {source}, and the same one when you retry.")
            }
            Self::KeyInvalid { reason } => format!("{reason} Nothing was executed."),
            Self::PrincipalMissing => {
                "Keys belong to a caller, and this request does not say who is calling. Nothing was executed.".to_owned()
            }
            Self::BodyTooLarge { limit } => {
                format!("The body may have at most {limit} bytes. Nothing was executed.")
            }
            Self::BodyUnreadable => {
                "The body ended before it was complete. Nothing was executed.".to_owned()
            }
            Self::KeyReused => {
                "The key was first sent with another method, path, query or body. Send this request under a new key. Nothing was executed.".to_owned()
            }
            Self::InProgress { .. } => {
                "Retry with the same key and body to get the first answer. Nothing was executed again.".to_owned()
            }
            Self::KeyExpired(_) => {
                "The key was used before, and its response is no longer kept. Look up what it made before sending the operation under a new key. Nothing was executed again.".to_owned()
            }
            Self::ResponseNotKept { .. } => {
                "The first request was executed. Look up what it made. Nothing was executed again.".to_owned()
            }
            Self::OutcomeUnknown { .. } => {
                "An attempt was made and its outcome was not recorded: it may have taken effect. Look up what it made before trying again.".to_owned()
            }
            Self::StoreUnavailable { .. } | Self::StoreFull { .. } => {
                "Nothing was executed. Retry with the same key.".to_owned()
            }
        }
    }
}
