//! What is known about a key, asked without a request.

use http::Method;
use jiff::Timestamp;

use super::IdempotencyLayer;
use crate::{
    key::IdempotencyKey,
    record::{Record, RecordState, ResourceId, Tombstone},
    scope::{Principal, ScopedKey},
    store::StoreError,
};

impl IdempotencyLayer {
    /// The name under which this layer keeps `key` as `principal` sends it to
    /// `endpoint` (method and original path): by the layer's secret and its
    /// policy's scope.
    pub fn scoped_key(
        &self,
        principal: &Principal,
        endpoint: (&Method, &str),
        key: &IdempotencyKey,
    ) -> ScopedKey {
        let secret = self.setup().secret.as_ref();
        ScopedKey::derive(secret, self.setup().policy.scope, principal, endpoint, key)
    }

    /// Whether a request with this key came, when, and what became of it: from
    /// the live store, else from the archive. `None` when nothing is known of
    /// it, which proves nothing once the archive's retention is over.
    ///
    /// ```
    /// use axum_idempotency::{FoundState, IdempotencyKey, IdempotencyLayer, webhook::Webhook};
    /// use http::Method;
    ///
    /// # async fn example(layer: IdempotencyLayer) -> Result<(), Box<dyn std::error::Error>> {
    /// let stripe = Webhook::stripe().principal();
    /// let event = IdempotencyKey::from_id("evt_1")?;
    /// let key = layer.scoped_key(&stripe, (&Method::POST, "/hooks/stripe"), &event);
    /// match layer.find(key).await? {
    ///     Some(found) if matches!(found.state, FoundState::Completed { .. }) => {}
    ///     _ => { /* the list of undelivered events has work for us */ }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of the store or the archive.
    pub async fn find(&self, key: ScopedKey) -> Result<Option<Found>, StoreError> {
        let setup = self.setup();
        // In this order a sweep in between hides nothing, and a lease that is
        // renewed in between has not lapsed. Of a record that is speculative
        // nothing has run, and nothing may be concluded.
        let now = setup.handle.store.now().await?;
        let live = setup.handle.store.get(key).await?;
        let live = live.filter(|record| !record.is_speculative());
        let live = live.map(|record| Found::live(record, now));
        let is_unknown = |found: &Found| found.state == FoundState::OutcomeUnknown;
        if live.as_ref().is_some_and(|found| !is_unknown(found)) {
            return Ok(live);
        }
        let Some(archive) = &setup.archive else {
            return Ok(live);
        };
        let archived = archive.lookup(key, None).await?.map(Found::archived);
        // An attempt that lapsed may have got as far as the archive.
        Ok(match (live, archived) {
            (Some(live), Some(archived)) if is_unknown(&archived) => Some(live),
            (live, archived) => archived.or(live),
        })
    }
}

/// What is known about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// How far its request has come.
    pub state: FoundState,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When its record expires, or has expired.
    pub expires_at: Timestamp,
    /// How many attempts there were, 1 for the first: of a live record. `None`
    /// where the record is archived.
    pub attempt: Option<u32>,
}

/// How far a request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundState {
    /// An attempt is running.
    InProgress,
    /// It is done.
    Completed {
        /// The status it was answered with.
        status: u16,
        /// What it made.
        resource_id: Option<ResourceId>,
    },
    /// An attempt ran, and how it ended is not known: it may have had its
    /// effect.
    OutcomeUnknown,
}

impl Found {
    fn live(record: Record, now: Timestamp) -> Self {
        let is_running = record.has_live_lease(now);
        let state = match record.state {
            RecordState::Completed(done) => FoundState::Completed {
                status: done.status,
                resource_id: done.resource_id,
            },
            RecordState::InProgress { .. } if is_running => FoundState::InProgress,
            RecordState::InProgress { .. } => FoundState::OutcomeUnknown,
        };
        Self {
            state,
            created_at: record.created_at,
            expires_at: record.expires_at,
            attempt: Some(record.attempt),
        }
    }

    fn archived(tombstone: Tombstone) -> Self {
        let state = if tombstone.has_outcome() {
            FoundState::Completed {
                status: tombstone.status,
                resource_id: tombstone.resource_id,
            }
        } else {
            FoundState::OutcomeUnknown
        };
        Self {
            state,
            created_at: tombstone.created_at,
            expires_at: tombstone.expired_at,
            attempt: None,
        }
    }
}
