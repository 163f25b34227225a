//! What an attempt asks of its record.

use jiff::Timestamp;
use sqlx::{Sqlite, SqliteConnection, query, query::Query, sqlite::SqliteArguments};

use super::{error::Failure, row, writer::Operation};
use crate::{
    claim::{Claim, ClaimOutcome, ClaimRequest, Decision, decide},
    clock::after,
    record::{Completion, OwnerToken, Record, RecordState},
    scope::ScopedKey,
    store::{Fenced, Renewal, Renewed, StoreError, codec::encode_headers},
};

impl Operation for ClaimRequest {
    const WHAT: &'static str = "claiming a key";
    type Answer = Claim;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<Claim, Failure> {
        let claim = |outcome| Ok(Claim { now, outcome });
        // Most keys are new, and one statement is enough for them.
        match decide(self, None, now) {
            Decision::Answer(outcome) => return claim(outcome),
            Decision::Write(record, lease) => {
                if written(conn, include_str!("sql/claim_insert.sql"), &record).await? {
                    return claim(ClaimOutcome::Claimed(lease));
                }
            }
        }
        let stored = record_on_conn(conn, self.key).await?;
        match decide(self, stored.as_ref(), now) {
            Decision::Answer(outcome) => claim(outcome),
            Decision::Write(record, lease) => {
                if written(conn, include_str!("sql/claim_replace.sql"), &record).await? {
                    claim(ClaimOutcome::Claimed(lease))
                } else {
                    // Only a trigger can have taken the row out of the way.
                    let why = "the database takes no row of this key";
                    Err(StoreError::unavailable(Self::WHAT, why).into())
                }
            }
        }
    }
}

/// Whether `sql` wrote the record, which is in progress.
async fn written(
    conn: &mut SqliteConnection,
    sql: &'static str,
    record: &Record,
) -> Result<bool, sqlx::Error> {
    let (lease_until, speculative) = match record.state {
        RecordState::InProgress {
            lease_until,
            speculative,
        } => (Some(lease_until.as_microsecond()), speculative),
        RecordState::Completed(_) => (None, false),
    };
    let done = query(sql)
        .bind(record.key.to_string())
        .bind(record.fingerprint.as_bytes())
        .bind(&record.token.as_bytes()[..])
        .bind(record.attempt)
        .bind(record.created_at.as_microsecond())
        .bind(record.expires_at.as_microsecond())
        .bind(lease_until)
        .bind(speculative)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

async fn record_on_conn(
    conn: &mut SqliteConnection,
    key: ScopedKey,
) -> Result<Option<Record>, Failure> {
    let found = query(include_str!("sql/get.sql"))
        .bind(key.to_string())
        .fetch_optional(conn)
        .await?;
    Ok(found.map(|row| row::record(key, &row)).transpose()?)
}

#[derive(Debug)]
pub(super) struct Complete {
    pub(super) key: ScopedKey,
    pub(super) token: OwnerToken,
    pub(super) completion: Completion,
}

impl Operation for Complete {
    const WHAT: &'static str = "completing a record";
    type Answer = Fenced;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<Fenced, Failure> {
        let key = self.key.to_string();
        let complete = query(include_str!("sql/complete.sql"))
            .bind(&key)
            .bind(&self.token.as_bytes()[..]);
        let done = bind_completion(complete, &self.completion)
            .bind(now.as_microsecond())
            .execute(&mut *conn)
            .await?;
        if done.rows_affected() == 1 {
            return Ok(Fenced::Owner);
        }
        let completed = query(include_str!("sql/is_completed_by.sql"))
            .bind(&key)
            .bind(&self.token.as_bytes()[..])
            .fetch_optional(conn)
            .await?;
        Ok(fenced(completed.is_some()))
    }
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Status, resource id, headers and body.
fn bind_completion<'q>(statement: Bound<'q>, completion: &Completion) -> Bound<'q> {
    let response = completion.response.as_ref();
    statement
        .bind(completion.status)
        .bind(
            completion
                .resource_id
                .as_ref()
                .map(|id| id.as_str().to_owned()),
        )
        .bind(response.map(|kept| encode_headers(&kept.headers)))
        .bind(response.map(|kept| kept.body.to_vec()))
}

#[derive(Debug)]
pub(super) struct Release {
    pub(super) key: ScopedKey,
    pub(super) token: OwnerToken,
}

impl Operation for Release {
    const WHAT: &'static str = "releasing a claim";
    type Answer = Fenced;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<Fenced, Failure> {
        let key = self.key.to_string();
        let first = query(include_str!("sql/release_first.sql"))
            .bind(&key)
            .bind(&self.token.as_bytes()[..])
            .execute(&mut *conn)
            .await?;
        if first.rows_affected() == 1 {
            return Ok(Fenced::Owner);
        }
        let later = query(include_str!("sql/release_later.sql"))
            .bind(&key)
            .bind(&self.token.as_bytes()[..])
            .bind(now.as_microsecond())
            .execute(conn)
            .await?;
        Ok(fenced(later.rows_affected() == 1))
    }
}

fn fenced(is_owner: bool) -> Fenced {
    if is_owner {
        Fenced::Owner
    } else {
        Fenced::Stale
    }
}

#[derive(Debug)]
pub(super) struct Renew(pub(super) Vec<Renewal>);

impl Operation for Renew {
    const WHAT: &'static str = "renewing leases";
    type Answer = Vec<Renewed>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        now: Timestamp,
    ) -> Result<Vec<Renewed>, Failure> {
        let mut answers = Vec::with_capacity(self.0.len());
        for renewal in &self.0 {
            let until = after(now, renewal.lease);
            let done = query(include_str!("sql/renew.sql"))
                .bind(renewal.key.to_string())
                .bind(&renewal.token.as_bytes()[..])
                .bind(until.as_microsecond())
                .bind(now.as_microsecond())
                .bind(renewal.confirmed)
                .execute(&mut *conn)
                .await?;
            answers.push(match done.rows_affected() {
                1 => Renewed::Until(until),
                _ => Renewed::Lost,
            });
        }
        Ok(answers)
    }
}

#[derive(Debug)]
pub(super) struct Amend {
    pub(super) key: ScopedKey,
    pub(super) completion: Completion,
}

impl Operation for Amend {
    const WHAT: &'static str = "amending a record";
    type Answer = bool;

    async fn run(&self, conn: &mut SqliteConnection, now: Timestamp) -> Result<bool, Failure> {
        let amend = query(include_str!("sql/amend.sql")).bind(self.key.to_string());
        let done = bind_completion(amend, &self.completion)
            .bind(now.as_microsecond())
            .execute(conn)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

#[derive(Debug)]
pub(super) struct Get(pub(super) ScopedKey);

impl Operation for Get {
    const WHAT: &'static str = "reading a record";
    type Answer = Option<Record>;

    async fn run(
        &self,
        conn: &mut SqliteConnection,
        _now: Timestamp,
    ) -> Result<Option<Record>, Failure> {
        record_on_conn(conn, self.0).await
    }
}
