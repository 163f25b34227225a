//! Claims: what `lua/claim.lua` is asked and how its reply is read.

use redis::Value;

use super::{
    Shared, micros,
    row::{self, Fields},
};
use crate::{
    claim::{
        Abandoned, ArchiveLookup, Claim, ClaimOutcome, ClaimRequest, CompletedRecord, Lease,
        OPAQUE_AHEAD, REFUSED_AHEAD,
    },
    fingerprint::{Fingerprint, Judgement},
    key::KeyError,
    record::RecordState,
    scope::ScopedKey,
    store::StoreError,
};

pub(super) async fn claim(shared: &Shared, request: &ClaimRequest) -> Result<Claim, StoreError> {
    let first = ask(shared, request, false).await?;
    match &first.outcome {
        // The stored scheme is not one to recompute under: it tells nothing.
        ClaimOutcome::OtherScheme(stored)
            if compared(request).judge(stored) == Judgement::Untold =>
        {
            ask(shared, request, true).await
        }
        _ => Ok(first),
    }
}

fn compared(request: &ClaimRequest) -> &Fingerprint {
    request.recomputed.as_ref().unwrap_or(&request.fingerprint)
}

async fn ask(shared: &Shared, request: &ClaimRequest, untold: bool) -> Result<Claim, StoreError> {
    let age = &request.age;
    let key_time = age.timestamp.map(|time| time.as_microsecond().to_string());
    let replied = shared.call(&shared.scripts.claim, request.key, |call| {
        call.arg(request.token.as_bytes())
            .arg(request.fingerprint.as_bytes())
            .arg(compared(request).as_bytes())
            .arg(u8::from(untold))
            .arg(micros(request.lease))
            .arg(micros(request.ttl))
            .arg(key_time.unwrap_or_default())
            .arg(match age.lookup {
                ArchiveLookup::TimestampedKeys => "timestamped",
                ArchiveLookup::AllKeys => "all",
                ArchiveLookup::RequireTimestamped => "require",
            })
            .arg(age.lookup_after.map(micros).unwrap_or_default())
            .arg(u8::from(request.abandoned == Abandoned::Refuse))
            .arg(micros(REFUSED_AHEAD))
            .arg(micros(OPAQUE_AHEAD))
    });
    let Value::Array(reply) = replied.await? else {
        return Err(StoreError::corrupt("the reply to a claim"));
    };
    let mut reply = Fields(reply.into_iter());
    Ok(Claim {
        now: reply.time("now")?,
        outcome: outcome(request.key, &mut reply)?,
    })
}

fn outcome(key: ScopedKey, reply: &mut Fields) -> Result<ClaimOutcome, StoreError> {
    Ok(match &*reply.bytes("outcome")? {
        b"claimed" => ClaimOutcome::Claimed(Lease {
            attempt: reply.number("attempt")?,
            created_at: reply.time("created_at")?,
            expires_at: reply.time("expires_at")?,
            lease_until: reply.time("lease_until")?,
            ask_archive: reply.number::<u8>("ask_archive")? == 1,
        }),
        b"in_flight" => ClaimOutcome::InFlight {
            lease_until: reply.time("lease_until")?,
        },
        b"completed" => ClaimOutcome::Completed(Box::new(completed(key, reply)?)),
        b"mismatch" => ClaimOutcome::Mismatch,
        b"expired" => {
            let record = row::record(key, reply.next("record")?)?;
            ClaimOutcome::Expired(Box::new(record.tombstone()))
        }
        b"abandoned" => ClaimOutcome::Abandoned {
            created_at: reply.time("created_at")?,
        },
        b"other_scheme" => {
            ClaimOutcome::OtherScheme(Fingerprint::from_bytes(reply.bytes("fingerprint")?))
        }
        b"refused" => ClaimOutcome::Refused(match &*reply.bytes("reason")? {
            b"timestamp_missing" => KeyError::TimestampMissing,
            _ => KeyError::TimestampFuture,
        }),
        _ => return Err(StoreError::corrupt("the outcome of a claim")),
    })
}

fn completed(key: ScopedKey, reply: &mut Fields) -> Result<CompletedRecord, StoreError> {
    let record = row::record(key, reply.next("record")?)?;
    let RecordState::Completed(completion) = record.state else {
        return Err(StoreError::corrupt("the state of a record in Redis"));
    };
    Ok(CompletedRecord {
        fingerprint: record.fingerprint,
        created_at: record.created_at,
        expires_at: record.expires_at,
        completion,
    })
}
