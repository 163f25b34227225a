//! A part of the records under one lock. Every method is one step of the
//! store's contract, judged at the `now` that was read under that lock.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound::{Excluded, Unbounded},
};

use super::{
    room::Room,
    row::{Micros, PackedCompletion, Row, RowState},
};
use crate::{
    claim::{ClaimOutcome, ClaimRequest, Decision, decide},
    clock::{after, from_micros},
    inspect::LiveRecord,
    record::{ExpiredRecord, OwnerToken, Record},
    scope::ScopedKey,
    store::{Fenced, Renewal, Renewed},
};

/// Sorts by age: the time of expiry, then the key.
pub(super) type Expiry = (Micros, ScopedKey);

#[derive(Debug, Default)]
pub(super) struct Shard {
    rows: HashMap<ScopedKey, Box<Row>>,
    /// One entry for every row, so that a sweep goes from the oldest on.
    by_expiry: BTreeSet<Expiry>,
}

/// The store has no room for another record.
#[derive(Debug)]
pub(super) struct NoRoom;

impl Shard {
    /// Judges a claim. A completed record is answered without its response,
    /// which comes packed beside it.
    pub(super) fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Micros,
        room: &Room,
    ) -> Result<(ClaimOutcome, Option<PackedCompletion>), NoRoom> {
        let stored = self.rows.get(&request.key);
        let outline = stored.map(|row| row.outline(request.key));
        match decide(request, outline.as_ref(), from_micros(now)) {
            Decision::Write(record, lease) => {
                // Only a row more needs room: one that is replaced makes its own.
                if stored.is_none() && !room.admit() {
                    return Err(NoRoom);
                }
                self.write(*record, now, room);
                Ok((ClaimOutcome::Claimed(lease), None))
            }
            Decision::Answer(outcome) => {
                let packed = match outcome {
                    ClaimOutcome::Completed(_) => stored.and_then(|row| row.packed().cloned()),
                    _ => None,
                };
                Ok((outcome, packed))
            }
        }
    }

    pub(super) fn complete(
        &mut self,
        key: &ScopedKey,
        token: OwnerToken,
        done: PackedCompletion,
        now: Micros,
        room: &Room,
    ) -> Fenced {
        match self.owned(key, token) {
            Some(row) if row.packed().is_some() => Fenced::Owner,
            Some(row) if !row.is_expired(now) => {
                room.keep(done.kept_bytes());
                row.state = RowState::Completed {
                    done,
                    completed_at: now,
                };
                Fenced::Owner
            }
            _ => Fenced::Stale,
        }
    }

    pub(super) fn release(
        &mut self,
        key: &ScopedKey,
        token: OwnerToken,
        now: Micros,
        room: &Room,
    ) -> Fenced {
        match self.owned(key, token) {
            Some(row) if row.packed().is_some() => Fenced::Stale,
            Some(row) if row.attempt == 1 => {
                self.discard(key, room);
                Fenced::Owner
            }
            Some(row) => {
                row.token = OwnerToken::random();
                row.state = RowState::InProgress {
                    lease_until: now,
                    speculative: false,
                };
                Fenced::Owner
            }
            None => Fenced::Stale,
        }
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Micros) -> Renewed {
        let Some(row) = self.owned(&renewal.key, renewal.token) else {
            return Renewed::Lost;
        };
        if row.is_expired(now) {
            return Renewed::Lost;
        }
        let RowState::InProgress {
            lease_until,
            speculative,
        } = &mut row.state
        else {
            return Renewed::Lost;
        };
        let until = after(from_micros(now), renewal.lease);
        *lease_until = until.as_microsecond();
        *speculative &= !renewal.confirmed;
        Renewed::Until(until)
    }

    /// The record without its response, which comes packed beside it.
    pub(super) fn get(&self, key: ScopedKey) -> Option<(Record, Option<PackedCompletion>)> {
        let row = self.rows.get(&key)?;
        Some((row.outline(key), row.packed().cloned()))
    }

    pub(super) fn amend(
        &mut self,
        key: &ScopedKey,
        done: PackedCompletion,
        now: Micros,
        room: &Room,
    ) -> bool {
        let Some(row) = self.rows.get_mut(key) else {
            return false;
        };
        let ran_and_lapsed =
            row.packed().is_none() && !row.has_live_lease(now) && !row.is_speculative();
        if ran_and_lapsed {
            room.keep(done.kept_bytes());
            row.token = OwnerToken::random();
            row.state = RowState::Completed {
                done,
                completed_at: now,
            };
        }
        ran_and_lapsed
    }

    /// Looks at up to [`LOOK`] rows past their time, from the oldest on, that
    /// are younger than `from` and older than `until`: those that are expired,
    /// and where to go on, if anywhere.
    pub(super) fn oldest_expired(
        &self,
        from: Option<Expiry>,
        until: Option<Expiry>,
        now: Micros,
    ) -> (Vec<Expiry>, Option<Expiry>) {
        let is_past =
            |expiry: &&Expiry| expiry.0 <= now && until.is_none_or(|until| **expiry < until);
        let from = from.map_or(Unbounded, Excluded);
        let past = self
            .by_expiry
            .range((from, Unbounded))
            .take_while(is_past)
            .take(LOOK);
        let (mut expired, mut looked_at, mut last) = (Vec::new(), 0, None);
        for expiry in past {
            looked_at += 1;
            last = Some(*expiry);
            let row = self.rows.get(&expiry.1);
            if row.is_some_and(|row| row.is_expired(now)) {
                expired.push(*expiry);
            }
        }
        (expired, last.filter(|_| looked_at == LOOK))
    }

    /// Shows up to [`LOOK`] rows that expire after `from`, and tells where to go
    /// on, if anywhere.
    pub(super) fn look(
        &self,
        from: Option<Expiry>,
        mut at: impl FnMut(ScopedKey, &Row),
    ) -> Option<Expiry> {
        let from = from.map_or(Unbounded, Excluded);
        let (mut looked_at, mut last) = (0, None);
        for expiry in self.by_expiry.range((from, Unbounded)).take(LOOK) {
            looked_at += 1;
            last = Some(*expiry);
            if let Some(row) = self.rows.get(&expiry.1) {
                at(expiry.1, row);
            }
        }
        last.filter(|_| looked_at == LOOK)
    }

    pub(super) fn live(&self, key: ScopedKey) -> Option<LiveRecord> {
        Some(self.rows.get(&key)?.live(key))
    }

    /// Takes the answer of a completed record away. False when it has none.
    pub(super) fn erase_response(&mut self, key: &ScopedKey, room: &Room) -> bool {
        let erased = self.rows.get_mut(key).and_then(|row| row.erase_response());
        if let Some(bytes) = erased {
            room.drop_kept(bytes);
        }
        erased.is_some()
    }

    /// The row as a sweep sees it, if it is expired.
    pub(super) fn expired(&self, key: ScopedKey, now: Micros) -> Option<ExpiredRecord> {
        let row = self.rows.get(&key).filter(|row| row.is_expired(now))?;
        Some(ExpiredRecord {
            tombstone: row.outline(key).tombstone(),
            token: row.token,
            speculative: row.is_speculative(),
        })
    }

    /// Removes the row if it is expired and still the one that was read.
    pub(super) fn remove(&mut self, read: &ExpiredRecord, now: Micros, room: &Room) -> bool {
        let key = &read.tombstone.key;
        let row = self.rows.get(key);
        let same = row.is_some_and(|row| row.is_expired(now) && row.is_still(read));
        same && self.discard(key, room)
    }

    /// Removes the row if it is expired, whatever became of it.
    pub(super) fn evict(&mut self, key: &ScopedKey, now: Micros, room: &Room) {
        if self.rows.get(key).is_some_and(|row| row.is_expired(now)) {
            self.discard(key, room);
        }
    }

    /// The row, if the token claimed or completed it.
    fn owned(&mut self, key: &ScopedKey, token: OwnerToken) -> Option<&mut Row> {
        let row = self.rows.get_mut(key).filter(|row| row.token == token)?;
        Some(row)
    }

    /// Writes a row for which there is room, in place of whatever is there.
    fn write(&mut self, record: Record, now: Micros, room: &Room) {
        let key = record.key;
        let row = Row::written(record, now);
        self.by_expiry.insert((row.expires_at, key));
        let new_expiry = row.expires_at;
        room.keep(row.kept_bytes());
        if let Some(old) = self.rows.insert(key, Box::new(row)) {
            room.drop_kept(old.kept_bytes());
            if old.expires_at != new_expiry {
                self.by_expiry.remove(&(old.expires_at, key));
            }
        }
    }

    fn discard(&mut self, key: &ScopedKey, room: &Room) -> bool {
        let Some(row) = self.rows.remove(key) else {
            return false;
        };
        self.by_expiry.remove(&(row.expires_at, *key));
        room.drop_kept(row.kept_bytes());
        room.leave();
        true
    }
}

/// How many rows are looked at before the lock is let go of.
const LOOK: usize = 128;
