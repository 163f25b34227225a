//! What is kept of a request: the live record with its answer, and the
//! tombstone that outlives it.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{fingerprint::Fingerprint, scope::ScopedKey};

/// The fencing token of one attempt: whoever holds it owns the record until
/// another attempt takes over.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken(Uuid);

impl OwnerToken {
    /// How many bytes it has.
    #[cfg(feature = "redis")]
    pub(crate) const LENGTH: usize = 16;

    /// A token that no other attempt has.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Reads back what [`OwnerToken::as_bytes`] gave.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn as_uuid(self) -> Uuid {
        self.0
    }

    /// The form in which stores keep it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({})", self.0)
    }
}

/// The id of what the request made, such as a charge: at most 255 visible
/// ASCII characters, so that no payload can hide in it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceId(Arc<str>);

impl ResourceId {
    /// Longest id, in characters.
    pub const MAX_LENGTH: usize = 255;

    /// The id, or `None` when it is empty, longer than 255 characters or
    /// holds anything but visible ASCII.
    pub fn new(id: &str) -> Option<Self> {
        let fits = (1..=Self::MAX_LENGTH).contains(&id.len());
        (fits && id.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(id.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// How an attempt ended: what a store writes when a record is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The status the handler answered with.
    pub status: u16,
    /// The id of what it made, where that could be told.
    pub resource_id: Option<ResourceId>,
    /// The answer to replay; `None` when it was not kept (too large, a
    /// stream, or a route that keeps no bodies).
    pub response: Option<KeptResponse>,
}

/// A recorded answer, ready to be sent again byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptResponse {
    /// The recorded headers in order, repeated ones included.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The whole body in its identity form.
    pub body: Bytes,
}

impl fmt::Debug for KeptResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptResponse")
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// A live record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub key: ScopedKey,
    /// The request that made it.
    pub fingerprint: Fingerprint,
    /// The attempt that owns it, or that completed it.
    pub token: OwnerToken,
    /// 1 for the first attempt, one more for every takeover.
    pub attempt: u32,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When it expires; never moved by completion.
    pub expires_at: Timestamp,
    /// How far it has come.
    pub state: RecordState,
}

/// How far a live record has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// An attempt runs, or ran and lapsed without an outcome.
    InProgress {
        /// The record belongs to its owner until then, by the store's clock.
        lease_until: Timestamp,
        /// The archive has not been asked yet whether this key is a late
        /// retry: the handler has not run, and nothing about the key may be
        /// concluded from the record.
        speculative: bool,
    },
    /// The outcome is known.
    Completed(Completion),
}

impl Record {
    /// Whether an attempt owns the record at `now`.
    pub fn has_live_lease(&self, now: Timestamp) -> bool {
        matches!(self.state, RecordState::InProgress { lease_until, .. } if lease_until > now)
    }

    /// Whether the archive had not answered yet when the row was written, so
    /// that nothing has run under it.
    pub fn is_speculative(&self) -> bool {
        matches!(
            self.state,
            RecordState::InProgress {
                speculative: true,
                ..
            }
        )
    }

    /// Whether the record is past its time at `now`. A record with a live
    /// lease never is.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now && !self.has_live_lease(now)
    }

    /// What remains of the record once it has expired.
    pub fn tombstone(&self) -> Tombstone {
        let (status, resource_id) = match &self.state {
            RecordState::InProgress { .. } => (Tombstone::UNKNOWN_OUTCOME, None),
            RecordState::Completed(done) => (done.status, done.resource_id.clone()),
        };
        Tombstone {
            key: self.key,
            fingerprint: self.fingerprint.clone(),
            status,
            resource_id,
            created_at: self.created_at,
            expired_at: self.expires_at,
        }
    }
}

/// An archived record: all that is kept for years. It has no place for a
/// request or a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Its name.
    pub key: ScopedKey,
    /// The request that made it.
    pub fingerprint: Fingerprint,
    /// The recorded status; [`Tombstone::UNKNOWN_OUTCOME`] when the request
    /// was still in flight as its record expired.
    pub status: u16,
    /// The id of what it made, where that could be told.
    pub resource_id: Option<ResourceId>,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When the live record expired.
    pub expired_at: Timestamp,
}

impl Tombstone {
    /// The status of a record that expired without an outcome: the auditor's
    /// most important rows.
    pub const UNKNOWN_OUTCOME: u16 = 0;

    /// Whether the outcome is known.
    pub fn has_outcome(&self) -> bool {
        self.status != Self::UNKNOWN_OUTCOME
    }
}

/// An expired record as a sweep sees it: what to archive, and the token that
/// tells whether the live row is still the same when it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredRecord {
    /// What to archive.
    pub tombstone: Tombstone,
    /// The attempt that owned the row when it was read.
    pub token: OwnerToken,
    /// The attempt lapsed before the archive had answered, so nothing ran: the
    /// row is removed and leaves no tombstone.
    pub speculative: bool,
}
