//! Claims: what is fresh is written by the statement that looks; what has to be
//! written over is, when it is still as it was read.

use std::{collections::HashMap, sync::atomic::Ordering::Relaxed, time::Duration};

use jiff::Timestamp;
use sqlx::{
    PgConnection,
    postgres::{PgRow, types::PgInterval},
};
use uuid::Uuid;

use super::{
    database::Database,
    error::Failure,
    lane::{Call, Grouped, Reply},
    row,
    time::Time,
    upkeep::Now,
};
use crate::{
    claim::{
        ArchiveLookup, Claim, ClaimOutcome, ClaimRequest, Decision, Lease, OPAQUE_AHEAD,
        REFUSED_AHEAD, decide,
    },
    clock::after,
    record::{Record, RecordState},
    scope::ScopedKey,
    store::StoreError,
};

impl Grouped for ClaimRequest {
    const WHAT: &'static str = "claiming a key";
    const STATEMENT: &'static str = "claim";

    type Answer = Claim;

    fn key(&self) -> ScopedKey {
        self.key
    }

    async fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<Reply<Claim>>, Failure> {
        let found: HashMap<_, _> = look(batch, db, conn)
            .await?
            .into_iter()
            .map(|row| Ok((row::key(&row)?, row)))
            .collect::<Result<_, StoreError>>()?;
        let mut replies = Vec::with_capacity(batch.len());
        let mut replacements = Vec::new();
        for (place, call) in batch.iter().enumerate() {
            let request = &call.operation;
            let judged = match found.get(&request.key) {
                Some(row) => judge(request, row),
                None => Ok(Judged::Raced),
            };
            replies.push(match judged {
                Ok(Judged::Claim(claim)) => Reply::Answer(Ok(claim)),
                Ok(Judged::Raced) => Reply::AskAgain,
                Ok(Judged::Replace(replacement)) => {
                    replacements.push((place, replacement));
                    Reply::AskAgain
                }
                Err(error) => Reply::Answer(Err(error)),
            });
        }
        if !replacements.is_empty() {
            replace(batch, &replacements, &mut replies, db, conn).await?;
        }
        Ok(replies)
    }

    /// Somebody is writing the row of this key: it is in flight.
    async fn locked(&self, asked: u32, db: &Database) -> Reply<Claim> {
        if asked < MOST_TRIES / 3 {
            return Reply::AskAgain;
        }
        let claim = db.run(&Now).await.map(|now| Claim {
            now,
            outcome: ClaimOutcome::InFlight {
                lease_until: after(now, self.lease),
            },
        });
        Reply::Answer(claim)
    }
}

/// The statement that answers most claims. A row for each.
async fn look(
    batch: &[Call<ClaimRequest>],
    db: &Database,
    conn: &mut PgConnection,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let requests = || batch.iter().map(|call| &call.operation);
    let shortest = requests().map(|request| request.lease).min();
    let wait = LONGEST_WAIT.min(shortest.unwrap_or_default() / 5);
    let keys: Vec<String> = requests().map(|request| request.key.to_string()).collect();
    let fingerprints: Vec<&[u8]> = requests().map(|one| one.fingerprint.as_bytes()).collect();
    let tokens: Vec<Uuid> = requests().map(|one| one.token.as_uuid()).collect();
    let leases: Vec<PgInterval> = requests().map(|one| interval(one.lease)).collect();
    let ttls: Vec<PgInterval> = requests().map(|one| interval(one.ttl)).collect();
    let times: Vec<Option<Time>> = requests().map(|one| one.age.timestamp.map(Time)).collect();
    let lookups: Vec<Option<PgInterval>> = requests()
        .map(|one| one.age.lookup_after.map(interval))
        .collect();
    let all: Vec<bool> = requests()
        .map(|one| one.age.lookup == ArchiveLookup::AllKeys)
        .collect();
    let required: Vec<bool> = requests()
        .map(|one| one.age.lookup == ArchiveLookup::RequireTimestamped)
        .collect();
    db.query(&db.sql.claim)
        .bind(keys)
        .bind(fingerprints)
        .bind(tokens)
        .bind(leases)
        .bind(ttls)
        .bind(times)
        .bind(lookups)
        .bind(all)
        .bind(required)
        .bind(db.test_time())
        .bind(interval(REFUSED_AHEAD))
        .bind(interval(OPAQUE_AHEAD))
        .bind(format!("{}us", wait.as_micros().max(1_000)))
        .fetch_all(conn)
        .await
}

enum Judged {
    Claim(Claim),
    /// The row to write over, and what with.
    Replace(Box<Replacement>),
    /// Another claim wrote the row after this one had looked.
    Raced,
}

struct Replacement {
    now: Timestamp,
    met: Record,
    record: Record,
    lease: Lease,
}

impl Replacement {
    fn is_own(&self) -> bool {
        self.met.token == self.record.token
    }

    fn unwritten(&self) -> ClaimOutcome {
        let lease_until = lease_of(&self.met).unwrap_or(self.now);
        if self.is_own() && lease_until > self.now {
            return ClaimOutcome::Claimed(Lease {
                lease_until,
                ..self.lease.clone()
            });
        }
        ClaimOutcome::InFlight { lease_until }
    }
}

