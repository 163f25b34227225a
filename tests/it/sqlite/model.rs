//! The store against a model of the contract, over random histories.

use std::{collections::HashMap, time::Duration};

use axum_idempotency::{
    Clock as _, Completion, OwnerToken, Record, RecordState, ScopedKey, Tombstone,
    archive::Archive as _,
    claim::{Abandoned, ArchiveLookup, ClaimOutcome, ClaimRequest, Decision, Lease, decide},
    store::{Fenced, Renewal, Renewed, Store as _, TtlNotice, sqlite::SqliteStore},
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{Fixture, LEASE, TTL, completion, fingerprint, key, open, request};

/// What the rules say, on a map.
#[derive(Default)]
struct Model {
    live: HashMap<ScopedKey, Record>,
    archive: HashMap<(ScopedKey, Timestamp), Tombstone>,
}

impl Model {
    fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Told {
        match decide(request, self.live.get(&request.key), now) {
            Decision::Answer(outcome) => told(&outcome),
            Decision::Write(record, lease) => {
                self.live.insert(request.key, *record);
                Told::Claimed(lease)
            }
        }
    }

    /// The record in progress that the token owns.
    fn owned(&mut self, key: ScopedKey, token: OwnerToken) -> Option<&mut Record> {
        let record = self.live.get_mut(&key)?;
        let running = matches!(record.state, RecordState::InProgress { .. });
        (running && record.token == token).then_some(record)
    }

    fn complete(
        &mut self,
        key: ScopedKey,
        token: OwnerToken,
        done: Completion,
        now: Timestamp,
    ) -> Fenced {
        let completed = self.live.get(&key).is_some_and(|record| {
            record.token == token && matches!(record.state, RecordState::Completed(_))
        });
        match self.owned(key, token) {
            Some(record) if !record.is_expired(now) => {
                record.state = RecordState::Completed(done);
                Fenced::Owner
            }
            _ if completed => Fenced::Owner,
            _ => Fenced::Stale,
        }
    }

    fn release(&mut self, key: ScopedKey, token: OwnerToken, now: Timestamp) -> Fenced {
        let Some(record) = self.owned(key, token) else {
            return Fenced::Stale;
        };
        if record.attempt == 1 {
            self.live.remove(&key);
            return Fenced::Owner;
        }
        record.token = OwnerToken::random();
        if let RecordState::InProgress { lease_until, .. } = &mut record.state {
            *lease_until = now.min(*lease_until);
        }
        Fenced::Owner
    }

    fn renew(&mut self, renewal: &Renewal, now: Timestamp) -> Renewed {
        let until = now + renewal.lease;
        let Some(record) = self.owned(renewal.key, renewal.token) else {
            return Renewed::Lost;
        };
        if record.is_expired(now) {
            return Renewed::Lost;
        }
        record.state = RecordState::InProgress {
            lease_until: until,
            speculative: record.is_speculative() && !renewal.confirmed,
        };
        Renewed::Until(until)
    }

    fn amend(&mut self, key: ScopedKey, done: Completion, now: Timestamp) -> bool {
        let Some(record) = self.live.get_mut(&key) else {
            return false;
        };
        let running = matches!(record.state, RecordState::InProgress { .. });
        if !running || record.has_live_lease(now) || record.is_speculative() {
            return false;
        }
        record.state = RecordState::Completed(done);
        record.token = OwnerToken::random();
        true
    }

    fn sweep(&mut self, now: Timestamp) -> u64 {
        let before = self.live.len();
        let archive = &mut self.archive;
        self.live.retain(|_, record| {
            if !record.is_expired(now) {
                return true;
            }
            if !record.is_speculative() {
                let row = record.tombstone();
                let there = archive
                    .entry((row.key, row.expired_at))
                    .or_insert_with(|| row.clone());
                if !there.has_outcome() {
                    *there = row;
                }
            }
            false
        });
        (before - self.live.len()) as u64
    }

    fn lookup(&self, key: ScopedKey) -> Option<&Tombstone> {
        let rows = self.archive.values().filter(|row| row.key == key);
        rows.max_by_key(|row| (row.has_outcome(), row.expired_at))
    }
}

/// A claim's outcome, comparable.
#[derive(Debug, PartialEq)]
enum Told {
    Claimed(Lease),
    Other(String),
}

fn told(outcome: &ClaimOutcome) -> Told {
    match outcome {
        ClaimOutcome::Claimed(lease) => Told::Claimed(lease.clone()),
        other => Told::Other(format!("{other:?}")),
    }
}

/// Numbers that look random and are the same every time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u16) -> u16 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u16::try_from((mixed ^ (mixed >> 31)) % u64::from(end)).expect("below a u16")
    }
}

#[tokio::test]
async fn any_history_is_that_of_the_model() {
    for seed in 0..30 {
        let mut fixture = Fixture::new().await;
        if seed % 3 != 0 {
            fixture.store = open("sqlite::memory:", &fixture.clock).await;
        }
        history(&fixture, seed).await;
    }
}

