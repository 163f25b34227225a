//! The time that a key carries.
//!
//! A ULID and a `UUIDv7` begin with the millisecond in which they were made, so
//! the key of a late retry tells its own age. What is read here is a claim of
//! the client's, whose clock may be wrong.
//!
//! 1. Forms, each in any case: a ULID of exactly 26 characters; a UUID
//!    (RFC 9562) hyphenated, in braces, or as `urn:uuid:`.
//! 2. Anything else is opaque. So are the 32 digits of a UUID without hyphens
//!    (one random hex token in 64 looks like a `UUIDv7`), ids with a prefix, and
//!    ids whose epoch differs by operator.
//! 3. A time before 2010 is what an uninitialised id shows, and no claim.

use std::time::Duration;

use ulid::{ULID_LEN, Ulid};
use uuid::{Uuid, Variant};

/// What kind of identifier a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// A ULID: milliseconds, then 80 random bits.
    Ulid,
    /// UUID version 1: ticks of 100 ns since 1582, low bits first.
    UuidV1,
    /// UUID version 3: the MD5 of a name.
    UuidV3,
    /// UUID version 4: random.
    UuidV4,
    /// UUID version 5: the SHA-1 of a name.
    UuidV5,
    /// UUID version 6: the ticks of version 1, high bits first.
    UuidV6,
    /// UUID version 7: milliseconds, then random bits.
    UuidV7,
    /// UUID version 8: whatever its maker put there.
    UuidV8,
    /// A UUID of another variant, or of a version that RFC 9562 leaves
    /// undefined or whose clock is cut short (version 2).
    UuidOther,
    /// The UUID with no bit set (RFC 9562 section 5.9).
    Nil,
    /// The UUID with all bits set (RFC 9562 section 5.10).
    Max,
    /// No identifier of a form known here.
    Opaque,
}

/// A key's kind, and the time in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTimestamp {
    /// The kind.
    pub kind: KeyKind,
    /// Milliseconds since 1970-01-01T00:00:00Z, rounded down, if the kind
    /// holds a time. Nothing says that it is plausible; see [`is_plausible`].
    pub unix_ms: Option<i64>,
}

/// Tells what kind of identifier `key` is. Does not allocate.
///
/// ```
/// use axum_idempotency::timestamp::{KeyKind, classify};
///
/// let ulid = classify("01ARZ3NDEKTSV4RRFFQ69G5FAV");
/// assert_eq!(ulid.kind, KeyKind::Ulid);
/// assert_eq!(ulid.unix_ms, Some(1_469_922_850_259));
/// assert_eq!(classify("order-1234").kind, KeyKind::Opaque);
/// ```
#[must_use]
pub fn classify(key: &str) -> KeyTimestamp {
    let found = match key.len() {
        ULID_LEN => of_ulid(key),
        HYPHENATED | BRACED | URN => Uuid::try_parse(key).ok().map(of_uuid),
        // The length is asked first because most keys end here, and because
        // `uuid` would also take the form without hyphens.
        _ => None,
    };
    found.unwrap_or(KeyTimestamp {
        kind: KeyKind::Opaque,
        unix_ms: None,
    })
}

/// The time at which `key` says it was made, in milliseconds since
/// 1970-01-01T00:00:00Z: that of a ULID or a `UUIDv7`, if not before
/// 2010-01-01T00:00:00Z.
///
/// How far ahead a time may lie is not judged here; that needs the store's
/// clock. The times in UUID versions 1 and 6 are not used.
#[must_use]
pub fn claimed_at_ms(key: &str) -> Option<i64> {
    let KeyTimestamp { kind, unix_ms } = classify(key);
    match kind {
        KeyKind::Ulid | KeyKind::UuidV7 => unix_ms.filter(|&time| time >= EARLIEST_MS),
        _ => None,
    }
}

/// Whether a time can be that of a real request: from 2010-01-01T00:00:00Z to
/// `ahead` past `now_ms`, both included. All times are milliseconds since
/// 1970-01-01T00:00:00Z.
#[must_use]
pub fn is_plausible(unix_ms: i64, now_ms: i64, ahead: Duration) -> bool {
    let ahead = i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX);
    (EARLIEST_MS..=now_ms.saturating_add(ahead)).contains(&unix_ms)
}

fn of_ulid(key: &str) -> Option<KeyTimestamp> {
    // 26 characters hold 130 bits. `ulid` drops the two that are too many,
    // and would give an overflowing text the time of another.
    if !matches!(key.as_bytes().first(), Some(b'0'..=b'7')) {
        return None;
    }
    let ulid = Ulid::from_string(key).ok()?;
    Some(KeyTimestamp {
        kind: KeyKind::Ulid,
        unix_ms: i64::try_from(ulid.timestamp_ms()).ok(),
    })
}