fn judge(request: &ClaimRequest, row: &PgRow) -> Result<Judged, StoreError> {
    let now = row::time(row, "now")?;
    let claim = |outcome| Ok(Judged::Claim(Claim { now, outcome }));
    if row::column(row, "is_written")? {
        return claim(ClaimOutcome::Claimed(Lease {
            attempt: 1,
            created_at: now,
            expires_at: row::time(row, "expires_at")?,
            lease_until: row::time(row, "lease_until")?,
            ask_archive: row::column(row, "speculative")?,
        }));
    }
    if let Err(refusal) = request.age.judge(now, request.ttl) {
        return claim(ClaimOutcome::Refused(refusal));
    }
    let met = row::record(request.key, row)?;
    match decide(request, Some(&met), now) {
        Decision::Answer(outcome) => claim(outcome),
        Decision::Write(record, lease) => Ok(Judged::Replace(Box::new(Replacement {
            now,
            met,
            record: *record,
            lease,
        }))),
    }
}

/// Writes over what was met. What has changed since or is locked is asked
/// again. When it still is after a while, this attempt's own record is its own
/// for as long as its lease runs, and another's is in flight.
async fn replace(
    batch: &[Call<ClaimRequest>],
    replacements: &[(usize, Box<Replacement>)],
    replies: &mut [Reply<Claim>],
    db: &Database,
    conn: &mut PgConnection,
) -> Result<(), Failure> {
    let written: HashMap<_, _> = write_over(batch, replacements, db, conn)
        .await?
        .iter()
        .map(|row| Ok((row::key(row)?, row::time(row, "lease_until")?)))
        .collect::<Result<_, StoreError>>()?;
    for (place, replacement) in replacements {
        let outcome = match written.get(&replacement.record.key) {
            Some(&lease_until) => ClaimOutcome::Claimed(Lease {
                lease_until,
                ..replacement.lease.clone()
            }),
            None if batch[*place].asked < MOST_TRIES => continue,
            // The lock may be its own, of the statement whose connection broke.
            None if batch[*place].in_doubt.load(Relaxed) && !replacement.is_own() => continue,
            None => replacement.unwritten(),
        };
        replies[*place] = Reply::Answer(Ok(Claim {
            now: replacement.now,
            outcome,
        }));
    }
    Ok(())
}

async fn write_over(
    batch: &[Call<ClaimRequest>],
    replacements: &[(usize, Box<Replacement>)],
    db: &Database,
    conn: &mut PgConnection,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let all = || replacements.iter().map(|(_, replacement)| replacement);
    let met = || all().map(|one| &one.met);
    let new = || all().map(|one| &one.record);
    let keys: Vec<String> = met().map(|one| one.key.to_string()).collect();
    let met_tokens: Vec<Uuid> = met().map(|one| one.token.as_uuid()).collect();
    let met_expiries: Vec<Time> = met().map(|one| Time(one.expires_at)).collect();
    let met_leases: Vec<Option<Time>> = met().map(|one| lease_of(one).map(Time)).collect();
    let met_speculative: Vec<bool> = met().map(Record::is_speculative).collect();
    let met_completed: Vec<bool> = met().map(|one| lease_of(one).is_none()).collect();
    let fingerprints: Vec<&[u8]> = new().map(|one| one.fingerprint.as_bytes()).collect();
    let tokens: Vec<Uuid> = new().map(|one| one.token.as_uuid()).collect();
    let attempts: Vec<i64> = new().map(|one| i64::from(one.attempt)).collect();
    let created: Vec<Time> = new().map(|one| Time(one.created_at)).collect();
    let expiries: Vec<Time> = new().map(|one| Time(one.expires_at)).collect();
    let leases: Vec<PgInterval> = replacements
        .iter()
        .map(|(place, _)| interval(batch[*place].operation.lease))
        .collect();
    let speculative: Vec<bool> = new().map(Record::is_speculative).collect();
    db.query(&db.sql.replace)
        .bind(keys)
        .bind(met_tokens)
        .bind(met_expiries)
        .bind(met_leases)
        .bind(met_speculative)
        .bind(met_completed)
        .bind(fingerprints)
        .bind(tokens)
        .bind(attempts)
        .bind(created)
        .bind(expiries)
        .bind(leases)
        .bind(speculative)
        .bind(db.test_time())
        .fetch_all(conn)
        .await
}

/// None for a completed record.
fn lease_of(record: &Record) -> Option<Timestamp> {
    match record.state {
        RecordState::InProgress { lease_until, .. } => Some(lease_until),
        RecordState::Completed(_) => None,
    }
}

/// A span as the server takes it: all of it microseconds, since its days and
/// months depend on time zones.
pub(super) fn interval(span: Duration) -> PgInterval {
    PgInterval {
        months: 0,
        days: 0,
        microseconds: i64::try_from(span.as_micros())
            .unwrap_or(i64::MAX)
            .min(LONGEST_SPAN),
    }
}

/// A thousand years, in microseconds: longer ones would leave the calendar.
const LONGEST_SPAN: i64 = 1_000 * 366 * 86_400 * 1_000_000;

/// How often it is tried to write over a row that keeps changing or is locked:
/// for about half a second, so that a commit on a slow disk is told from a lock
/// that somebody holds on to.
const MOST_TRIES: u32 = 12;

/// The longest that a claim waits for another one of its key that is just being
/// committed; less than a quarter of every lease in the batch.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
