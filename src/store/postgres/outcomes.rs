//! What an attempt tells of its record: outcome, release, renewal.

use std::collections::HashMap;

use sqlx::{
    PgConnection,
    postgres::{PgRow, types::PgInterval},
};
use uuid::Uuid;

use super::{
    claims::interval,
    database::Database,
    error::Failure,
    lane::{Call, Grouped, Reply},
    row,
};
use crate::{
    record::{Completion, OwnerToken, ResourceId},
    scope::ScopedKey,
    store::{Fenced, Renewal, Renewed, StoreError, codec::encode_headers},
};

/// How the attempt ended.
pub(super) struct Complete {
    pub(super) key: ScopedKey,
    pub(super) token: OwnerToken,
    pub(super) completion: Completion,
}

impl Complete {
    /// About how many bytes it adds to a statement.
    pub(super) fn weight(&self) -> usize {
        let response = self.completion.response.as_ref();
        response.map_or(0, |response| response.body.len())
    }
}

impl Grouped for Complete {
    const WHAT: &'static str = "completing a record";
    const STATEMENT: &'static str = "complete";

    type Answer = Fenced;

    fn key(&self) -> ScopedKey {
        self.key
    }

    async fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<Reply<Fenced>>, Failure> {
        let completions = || batch.iter().map(|call| &call.operation.completion);
        let responses = || completions().map(|one| one.response.as_ref());
        let statuses = completions().map(|one| row::status_code(one.status));
        let statuses: Vec<i16> = statuses.collect::<Result<_, _>>()?;
        let resources: Vec<Option<&str>> = completions()
            .map(|one| one.resource_id.as_ref().map(ResourceId::as_str))
            .collect();
        let headers: Vec<Option<Vec<u8>>> = responses()
            .map(|one| one.map(|kept| encode_headers(&kept.headers)))
            .collect();
        let bodies: Vec<Option<&[u8]>> = responses()
            .map(|one| one.map(|kept| &kept.body[..]))
            .collect();
        let (keys, tokens) = owners(
            batch
                .iter()
                .map(|call| (call.operation.key, call.operation.token)),
        );
        let done = db
            .query(&db.sql.complete)
            .bind(&keys)
            .bind(&tokens)
            .bind(statuses)
            .bind(resources)
            .bind(headers)
            .bind(bodies)
            .bind(db.test_time())
            .fetch_all(&mut *conn)
            .await?;
        let done = by_key(&done, |_| Ok(()))?;
        let fates = fates_unless_all(done.len(), &keys, &tokens, db, conn).await?;
        Ok(replies(batch, |key| {
            match (done.get(&key), fates.get(&key)) {
                (Some(()), _) | (_, Some(Fate::Completed)) => Reply::Answer(Ok(Fenced::Owner)),
                (_, Some(Fate::InProgress)) => Reply::AskAgain,
                (_, Some(Fate::Expired) | None) => Reply::Answer(Ok(Fenced::Stale)),
            }
        }))
    }
}

/// Nothing was done under the claim.
pub(super) struct Release {
    pub(super) key: ScopedKey,
    pub(super) token: OwnerToken,
}

impl Grouped for Release {
    const WHAT: &'static str = "releasing a claim";
    const STATEMENT: &'static str = "release";

    type Answer = Fenced;

    fn key(&self) -> ScopedKey {
        self.key
    }

    async fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<Reply<Fenced>>, Failure> {
        let (keys, tokens) = owners(
            batch
                .iter()
                .map(|call| (call.operation.key, call.operation.token)),
        );
        let released = Database::query_once(&db.sql.release)
            .bind(&keys)
            .bind(&tokens)
            .bind(db.test_time())
            .fetch_all(&mut *conn)
            .await?;
        let released = by_key(&released, |_| Ok(()))?;
        let fates = fates_unless_all(released.len(), &keys, &tokens, db, conn).await?;
        Ok(replies(batch, |key| {
            match (released.get(&key), fates.get(&key)) {
                (Some(()), _) => Reply::Answer(Ok(Fenced::Owner)),
                (None, Some(Fate::InProgress | Fate::Expired)) => Reply::AskAgain,
                (None, Some(Fate::Completed) | None) => Reply::Answer(Ok(Fenced::Stale)),
            }
        }))
    }
}

