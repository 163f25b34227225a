//! A record as it is kept: see `lua/record.lua`, which reads and writes the same.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use jiff::Timestamp;
use redis::Value;

use crate::{
    clock::from_micros,
    fingerprint::Fingerprint,
    inspect::{LiveRecord, LiveState},
    record::{Completion, ExpiredRecord, OwnerToken, Record, RecordState, ResourceId},
    scope::ScopedKey,
    store::{
        StoreError,
        codec::{encode_headers, stored_resource_id, stored_response},
    },
};

/// The answer of a completion, as it follows the fingerprint: the resource id
/// behind its length, then, where the response is kept, the headers behind
/// theirs, and the body.
pub(super) fn answer(completion: &Completion) -> Vec<u8> {
    let id = completion
        .resource_id
        .as_ref()
        .map_or("", ResourceId::as_str);
    let mut bytes = BytesMut::new();
    // At most 255 characters.
    bytes.put_u8(u8::try_from(id.len()).unwrap_or(u8::MAX));
    bytes.put_slice(id.as_bytes());
    if let Some(response) = &completion.response {
        let headers = encode_headers(&response.headers);
        bytes.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
        bytes.put_slice(&headers);
        bytes.put_slice(&response.body);
    }
    bytes.into()
}

/// A record as a script replied with it.
pub(super) fn record(key: ScopedKey, value: Value) -> Result<Record, StoreError> {
    match value {
        Value::BulkString(bytes) => completed(key, bytes.into()),
        Value::Array(fields) => in_progress(key, fields),
        _ => Err(StoreError::corrupt("the type of a record in Redis")),
    }
}

pub(super) fn expired(record: &Record) -> ExpiredRecord {
    ExpiredRecord {
        tombstone: record.tombstone(),
        token: record.token,
        speculative: record.is_speculative(),
    }
}

/// A record as `lua/inspect.lua` replied with it, and the time by which it is to
/// be judged.
pub(super) fn live(key: ScopedKey, value: Value) -> Result<(Timestamp, LiveRecord), StoreError> {
    let Value::Array(reply) = value else {
        return Err(StoreError::corrupt("an operator's view of a record"));
    };
    let mut reply = Fields(reply.into_iter());
    let now = reply.time("now")?;
    let progress = reply.bytes("progress")?;
    let attempt = reply.number("attempt")?;
    let created_at = reply.time("created_at")?;
    let expires_at = reply.time("expires_at")?;
    let state = if progress == b"in_progress" {
        LiveState::InProgress {
            lease_until: reply.time("lease_until")?,
            speculative: reply.number::<u8>("speculative")? == 1,
        }
    } else {
        LiveState::Completed {
            completed_at: Some(reply.time("completed_at")?),
            status: reply.number("status")?,
            resource_id: {
                let id = reply.bytes("resource_id")?;
                let id = str::from_utf8(&id).ok().filter(|id| !id.is_empty());
                stored_resource_id(key, id)
            },
            kept_bytes: u64::try_from(reply.number::<i64>("kept_bytes")?).ok(),
        }
    };
    let record = LiveRecord::new(key, attempt, created_at, expires_at, state);
    Ok((now, record))
}

fn in_progress(key: ScopedKey, fields: Vec<Value>) -> Result<Record, StoreError> {
    let mut fields = Fields(fields.into_iter());
    Ok(Record {
        key,
        token: token(&fields.bytes("token")?)?,
        attempt: fields.number("attempt")?,
        created_at: from_micros(fields.number("created_at")?),
        expires_at: from_micros(fields.number("expires_at")?),
        fingerprint: fingerprint(&fields.bytes("fingerprint")?)?,
        state: RecordState::InProgress {
            lease_until: from_micros(fields.number("lease_until")?),
            speculative: fields.bytes("speculative")? == b"1",
        },
    })
}

fn completed(key: ScopedKey, mut bytes: Bytes) -> Result<Record, StoreError> {
    if bytes.len() < HEADER_LENGTH || bytes.get_u8() != VERSION {
        return Err(StoreError::corrupt("the header of a record in Redis"));
    }
    let status = bytes.get_u16();
    let attempt = bytes.get_u32();
    let created_at = from_micros(bytes.get_i64());
    let expires_at = from_micros(bytes.get_i64());
    let _completed_at = bytes.get_i64();
    let token = token(&bytes.split_to(OwnerToken::LENGTH))?;
    let length = usize::from(bytes.get_u16());
    let fingerprint = fingerprint(&part(&mut bytes, length, "fingerprint")?)?;
    let id = match bytes.try_get_u8() {
        Ok(length) => part(&mut bytes, usize::from(length), "resource_id")?,
        Err(_) => return Err(StoreError::corrupt("resource_id")),
    };
    let id = str::from_utf8(&id).ok().filter(|id| !id.is_empty());
    let (headers, body) = match bytes.try_get_u32() {
        Ok(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let headers = part(&mut bytes, length, "headers")?;
            (Some(headers.into()), Some(bytes.into()))
        }
        Err(_) => (None, None),
    };
    Ok(Record {
        key,
        fingerprint,
        token,
        attempt,
        created_at,
        expires_at,
        state: RecordState::Completed(Completion {
            status,
            resource_id: stored_resource_id(key, id),
            response: stored_response(key, headers, body),
        }),
    })
}

/// The values of a reply, one after the other.
pub(super) struct Fields(pub(super) std::vec::IntoIter<Value>);

impl Fields {
    pub(super) fn next(&mut self, name: &'static str) -> Result<Value, StoreError> {
        self.0.next().ok_or_else(|| StoreError::corrupt(name))
    }

    pub(super) fn bytes(&mut self, name: &'static str) -> Result<Vec<u8>, StoreError> {
        match self.next(name)? {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(StoreError::corrupt(name)),
        }
    }

    /// A number, also one that is kept as text.
    pub(super) fn number<T>(&mut self, name: &'static str) -> Result<T, StoreError>
    where
        T: TryFrom<i64>,
    {
        let number = match self.next(name)? {
            Value::Int(number) => Some(number),
            Value::BulkString(text) => str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok()),
            _ => None,
        };
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| StoreError::corrupt(name))
    }

    pub(super) fn time(&mut self, name: &'static str) -> Result<Timestamp, StoreError> {
        self.number(name).map(from_micros)
    }
}

fn part(bytes: &mut Bytes, length: usize, name: &'static str) -> Result<Bytes, StoreError> {
    if length > bytes.len() {
        return Err(StoreError::corrupt(name));
    }
    Ok(bytes.split_to(length))
}

fn token(bytes: &[u8]) -> Result<OwnerToken, StoreError> {
    let bytes = bytes.try_into().map_err(|_| StoreError::corrupt("token"))?;
    Ok(OwnerToken::from_bytes(bytes))
}

fn fingerprint(bytes: &[u8]) -> Result<Fingerprint, StoreError> {
    if bytes.is_empty() {
        return Err(StoreError::corrupt("fingerprint"));
    }
    Ok(Fingerprint::from_bytes(bytes))
}

const VERSION: u8 = 2;
const HEADER_LENGTH: usize = 49;
