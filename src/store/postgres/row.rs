//! Rows as records.
//!
//! What a claim is judged by has to be readable, or the row is
//! [corrupt](StoreErrorKind::Corrupt).

use jiff::Timestamp;
use sqlx::{Decode, Postgres, Row as _, Type, postgres::PgRow};
use uuid::Uuid;

use super::time::Time;
use crate::{
    fingerprint::Fingerprint,
    inspect::{LiveRecord, LiveState},
    record::{Completion, ExpiredRecord, OwnerToken, Record, RecordState, Tombstone},
    scope::ScopedKey,
    store::{
        StoreError,
        codec::{stored_resource_id, stored_response},
    },
};

#[cfg(doc)]
use crate::store::StoreErrorKind;

pub(super) fn key(row: &PgRow) -> Result<ScopedKey, StoreError> {
    let key: &str = column(row, "scoped_key")?;
    key.parse().map_err(|_| StoreError::corrupt("scoped_key"))
}

pub(super) fn record(key: ScopedKey, row: &PgRow) -> Result<Record, StoreError> {
    let state = match optional::<i16>(row, "status_code")? {
        Some(status) => RecordState::Completed(Completion {
            status: u16::try_from(status).map_err(|_| StoreError::corrupt("status_code"))?,
            resource_id: stored_resource_id(key, optional(row, "resource_id")?),
            response: stored_response(key, optional(row, "headers")?, optional(row, "body")?),
        }),
        None => RecordState::InProgress {
            lease_until: time(row, "lease_until")?,
            speculative: column(row, "speculative")?,
        },
    };
    Ok(Record {
        key,
        fingerprint: fingerprint(row)?,
        token: token(row)?,
        attempt: attempt(row)?,
        created_at: time(row, "created_at")?,
        expires_at: time(row, "expires_at")?,
        state,
    })
}

/// The record as an operator sees it.
pub(super) fn live(row: &PgRow) -> Result<LiveRecord, StoreError> {
    let key = key(row)?;
    let state = match optional::<i16>(row, "status_code")? {
        Some(status) => LiveState::Completed {
            completed_at: optional_time(row, "completed_at")?,
            status: u16::try_from(status).map_err(|_| StoreError::corrupt("status_code"))?,
            resource_id: stored_resource_id(key, optional(row, "resource_id")?),
            kept_bytes: optional::<i64>(row, "kept_bytes")?.map(i64::unsigned_abs),
        },
        None => LiveState::InProgress {
            lease_until: time(row, "lease_until")?,
            speculative: column(row, "speculative")?,
        },
    };
    Ok(LiveRecord::new(
        key,
        attempt(row)?,
        time(row, "created_at")?,
        time(row, "expires_at")?,
        state,
    ))
}

pub(super) fn expired(row: &PgRow) -> Result<ExpiredRecord, StoreError> {
    Ok(ExpiredRecord {
        tombstone: tombstone_of(row)?,
        token: token(row)?,
        speculative: column(row, "speculative")?,
    })
}

/// A row that tells its own name.
pub(crate) fn tombstone_of(row: &PgRow) -> Result<Tombstone, StoreError> {
    tombstone(key(row)?, row)
}

pub(crate) fn tombstone(key: ScopedKey, row: &PgRow) -> Result<Tombstone, StoreError> {
    Ok(Tombstone {
        key,
        fingerprint: fingerprint(row)?,
        status: u16::try_from(column::<i16>(row, "status_code")?)
            .map_err(|_| StoreError::corrupt("status_code"))?,
        resource_id: stored_resource_id(key, optional(row, "resource_id")?),
        created_at: time(row, "created_at")?,
        expired_at: time(row, "expired_at")?,
    })
}

/// A status as its column holds it.
pub(crate) fn status_code(status: u16) -> Result<i16, StoreError> {
    i16::try_from(status).map_err(|_| StoreError::corrupt("status_code"))
}

fn attempt(row: &PgRow) -> Result<u32, StoreError> {
    let attempt = column::<i64>(row, "attempt")?;
    u32::try_from(attempt).map_err(|_| StoreError::corrupt("attempt"))
}

/// How many rows were counted.
pub(super) fn count(row: &PgRow, name: &'static str) -> Result<u64, StoreError> {
    column::<i64>(row, name).map(i64::unsigned_abs)
}

fn fingerprint(row: &PgRow) -> Result<Fingerprint, StoreError> {
    match column::<&[u8]>(row, "fingerprint")? {
        [] => Err(StoreError::corrupt("fingerprint")),
        bytes => Ok(Fingerprint::from_bytes(bytes)),
    }
}

fn token(row: &PgRow) -> Result<OwnerToken, StoreError> {
    let token: Uuid = column(row, "token")?;
    Ok(OwnerToken::from_bytes(token.into_bytes()))
}

pub(super) fn time(row: &PgRow, name: &'static str) -> Result<Timestamp, StoreError> {
    column::<Time>(row, name).map(|time| time.0)
}

pub(super) fn optional_time(
    row: &PgRow,
    name: &'static str,
) -> Result<Option<Timestamp>, StoreError> {
    Ok(optional::<Time>(row, name)?.map(|time| time.0))
}

pub(super) fn column<'r, T>(row: &'r PgRow, name: &'static str) -> Result<T, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    optional(row, name)?.ok_or_else(|| StoreError::corrupt(name))
}

fn optional<'r, T>(row: &'r PgRow, name: &'static str) -> Result<Option<T>, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(name).map_err(|_| StoreError::corrupt(name))
}