fn of_uuid(uuid: Uuid) -> KeyTimestamp {
    let (kind, unix_ms) = match (uuid.get_variant(), uuid.get_version_num()) {
        _ if uuid.is_nil() => (KeyKind::Nil, None),
        _ if uuid.is_max() => (KeyKind::Max, None),
        // `Uuid::get_timestamp` looks at the version alone; in another
        // variant those bits mean something else.
        (Variant::RFC4122, 1) => (KeyKind::UuidV1, Some(gregorian_ms(ticks_of_v1(uuid)))),
        (Variant::RFC4122, 3) => (KeyKind::UuidV3, None),
        (Variant::RFC4122, 4) => (KeyKind::UuidV4, None),
        (Variant::RFC4122, 5) => (KeyKind::UuidV5, None),
        (Variant::RFC4122, 6) => (KeyKind::UuidV6, Some(gregorian_ms(ticks_of_v6(uuid)))),
        (Variant::RFC4122, 7) => (
            KeyKind::UuidV7,
            i64::try_from(uuid.as_u64_pair().0 >> 16).ok(),
        ),
        (Variant::RFC4122, 8) => (KeyKind::UuidV8, None),
        _ => (KeyKind::UuidOther, None),
    };
    KeyTimestamp { kind, unix_ms }
}

/// `time_low`, `time_mid`, `time_high` (RFC 9562 section 5.1).
fn ticks_of_v1(uuid: Uuid) -> i64 {
    let (low, mid, version_and_high, _) = uuid.as_fields();
    i64::from(version_and_high & 0x0fff) << 48 | i64::from(mid) << 32 | i64::from(low)
}

/// `time_high`, `time_mid`, `time_low` (RFC 9562 section 5.6).
fn ticks_of_v6(uuid: Uuid) -> i64 {
    let (high, mid, version_and_low, _) = uuid.as_fields();
    i64::from(high) << 28 | i64::from(mid) << 12 | i64::from(version_and_low & 0x0fff)
}

/// Ticks are 60 bits, so that they can be signed; the time may lie before
/// 1970, where the `uuid` crate would wrap around.
fn gregorian_ms(ticks: i64) -> i64 {
    (ticks - UNIX_EPOCH_TICKS).div_euclid(TICKS_PER_MS)
}

const HYPHENATED: usize = 36;
const BRACED: usize = 38;
const URN: usize = 45;

/// 2010-01-01T00:00:00Z in milliseconds.
const EARLIEST_MS: i64 = 1_262_304_000_000;

/// Ticks of 100 ns from 1582-10-15 to 1970-01-01 (RFC 9562 section 5.1).
const UNIX_EPOCH_TICKS: i64 = 0x01B2_1DD2_1381_4000;
const TICKS_PER_MS: i64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ulid_or_a_uuidv7_claims_a_time() {
        assert_eq!(
            claimed_at_ms("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            Some(1_469_922_850_259)
        );
        assert_eq!(
            claimed_at_ms("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
            Some(1_645_557_742_000)
        );
        for other in [
            "C232AB00-9414-11EC-B3C8-9F6BDECED846",
            "1EC9414C-232A-6B00-B3C8-9F6BDECED846",
            "919108f7-52d1-4320-9bac-f847db4148a8",
            "00000000-0000-0000-0000-000000000000",
            "order-1234",
        ] {
            assert_eq!(claimed_at_ms(other), None, "{other}");
        }
    }

    #[test]
    fn an_uninitialised_id_claims_no_time_and_one_of_2010_does() {
        assert_eq!(claimed_at_ms("00000000000000000000000000"), None);
        assert_eq!(claimed_at_ms("0125e72e-77ff-7a2e-9b5e-3d1f0a4c7b21"), None);
        assert_eq!(
            claimed_at_ms("0125e72e-7800-7a2e-9b5e-3d1f0a4c7b21"),
            Some(EARLIEST_MS)
        );
    }

    #[test]
    fn a_time_far_ahead_is_claimed_and_left_to_the_caller_to_judge() {
        let last = claimed_at_ms("7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        assert_eq!(last, Some((1 << 48) - 1));
        assert!(!is_plausible((1 << 48) - 1, EARLIEST_MS, Duration::ZERO));
        assert!(is_plausible(i64::MAX, i64::MAX, Duration::MAX));
    }

    #[test]
    fn names_of_a_urn_may_be_in_any_case() {
        let urn = classify("URN:UUID:017F22E2-79B0-7CC3-98C4-DC0C0C07398F");
        assert_eq!(urn.kind, KeyKind::UuidV7);
        assert_eq!(
            classify("00000000-0000-0000-0000-000000000000").kind,
            KeyKind::Nil
        );
    }
}
