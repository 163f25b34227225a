//! Rows as records.
//!
//! What a claim is judged by has to be readable, or the row is
//! [corrupt](StoreErrorKind::Corrupt). A response that cannot be read counts as
//! one that was not kept.

use jiff::Timestamp;
use sqlx::{Decode, Row as _, Sqlite, Type, sqlite::SqliteRow};

use crate::{
    fingerprint::Fingerprint,
    inspect::{LiveRecord, LiveState},
    record::{
        Completion, ExpiredRecord, KeptResponse, OwnerToken, Record, RecordState, ResourceId,
        Tombstone,
    },
    scope::ScopedKey,
    store::{
        StoreError,
        codec::{stored_resource_id, stored_response, unreadable_response},
    },
};

#[cfg(doc)]
use crate::store::StoreErrorKind;

pub(super) fn record(key: ScopedKey, row: &SqliteRow) -> Result<Record, StoreError> {
    let state = match optional::<i64>(row, "status_code")? {
        Some(status) => RecordState::Completed(Completion {
            status: u16::try_from(status).map_err(|_| StoreError::corrupt("status_code"))?,
            resource_id: resource_id(key, row),
            response: response(key, row),
        }),
        None => RecordState::InProgress {
            lease_until: time(row, "lease_until")?,
            speculative: column::<i64>(row, "speculative")? != 0,
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
pub(super) fn live(row: &SqliteRow) -> Result<LiveRecord, StoreError> {
    let key = key(row)?;
    let state = match optional::<i64>(row, "status_code")? {
        Some(status) => LiveState::Completed {
            completed_at: optional_time(row, "completed_at")?,
            status: u16::try_from(status).map_err(|_| StoreError::corrupt("status_code"))?,
            resource_id: resource_id(key, row),
            kept_bytes: optional::<i64>(row, "kept_bytes")?.map(i64::unsigned_abs),
        },
        None => LiveState::InProgress {
            lease_until: time(row, "lease_until")?,
            speculative: column::<i64>(row, "speculative")? != 0,
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

pub(super) fn expired(row: &SqliteRow) -> Result<ExpiredRecord, StoreError> {
    Ok(ExpiredRecord {
        tombstone: tombstone_of(row)?,
        token: token(row)?,
        speculative: column::<i64>(row, "speculative")? != 0,
    })
}

/// A row that tells its own name.
pub(crate) fn tombstone_of(row: &SqliteRow) -> Result<Tombstone, StoreError> {
    tombstone(key(row)?, row)
}

pub(crate) fn tombstone(key: ScopedKey, row: &SqliteRow) -> Result<Tombstone, StoreError> {
    Ok(Tombstone {
        key,
        fingerprint: fingerprint(row)?,
        status: u16::try_from(column::<i64>(row, "status_code")?)
            .map_err(|_| StoreError::corrupt("status_code"))?,
        resource_id: resource_id(key, row),
        created_at: time(row, "created_at")?,
        expired_at: time(row, "expired_at")?,
    })
}

fn key(row: &SqliteRow) -> Result<ScopedKey, StoreError> {
    let key: &str = column(row, "scoped_key")?;
    key.parse().map_err(|_| StoreError::corrupt("scoped_key"))
}

fn attempt(row: &SqliteRow) -> Result<u32, StoreError> {
    let attempt = column::<i64>(row, "attempt")?;
    u32::try_from(attempt).map_err(|_| StoreError::corrupt("attempt"))
}

/// How many rows were counted.
pub(super) fn count(row: &SqliteRow, name: &'static str) -> Result<u64, StoreError> {
    column::<i64>(row, name).map(i64::unsigned_abs)
}

fn fingerprint(row: &SqliteRow) -> Result<Fingerprint, StoreError> {
    match column::<&[u8]>(row, "fingerprint")? {
        [] => Err(StoreError::corrupt("fingerprint")),
        bytes => Ok(Fingerprint::from_bytes(bytes)),
    }
}

fn token(row: &SqliteRow) -> Result<OwnerToken, StoreError> {
    column::<&[u8]>(row, "token")?
        .try_into()
        .map(OwnerToken::from_bytes)
        .map_err(|_| StoreError::corrupt("token"))
}

pub(super) fn time(row: &SqliteRow, name: &'static str) -> Result<Timestamp, StoreError> {
    optional_time(row, name)?.ok_or_else(|| StoreError::corrupt(name))
}

pub(super) fn optional_time(
    row: &SqliteRow,
    name: &'static str,
) -> Result<Option<Timestamp>, StoreError> {
    let micros = optional(row, name)?.map(Timestamp::from_microsecond);
    micros.transpose().map_err(|_| StoreError::corrupt(name))
}

fn resource_id(key: ScopedKey, row: &SqliteRow) -> Option<ResourceId> {
    // Text of another kind is as unreadable as text that is no id.
    let stored = optional::<&str>(row, "resource_id").unwrap_or(Some(""));
    stored_resource_id(key, stored)
}

fn response(key: ScopedKey, row: &SqliteRow) -> Option<KeptResponse> {
    let headers = optional::<Vec<u8>>(row, "headers");
    let stored = headers.and_then(|headers| Ok((headers, optional::<Vec<u8>>(row, "body")?)));
    match stored {
        Ok((headers, body)) => stored_response(key, headers, body),
        Err(error) => {
            unreadable_response(key, &error.to_string());
            None
        }
    }
}

/// A column that holds a value; decoded by itself, NULL would be read as zero.
fn column<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<T, StoreError>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
{
    optional(row, name)?.ok_or_else(|| StoreError::corrupt(name))
}

fn optional<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<Option<T>, StoreError>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
{
    row.try_get(name).map_err(|_| StoreError::corrupt(name))
}