impl Grouped for Renewal {
    const WHAT: &'static str = "renewing leases";
    const STATEMENT: &'static str = "renew";

    type Answer = Renewed;

    fn key(&self) -> ScopedKey {
        self.key
    }

    async fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> Result<Vec<Reply<Renewed>>, Failure> {
        let renewals = || batch.iter().map(|call| &call.operation);
        let leases: Vec<PgInterval> = renewals().map(|one| interval(one.lease)).collect();
        let confirmed: Vec<bool> = renewals().map(|one| one.confirmed).collect();
        let (keys, tokens) = owners(renewals().map(|one| (one.key, one.token)));
        let renewed = db
            .query(&db.sql.renew)
            .bind(&keys)
            .bind(&tokens)
            .bind(leases)
            .bind(confirmed)
            .bind(db.test_time())
            .fetch_all(&mut *conn)
            .await?;
        let renewed = by_key(&renewed, |row| row::time(row, "lease_until"))?;
        let fates = fates_unless_all(renewed.len(), &keys, &tokens, db, conn).await?;
        let reply = |call: &Call<Self>| {
            let key = call.operation.key;
            Reply::Answer(Ok(match (renewed.get(&key), fates.get(&key)) {
                (Some(&until), _) => Renewed::Until(until),
                // Soon it may be free.
                (None, Some(Fate::InProgress)) if call.asked < MOST_TRIES => {
                    return Reply::AskAgain;
                }
                (None, Some(Fate::InProgress)) => Renewed::Locked,
                (None, _) => Renewed::Lost,
            }))
        };
        Ok(batch.iter().map(reply).collect())
    }
}

fn replies<O: Grouped>(
    batch: &[Call<O>],
    reply: impl Fn(ScopedKey) -> Reply<O::Answer>,
) -> Vec<Reply<O::Answer>> {
    batch
        .iter()
        .map(|call| reply(call.operation.key()))
        .collect()
}

fn owners(pairs: impl Iterator<Item = (ScopedKey, OwnerToken)>) -> (Vec<String>, Vec<Uuid>) {
    pairs
        .map(|(key, token)| (key.to_string(), token.as_uuid()))
        .unzip()
}

fn by_key<T>(
    rows: &[PgRow],
    value: impl Fn(&PgRow) -> Result<T, StoreError>,
) -> Result<HashMap<ScopedKey, T>, StoreError> {
    let pairs = rows.iter().map(|row| Ok((row::key(row)?, value(row)?)));
    pairs.collect()
}

/// What is left of a row that a token's call did not write.
enum Fate {
    Completed,
    Expired,
    /// The token owns it: somebody holds it locked, or did just now.
    InProgress,
}

/// What became of the rows, unless all of them were written.
async fn fates_unless_all(
    written: usize,
    keys: &[String],
    tokens: &[Uuid],
    db: &Database,
    conn: &mut PgConnection,
) -> Result<HashMap<ScopedKey, Fate>, Failure> {
    if written == keys.len() {
        return Ok(HashMap::new());
    }
    let rows = db
        .query(&db.sql.fate)
        .bind(keys)
        .bind(tokens)
        .bind(db.test_time())
        .fetch_all(conn)
        .await?;
    let fate = |row: &PgRow| {
        if row::column(row, "is_completed")? {
            Ok(Fate::Completed)
        } else if row::column(row, "is_expired")? {
            Ok(Fate::Expired)
        } else {
            Ok(Fate::InProgress)
        }
    };
    Ok(by_key(&rows, fate)?)
}

/// How often a locked row is asked for before its lease is left as it is.
const MOST_TRIES: u32 = 2;
