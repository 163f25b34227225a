//! The key for the next service down the line.

use sha2::{Digest as _, Sha256};
use ulid::Ulid;
use uuid::Uuid;

use crate::{
    key::IdempotencyKey,
    scope::{ScopedKey, frame_into},
    timestamp,
};

/// The key that [`Idempotency::derive`](super::Idempotency::derive) documents.
pub(super) fn key(
    scoped_key: ScopedKey,
    client_key: &IdempotencyKey,
    name: &str,
) -> IdempotencyKey {
    let mut hash = Sha256::new();
    let scoped_key = scoped_key.to_string();
    for part in [VERSION.as_bytes(), scoped_key.as_bytes(), name.as_bytes()] {
        frame_into(part, |bytes| hash.update(bytes));
    }
    let digest: [u8; 32] = hash.finalize().into();
    let made_at =
        timestamp::claimed_at_ms(client_key.as_str()).and_then(|ms| u64::try_from(ms).ok());
    let leading = leading(&digest);
    let text = if let Some(ms) = made_at {
        Ulid::from_parts(ms, leading >> (128 - Ulid::RAND_BITS)).to_string()
    } else {
        Uuid::new_v8(leading.to_be_bytes()).to_string()
    };
    IdempotencyKey::made(text)
}

fn leading(digest: &[u8; 32]) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(bytes)
}

const VERSION: &str = "axum-idempotency:derive:v1";

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::scope::{Principal, Scope};

    fn derived(client_key: &str, name: &str) -> String {
        let client_key = IdempotencyKey::new(client_key).expect("a usable key");
        let principal = Principal::new("acct_1");
        let endpoint = (&Method::POST, "/v1/charges");
        let scoped = ScopedKey::derive(None, Scope::Principal, &principal, endpoint, &client_key);
        key(scoped, &client_key, name).as_str().to_owned()
    }

    #[test]
    fn a_derived_key_never_changes() {
        // What a service has sent to another must be sent again by all later
        // versions.
        for (client_key, name, expected) in [
            ("order-1", "stripe", "67fcf2cf-5e7b-8a86-973f-f00c5d272fe2"),
            ("order-1", "ledger", "c6a7b4b6-7fcf-8aca-8c16-2803023b7a70"),
            (
                "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "stripe",
                "01ARZ3NDEK6H2CXBXSZTE51BME",
            ),
            (
                "01890a5d-ac96-774b-bcce-b302099a8057",
                "stripe",
                "01H455VB4PRX9HW9A1VTCBE430",
            ),
        ] {
            assert_eq!(derived(client_key, name), expected, "{client_key}, {name}");
        }
    }

    #[test]
    fn a_derived_key_keeps_the_time_of_the_clients_key() {
        for client_key in [
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01890a5d-ac96-774b-bcce-b302099a8057",
        ] {
            let made_at = timestamp::claimed_at_ms(client_key);
            assert!(made_at.is_some());
            assert_eq!(
                timestamp::claimed_at_ms(&derived(client_key, "psp")),
                made_at
            );
        }
        assert_eq!(timestamp::claimed_at_ms(&derived("order-1", "psp")), None);
    }

    #[test]
    fn another_name_or_another_key_derives_another_key() {
        let keys = [
            derived("order-1", "a"),
            derived("order-1", "b"),
            derived("order-1", ""),
            derived("order-2", "a"),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
