//! Writes outcomes into the archive: those that arrive together in one insert.
//!
//! Where records leave the store by themselves, every fresh request waits for a
//! row in the archive, and that for a disk. A lone row goes at once; behind
//! [`UNDER_WAY`] inserts the others gather for the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::{
    archive::Archive,
    metrics,
    record::Tombstone,
    store::{StoreError, StoreErrorKind},
};

/// The way of outcomes into one archive.
#[derive(Debug)]
pub(crate) struct Archivist {
    archive: Arc<dyn Archive>,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    waiting: Vec<Row>,
    under_way: usize,
}

#[derive(Debug)]
struct Row {
    tombstone: Tombstone,
    caller: oneshot::Sender<Result<(), StoreError>>,
}

impl Archivist {
    pub(crate) fn new(archive: Arc<dyn Archive>) -> Self {
        Self {
            archive,
            desk: Mutex::default(),
        }
    }

    pub(crate) fn archive(&self) -> &Arc<dyn Archive> {
        &self.archive
    }

    /// Adds a row. It is added also when the caller does not wait.
    pub(crate) async fn add(self: &Arc<Self>, tombstone: Tombstone) -> Result<(), StoreError> {
        let (caller, answer) = oneshot::channel();
        let begins = {
            let mut desk = self.desk();
            desk.waiting.push(Row { tombstone, caller });
            let begins = desk.under_way < UNDER_WAY;
            desk.under_way += usize::from(begins);
            begins
        };
        if begins {
            let turn = Turn {
                archivist: Arc::clone(self),
                is_over: false,
            };
            tokio::spawn(turn.work_off());
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::unavailable(WHAT, "its task has ended")))
    }

    async fn insert(&self, mut rows: Vec<Row>) {
        let mut tombstones: Vec<_> = rows.iter().map(|row| row.tombstone.clone()).collect();
        // A repetition may wait beside what it repeats.
        tombstones.sort_by_key(|row| (row.key, row.expired_at));
        tombstones.dedup_by_key(|row| (row.key, row.expired_at));
        metrics::batch("archive", tombstones.len());
        match self.archive.insert(&tombstones).await {
            Ok(()) => {
                metrics::archived(tombstones.len() as u64);
                for row in rows {
                    row.answer(Ok(()));
                }
            }
            Err(error) if rows.len() == 1 => {
                if let Some(row) = rows.pop() {
                    row.answer(Err(error));
                }
            }
            // It would not be reached for each by itself either.
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {
                let why = error.causes().to_string();
                for row in rows {
                    row.answer(Err(StoreError::unavailable(WHAT, why.clone())));
                }
            }
            // One that cannot be added must not keep the others out.
            Err(_) => {
                for row in rows {
                    let alone = std::slice::from_ref(&row.tombstone);
                    let inserted = self.archive.insert(alone).await;
                    if inserted.is_ok() {
                        metrics::archived(1);
                    }
                    row.answer(inserted);
                }
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Row {
    fn answer(self, answer: Result<(), StoreError>) {
        // A caller that has gone does not want to know.
        let _ = self.caller.send(answer);
    }
}

/// One of the inserts under way. It ends also with its runtime, and with an
/// archive that panics.
struct Turn {
    archivist: Arc<Archivist>,
    is_over: bool,
}

impl Turn {
    async fn work_off(mut self) {
        while let Some(rows) = self.take() {
            self.archivist.insert(rows).await;
        }
    }

    /// None ends the turn, and the next row begins another.
    fn take(&mut self) -> Option<Vec<Row>> {
        let mut desk = self.archivist.desk();
        let count = desk.waiting.len().min(LARGEST_INSERT);
        if count == 0 {
            desk.under_way -= 1;
            self.is_over = true;
            return None;
        }
        Some(desk.waiting.drain(..count).collect())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            self.archivist.desk().under_way -= 1;
        }
    }
}

const WHAT: &str = "archiving an outcome";

/// While one waits for the disk, the next is on its way.
const UNDER_WAY: usize = 2;

const LARGEST_INSERT: usize = 256;
