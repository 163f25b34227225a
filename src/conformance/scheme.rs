//! Fingerprints of different making: a deploy that changes the options accuses
//! nobody.

use super::{Fixture, support::*};
use crate::{
    claim::ClaimRequest,
    fingerprint::{Fingerprint, FingerprintOptions},
};

/// A retry of the request with this body by a process that hashes otherwise.
fn redeployed(first: &ClaimRequest, body: &'static str) -> ClaimRequest {
    ClaimRequest {
        fingerprint: fingerprint(&FingerprintOptions::canonical_json(), body),
        ..retry_of(first)
    }
}

/// The same, hashed under the stored scheme as it was asked to.
fn recomputed(first: &ClaimRequest, body: &'static str) -> ClaimRequest {
    ClaimRequest {
        recomputed: Some(fingerprint(&FingerprintOptions::raw(), body)),
        ..redeployed(first, body)
    }
}

pub(super) async fn a_record_of_another_scheme_asks_for_its_own(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for (name, is_completed) in [("in flight", false), ("completed", true)] {
        let first = request(name);
        if is_completed {
            run(store, &first, 201).await;
        } else {
            claim(store, &first).await.claimed("the first claim");
        }
        let before = record(store, first.key).await;
        let retry = redeployed(&first, "4500 gbp");
        let stored = claim(store, &retry)
            .await
            .other_scheme("a retry under another scheme");
        same(
            &stored.as_bytes(),
            &first.fingerprint.as_bytes(),
            "the stored fingerprint",
        );
        same(&record(store, first.key).await, &before, "the record");
    }
}

pub(super) async fn a_recomputed_fingerprint_is_compared(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    let retry = recomputed(&first, "4500 gbp");
    claim(store, &retry)
        .await
        .in_flight("the same request, recomputed, in flight");
    let reuse = recomputed(&first, "9900 gbp");
    claim(store, &reuse)
        .await
        .mismatch("a reuse, recomputed, in flight");

    let second = request("l");
    run(store, &second, 201).await;
    let retry = recomputed(&second, "4500 gbp");
    claim(store, &retry)
        .await
        .completed("the same request, recomputed");
    let reuse = recomputed(&second, "9900 gbp");
    claim(store, &reuse).await.mismatch("a reuse, recomputed");
}

pub(super) async fn a_takeover_writes_its_own_scheme(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let retry = redeployed(&first, "4500 gbp");
    claim(store, &retry)
        .await
        .other_scheme("a takeover under another scheme");
    let retry = recomputed(&first, "4500 gbp");
    let lease = claim(store, &retry)
        .await
        .claimed("the takeover, recomputed");
    same(&lease.attempt, &2, "the attempt");
    let found = record(store, first.key).await;
    same(
        &found.fingerprint.as_bytes(),
        &retry.fingerprint.as_bytes(),
        "the fingerprint",
    );
}

pub(super) async fn an_expired_record_asks_for_no_scheme(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    run(store, &first, 201).await;
    fixture.advance(TTL).await;
    let retry = redeployed(&first, "4500 gbp");
    claim(store, &retry)
        .await
        .expired("a late retry under another scheme");
}

pub(super) async fn an_unconfirmed_claim_asks_for_no_scheme(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    let retry = redeployed(&first, "4500 gbp");
    claim(store, &retry)
        .await
        .in_flight("a retry before the archive has answered");
}

pub(super) async fn a_scheme_of_a_later_version_accuses_nobody(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let unknown = ClaimRequest {
        fingerprint: Fingerprint::from_bytes([0xf7; 48]),
        ..request("k")
    };
    run(store, &unknown, 201).await;
    let found = record(store, unknown.key).await;
    same(
        &found.fingerprint.as_bytes(),
        &unknown.fingerprint.as_bytes(),
        "the fingerprint",
    );
    claim(store, &retry_of(&request("k")))
        .await
        .completed("a retry that cannot compare");
}

pub(super) async fn another_version_of_a_custom_function_counts_as_equal(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let custom = |version, tag: u8| {
        let options = FingerprintOptions::custom(version, move |_| vec![tag]);
        fingerprint(&options, "4500 gbp")
    };
    let first = ClaimRequest {
        fingerprint: custom(1, b'a'),
        ..request("k")
    };
    run(store, &first, 201).await;
    let with = |fingerprint| ClaimRequest {
        fingerprint,
        ..retry_of(&first)
    };
    claim(store, &with(custom(2, b'b')))
        .await
        .completed("a retry of another version");
    claim(store, &with(custom(1, b'b')))
        .await
        .mismatch("a reuse of the same version");
}

pub(super) async fn a_long_fingerprint_is_kept_whole(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let names = (0..40).map(|n| format!("x-covered-{n}").parse().expect("a header name"));
    let options = FingerprintOptions::raw().with_headers(names);
    let first = ClaimRequest {
        fingerprint: fingerprint(&options, "4500 gbp"),
        ..request("k")
    };
    run(store, &first, 201).await;
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(
        &found.fingerprint.as_bytes(),
        &first.fingerprint.as_bytes(),
        "the fingerprint",
    );
}
