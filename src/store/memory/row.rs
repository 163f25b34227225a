//! A record as this store keeps it: times as microseconds, and all that was
//! answered in one exact allocation.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::{HeaderName, HeaderValue};

use crate::{
    clock::from_micros,
    fingerprint::Fingerprint,
    inspect::{LiveRecord, LiveState},
    record::{
        Completion, ExpiredRecord, KeptResponse, OwnerToken, Record, RecordState, ResourceId,
        Tombstone,
    },
    scope::ScopedKey,
    store::StoreError,
};

/// Microseconds since 1970, as the store's clock tells them.
pub(super) type Micros = i64;

#[derive(Debug)]
pub(super) struct Row {
    fingerprint: KeptFingerprint,
    pub(super) token: OwnerToken,
    pub(super) created_at: Micros,
    pub(super) expires_at: Micros,
    pub(super) attempt: u32,
    pub(super) state: RowState,
}

#[derive(Debug)]
pub(super) enum RowState {
    InProgress {
        lease_until: Micros,
        speculative: bool,
    },
    Completed {
        done: PackedCompletion,
        completed_at: Micros,
    },
}

impl Row {
    /// The row of a record that is written now.
    pub(super) fn written(record: Record, now: Micros) -> Self {
        Self {
            fingerprint: record.fingerprint.into(),
            token: record.token,
            created_at: record.created_at.as_microsecond(),
            expires_at: record.expires_at.as_microsecond(),
            attempt: record.attempt,
            state: match record.state {
                RecordState::InProgress {
                    lease_until,
                    speculative,
                } => RowState::InProgress {
                    lease_until: lease_until.as_microsecond(),
                    speculative,
                },
                RecordState::Completed(completion) => RowState::Completed {
                    done: PackedCompletion::pack(&completion),
                    completed_at: now,
                },
            },
        }
    }

    pub(super) fn has_live_lease(&self, now: Micros) -> bool {
        matches!(self.state, RowState::InProgress { lease_until, .. } if lease_until > now)
    }

    pub(super) fn is_expired(&self, now: Micros) -> bool {
        self.expires_at <= now && !self.has_live_lease(now)
    }

    pub(super) fn is_speculative(&self) -> bool {
        let RowState::InProgress { speculative, .. } = self.state else {
            return false;
        };
        speculative
    }

    /// Whether the row is what a sweep read earlier.
    pub(super) fn is_still(&self, read: &ExpiredRecord) -> bool {
        let status = match &self.state {
            RowState::InProgress { .. } => Tombstone::UNKNOWN_OUTCOME,
            RowState::Completed { done, .. } => done.status,
        };
        self.token == read.token
            && self.expires_at == read.tombstone.expired_at.as_microsecond()
            && status == read.tombstone.status
    }

    /// How many bytes of bodies and headers the row holds.
    pub(super) fn kept_bytes(&self) -> usize {
        match &self.state {
            RowState::InProgress { .. } => 0,
            RowState::Completed { done, .. } => done.kept_bytes(),
        }
    }

    pub(super) fn packed(&self) -> Option<&PackedCompletion> {
        match &self.state {
            RowState::InProgress { .. } => None,
            RowState::Completed { done, .. } => Some(done),
        }
    }

    /// Takes the answer away and keeps the rest. How many bytes that frees;
    /// `None` when there is no answer.
    pub(super) fn erase_response(&mut self) -> Option<usize> {
        match &mut self.state {
            RowState::Completed { done, .. } if done.has_response => {
                let before = done.kept_bytes();
                *done = done.without_response();
                Some(before - done.kept_bytes())
            }
            _ => None,
        }
    }

    /// The record as an operator sees it.
    pub(super) fn live(&self, key: ScopedKey) -> LiveRecord {
        let state = match &self.state {
            RowState::InProgress {
                lease_until,
                speculative,
            } => LiveState::InProgress {
                lease_until: from_micros(*lease_until),
                speculative: *speculative,
            },
            RowState::Completed { done, completed_at } => LiveState::Completed {
                completed_at: Some(from_micros(*completed_at)),
                status: done.status,
                resource_id: done.outline().resource_id,
                kept_bytes: done.response_bytes(),
            },
        };
        LiveRecord::new(
            key,
            self.attempt,
            from_micros(self.created_at),
            from_micros(self.expires_at),
            state,
        )
    }

