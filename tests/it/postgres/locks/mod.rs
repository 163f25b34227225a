//! A record that somebody's transaction holds locked delays no other one, for
//! as long as that takes.

use std::iter;

use axum_idempotency::ScopedKey;

use super::{
    Fixture, LEASE, Raw, claim, completion, fingerprint, in_time, key, leased, promptly, request,
};

mod claims;
mod doubt;
mod leases;
mod owners;

/// How a user's transaction holds a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hold {
    Locked,
    Updated,
    Deleted,
}

impl Hold {
    const ALL: [Self; 3] = [Self::Locked, Self::Updated, Self::Deleted];

    /// In a transaction that is under way when this returns.
    async fn on(self, fixture: &Fixture, key: ScopedKey) -> Raw {
        let mut raw = fixture.raw().await;
        raw.run("BEGIN").await;
        let of_key = format!("idempotency_keys WHERE scoped_key = '{key}'");
        let held = match self {
            Self::Locked => format!("SELECT FROM {of_key} FOR UPDATE"),
            Self::Updated => {
                format!("UPDATE idempotency_keys SET attempt = attempt WHERE scoped_key = '{key}'")
            }
            Self::Deleted => format!("DELETE FROM {of_key}"),
        };
        assert_eq!(raw.run(&held).await, 1, "nothing to hold: {held}");
        raw
    }
}

/// A record that nobody else can see yet, in a transaction that is under way
/// when this returns. Its lease is an hour, its fingerprint another one.
async fn hide(fixture: &Fixture, key: ScopedKey) -> Raw {
    let mut raw = fixture.raw().await;
    raw.run("BEGIN").await;
    raw.run(&format!(
        "INSERT INTO idempotency_keys (scoped_key, fingerprint, token, attempt, created_at, \
         expires_at, lease_until, speculative) VALUES ('{key}', '\\x10{}', gen_random_uuid(), 1, \
         now(), now() + interval '1 day', now() + interval '1 hour', false)",
        "02".repeat(32)
    ))
    .await;
    raw
}

/// Keys that nobody has claimed, with `odd` in the middle of them.
fn around(odd: ScopedKey) -> Vec<ScopedKey> {
    let fresh = |range: std::ops::Range<usize>| range.map(|n| key(1_000 + n));
    fresh(0..20)
        .chain(iter::once(odd))
        .chain(fresh(20..40))
        .collect()
}