async fn history(fixture: &Fixture, seed: u64) {
    let (store, archive) = (&fixture.store, fixture.store.archive());
    let mut model = Model::default();
    let mut numbers = Numbers(seed);
    let tokens: Vec<_> = (0..4).map(|_| OwnerToken::random()).collect();
    for step in 0..150 {
        let key = key(numbers.below(3));
        let token = tokens[usize::from(numbers.below(4))];
        let now = fixture.clock.now();
        let at = format!("seed {seed}, step {step}");
        let status = 200 + numbers.below(300);
        match numbers.below(11) {
            0..=3 => {
                let mut request = request(key);
                request.token = token;
                request.fingerprint = fingerprint(u8::from(numbers.below(8) == 0));
                request.age.timestamp = (numbers.below(4) == 0).then(|| {
                    now + jiff::SignedDuration::from_hours(i64::from(numbers.below(48)) - 12)
                });
                if numbers.below(3) == 0 {
                    request.age.lookup = ArchiveLookup::AllKeys;
                }
                if numbers.below(4) == 0 {
                    request.age.lookup_after = None;
                }
                if numbers.below(3) == 0 {
                    request.abandoned = Abandoned::Refuse;
                }
                let expected = model.claim(&request, now);
                let claim = store.claim(request).await.expect("an answer");
                assert_eq!((claim.now, told(&claim.outcome)), (now, expected), "{at}");
            }
            4 | 5 => {
                let expected = model.complete(key, token, completion(status), now);
                let told = store.complete(key, token, completion(status)).await;
                assert_eq!(told.expect("an answer"), expected, "{at}");
            }
            6 => {
                let expected = model.release(key, token, now);
                let told = store.release(key, token).await.expect("an answer");
                assert_eq!(told, expected, "{at}");
            }
            7 => {
                let renewals: Vec<_> = (0..3)
                    .map(|n| Renewal {
                        key: super::key(n),
                        token,
                        lease: LEASE * 2,
                        confirmed: numbers.below(2) == 0,
                    })
                    .collect();
                let expected: Vec<_> = renewals.iter().map(|one| model.renew(one, now)).collect();
                let told = store.renew(&renewals).await.expect("an answer");
                assert_eq!(told, expected, "{at}");
            }
            8 => {
                let expected = model.amend(key, completion(status), now);
                let told = store.amend(key, completion(status)).await;
                assert_eq!(told.expect("an answer"), expected, "{at}");
            }
            9 => {
                let expected = model.sweep(now);
                let told = store.sweep(Some(&archive), 100).await;
                assert_eq!(told.expect("an answer"), expected, "{at}");
            }
            _ => {
                let spans = [LEASE / 2, LEASE, TTL / 2, TTL];
                fixture.clock.advance(spans[usize::from(numbers.below(4))]);
            }
        }
        let stored = store.get(key).await.expect("an answer");
        assert_eq!(same(stored), same(model.live.get(&key).cloned()), "{at}");
        let archived = archive.lookup(key, None).await.expect("an answer");
        assert_eq!(archived.as_ref(), model.lookup(key), "{at}");
    }
}

/// A record without its token: a release and an amendment make one up.
fn same(record: Option<Record>) -> Option<(u32, Timestamp, Timestamp, RecordState)> {
    record.map(|one| (one.attempt, one.created_at, one.expires_at, one.state))
}

#[tokio::test]
async fn the_smallest_ttl_counts_until_the_largest_has_passed() {
    const HOUR: Duration = Duration::from_hours(1);
    let fixture = Fixture::new().await;
    let other = fixture.other().await;
    let publish = async |store: &SqliteStore, process: u128, smallest, largest| {
        let notice = TtlNotice {
            process: Uuid::from_u128(process),
            smallest,
            largest,
        };
        store.publish_ttl(notice).await.expect("an answer")
    };
    assert_eq!(publish(&fixture.store, 1, HOUR, 24 * HOUR).await, HOUR);
    assert_eq!(publish(&other, 2, 12 * HOUR, 12 * HOUR).await, HOUR);
    // Raised: what it published before is replaced.
    assert_eq!(
        publish(&fixture.store, 1, 12 * HOUR, 24 * HOUR).await,
        12 * HOUR
    );
    assert_eq!(publish(&fixture.store, 1, HOUR, 24 * HOUR).await, HOUR);
    // Gone, but its records may still be about, for as long as the largest TTL.
    fixture.clock.advance(24 * HOUR);
    assert_eq!(publish(&other, 2, 12 * HOUR, 12 * HOUR).await, HOUR);
    fixture.clock.advance(Duration::from_micros(1));
    assert_eq!(publish(&other, 2, 12 * HOUR, 12 * HOUR).await, 12 * HOUR);
    assert_eq!(fixture.raw().await.count("idempotency_ttls").await, 1);
}