    /// The record without its response, which nothing is decided by: cheap
    /// enough to make under the shard's lock.
    pub(super) fn outline(&self, key: ScopedKey) -> Record {
        Record {
            key,
            fingerprint: self.fingerprint.get(),
            token: self.token,
            attempt: self.attempt,
            created_at: from_micros(self.created_at),
            expires_at: from_micros(self.expires_at),
            state: match &self.state {
                RowState::InProgress {
                    lease_until,
                    speculative,
                } => RecordState::InProgress {
                    lease_until: from_micros(*lease_until),
                    speculative: *speculative,
                },
                RowState::Completed { done, .. } => RecordState::Completed(done.outline()),
            },
        }
    }
}

/// A fingerprint, in place where it has the usual length.
#[derive(Debug)]
enum KeptFingerprint {
    Usual([u8; USUAL_FINGERPRINT]),
    Other(Fingerprint),
}

impl KeptFingerprint {
    fn get(&self) -> Fingerprint {
        match self {
            Self::Usual(bytes) => Fingerprint::from_bytes(*bytes),
            Self::Other(fingerprint) => fingerprint.clone(),
        }
    }
}

impl From<Fingerprint> for KeptFingerprint {
    fn from(fingerprint: Fingerprint) -> Self {
        match fingerprint.as_bytes().try_into() {
            Ok(bytes) => Self::Usual(bytes),
            Err(_) => Self::Other(fingerprint),
        }
    }
}

/// A completion in one allocation that no larger buffer hides behind: the
/// resource id, then `name NUL value NUL` for each header, a NUL, and the body.
/// No header can hold a NUL.
#[derive(Clone, Debug)]
pub(super) struct PackedCompletion {
    bytes: Arc<[u8]>,
    status: u16,
    /// At most [`ResourceId::MAX_LENGTH`], which is 255.
    id_length: u8,
    has_response: bool,
}

impl PackedCompletion {
    pub(super) fn pack(completion: &Completion) -> Self {
        let id = completion
            .resource_id
            .as_ref()
            .map_or("", ResourceId::as_str);
        let mut length = 0;
        for_each_part(id, completion.response.as_ref(), |part| {
            length += part.len();
        });
        let mut bytes = Vec::with_capacity(length);
        for_each_part(id, completion.response.as_ref(), |part| {
            bytes.extend_from_slice(part);
        });
        Self {
            bytes: bytes.into(),
            status: completion.status,
            id_length: u8::try_from(id.len()).unwrap_or(u8::MAX),
            has_response: completion.response.is_some(),
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes the response takes up, if there is one.
    fn response_bytes(&self) -> Option<u64> {
        let bytes = self.bytes.len() - usize::from(self.id_length);
        self.has_response.then_some(bytes as u64)
    }

    fn without_response(&self) -> Self {
        Self {
            bytes: self.bytes[..usize::from(self.id_length)].into(),
            status: self.status,
            id_length: self.id_length,
            has_response: false,
        }
    }

    /// The completion without its response.
    fn outline(&self) -> Completion {
        let id = str::from_utf8(&self.bytes[..usize::from(self.id_length)]);
        Completion {
            status: self.status,
            resource_id: id.ok().and_then(ResourceId::new),
            response: None,
        }
    }

    /// The response, whose parts share this allocation.
    pub(super) fn response(&self) -> Result<Option<KeptResponse>, StoreError> {
        if !self.has_response {
            return Ok(None);
        }
        let mut rest = Bytes::from_owner(self.bytes.clone());
        rest.advance(usize::from(self.id_length));
        let mut headers = Vec::new();
        loop {
            let name = take_until_nul(&mut rest)?;
            if name.is_empty() {
                return Ok(Some(KeptResponse {
                    headers,
                    body: rest,
                }));
            }
            let name = HeaderName::from_bytes(&name).map_err(|_| bad_header())?;
            let value = take_until_nul(&mut rest)?;
            let value = HeaderValue::from_maybe_shared(value).map_err(|_| bad_header())?;
            headers.push((name, value));
        }
    }
}

fn for_each_part(id: &str, response: Option<&KeptResponse>, mut take: impl FnMut(&[u8])) {
    take(id.as_bytes());
    if let Some(response) = response {
        for (name, value) in &response.headers {
            take(name.as_str().as_bytes());
            take(NUL);
            take(value.as_bytes());
            take(NUL);
        }
        take(NUL);
        take(&response.body);
    }
}

fn take_until_nul(rest: &mut Bytes) -> Result<Bytes, StoreError> {
    let end = rest.iter().position(|&byte| byte == NUL[0]);
    let part = rest.split_to(end.ok_or_else(bad_header)?);
    rest.advance(NUL.len());
    Ok(part)
}

fn bad_header() -> StoreError {
    StoreError::corrupt("a kept header")
}

const NUL: &[u8] = &[0];

/// One byte of scheme and a SHA-256.
const USUAL_FINGERPRINT: usize = 33;
