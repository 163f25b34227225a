//! An outcome on its way to the store: where records leave by themselves, into
//! the archive first.
//!
//! Whatever happens in between, the outcome is not lost. Before the archive has
//! it, the record is in progress, and lapses like that of any crash. From then
//! on a takeover finds it there, as does whoever asks for a record that is gone.

use std::sync::Arc;

use crate::{
    archivist::Archivist,
    leases::HeldLease,
    record::{Completion, OwnerToken, Record, RecordState, Tombstone},
    scope::ScopedKey,
    store::{Fenced, Store, StoreError},
};

/// What is to be recorded, and where.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) completion: Completion,
    first: Option<ArchiveFirst>,
}

/// Where an outcome goes before it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveFirst {
    pub(crate) archivist: Arc<Archivist>,
    /// None where the answer to the claim is not known.
    pub(crate) tombstone: Option<Tombstone>,
}

impl Outcome {
    pub(crate) fn new(completion: Completion, first: Option<ArchiveFirst>) -> Self {
        Self { completion, first }
    }

    /// Tells archive and store, as the attempt of `token`. Repeating it changes
    /// nothing.
    pub(crate) async fn tell(
        &self,
        store: &dyn Store,
        key: ScopedKey,
        token: OwnerToken,
        lease: Option<&HeldLease>,
    ) -> Result<Fenced, StoreError> {
        if let Some(first) = &self.first {
            let is_owner = lease.is_some_and(|lease| !lease.is_over());
            let tombstone = match &first.tombstone {
                Some(tombstone) if is_owner => Some(tombstone.clone()),
                known => match store.get(key).await? {
                    Some(record) => self.tombstone_of(record, token),
                    // It is gone, and its outcome is worth the more.
                    None => known.clone(),
                },
            };
            if let Some(tombstone) = tombstone {
                first.archivist.add(tombstone).await?;
            }
        }
        store.complete(key, token, self.completion.clone()).await
    }

    pub(crate) fn is_archived_first(&self) -> bool {
        self.first.is_some()
    }

    /// What is left of a record in progress once it has this outcome. An attempt
    /// that has been fenced has nothing to archive.
    fn tombstone_of(&self, record: Record, token: OwnerToken) -> Option<Tombstone> {
        let is_owner = record.token == token;
        is_owner.then(|| with_outcome(record, &self.completion))?
    }
}

/// None when the record has an outcome of its own.
pub(crate) fn with_outcome(record: Record, completion: &Completion) -> Option<Tombstone> {
    let RecordState::InProgress { .. } = record.state else {
        return None;
    };
    let state = RecordState::Completed(completion.clone());
    Some(Record { state, ..record }.tombstone())
}
