//! What a claim makes of the key's own timestamp, by the store's clock.

use std::time::Duration;

use jiff::Timestamp;

use super::{Fixture, support::*};
use crate::{
    claim::{ArchiveLookup, ClaimRequest},
    key::KeyError,
};

/// A request whose key carries `timestamp`, under a layer with an archive.
fn timestamped(name: &str, timestamp: Timestamp, lookup: ArchiveLookup) -> ClaimRequest {
    let mut request = archived(name);
    request.age.timestamp = Some(timestamp);
    request.age.lookup = lookup;
    request
}

fn untimed(name: &str, lookup: ArchiveLookup) -> ClaimRequest {
    let mut request = archived(name);
    request.age.lookup = lookup;
    request
}

pub(super) async fn a_key_from_ahead_lives_as_much_longer(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let ahead = later(now(store).await, HOUR);
    let first = timestamped("k", ahead, ArchiveLookup::TimestampedKeys);
    let lease = claim(store, &first).await.claimed("a key an hour ahead");
    same(&lease.expires_at, &later(ahead, TTL), "the time of expiry");
    same(&lease.ask_archive, &false, "whether to ask the archive");
    let found = record(store, first.key).await;
    same(
        &found.expires_at,
        &later(ahead, TTL),
        "the record's time of expiry",
    );
}

pub(super) async fn a_key_from_behind_lives_from_now(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let behind = before(now(store).await, HOUR);
    let first = timestamped("k", behind, ArchiveLookup::TimestampedKeys);
    let answer = claim(store, &first).await;
    let now = answer.now;
    let lease = answer.claimed("a key an hour old");
    same(&lease.expires_at, &later(now, TTL), "the time of expiry");
}

pub(super) async fn only_an_old_timestamp_asks_the_archive(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let microsecond = Duration::from_micros(1);
    let ages = [
        Duration::ZERO,
        LOOKUP_AFTER - HOUR,
        LOOKUP_AFTER - microsecond,
        LOOKUP_AFTER,
        LOOKUP_AFTER + microsecond,
        LOOKUP_AFTER + HOUR,
        4000 * DAY,
    ];
    for (n, age) in ages.into_iter().enumerate() {
        let timestamp = before(now(store).await, age);
        let first = timestamped(&format!("k{n}"), timestamp, ArchiveLookup::TimestampedKeys);
        let answer = claim(store, &first).await;
        let is_old = answer.now > later(timestamp, LOOKUP_AFTER);
        let lease = answer.claimed("a fresh claim");
        let what = format!("whether a key of age {age:?} asks the archive");
        same(&lease.ask_archive, &is_old, &what);
        let found = record(store, first.key).await;
        same(
            &found.is_speculative(),
            &is_old,
            "whether the record is unconfirmed",
        );
    }
}

pub(super) async fn by_default_a_key_without_a_timestamp_asks_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = untimed("k", ArchiveLookup::TimestampedKeys);
    let lease = claim(store, &first).await.claimed("a fresh claim");
    same(&lease.ask_archive, &false, "whether to ask the archive");
}

pub(super) async fn all_keys_asks_unless_the_key_is_young(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let now = now(store).await;
    let asks = [
        (untimed("untimed", ArchiveLookup::AllKeys), true),
        (
            timestamped("young", before(now, HOUR), ArchiveLookup::AllKeys),
            false,
        ),
        (
            timestamped("old", before(now, 2 * TTL), ArchiveLookup::AllKeys),
            true,
        ),
    ];
    for (first, expected) in asks {
        let lease = claim(store, &first).await.claimed("a fresh claim");
        same(&lease.ask_archive, &expected, "whether to ask the archive");
        let found = record(store, first.key).await;
        same(
            &found.is_speculative(),
            &expected,
            "whether the record is unconfirmed",
        );
    }
}

pub(super) async fn where_any_record_may_be_gone_the_youngest_key_is_asked_about(
    fixture: &dyn Fixture,
) {
    let store = &*fixture.store();
    let present = now(store).await;
    for (name, timestamp) in [("present", present), ("ahead", later(present, HOUR))] {
        for (lookup, asks) in [
            (ArchiveLookup::AllKeys, true),
            (ArchiveLookup::RequireTimestamped, true),
            (ArchiveLookup::TimestampedKeys, false),
        ] {
            let mut request = timestamped(&format!("{name}-{lookup:?}"), timestamp, lookup);
            request.age.lookup_after = Some(Duration::ZERO);
            // The clock may run by itself.
            if asks || name == "ahead" {
                let lease = claim(store, &request).await.claimed("a fresh key");
                same(&lease.ask_archive, &asks, "whether to ask the archive");
            }
        }
    }
}

pub(super) async fn without_an_archive_no_key_asks(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let old = before(now(store).await, 2 * TTL);
    let mut requests = [
        untimed("untimed", ArchiveLookup::AllKeys),
        timestamped("old", old, ArchiveLookup::TimestampedKeys),
    ];
    for first in &mut requests {
        first.age.lookup_after = None;
        let lease = claim(store, first).await.claimed("a fresh claim");
        same(&lease.ask_archive, &false, "whether to ask an archive");
    }
}

pub(super) async fn a_timestamp_over_a_day_ahead_is_refused(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let now = now(store).await;
    for lookup in [
        ArchiveLookup::TimestampedKeys,
        ArchiveLookup::RequireTimestamped,
    ] {
        for ahead in [DAY + HOUR, 3650 * DAY] {
            let first = timestamped("k", later(now, ahead), lookup);
            let why = claim(store, &first).await.refused("a key from far ahead");
            same(&why, &KeyError::TimestampFuture, "the reason");
            no_record(store, first.key, "after a refusal").await;
        }
    }
    let just = timestamped("k", later(now, DAY), ArchiveLookup::TimestampedKeys);
    claim(store, &just).await.claimed("a key a day ahead");
}

pub(super) async fn all_keys_takes_a_timestamp_from_ahead(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let ahead = later(now(store).await, 30 * DAY);
    let first = timestamped("k", ahead, ArchiveLookup::AllKeys);
    let lease = claim(store, &first).await.claimed("a key a month ahead");
    same(&lease.expires_at, &later(ahead, TTL), "the time of expiry");
    // An earlier record may have been made when the same time was too far ahead
    // to count, and have expired since.
    same(&lease.ask_archive, &true, "whether to ask the archive");
}

pub(super) async fn a_timestamp_over_ten_years_ahead_is_none(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let ahead = later(now(store).await, 3660 * DAY);
    for (name, lookup, asks) in [
        ("default", ArchiveLookup::TimestampedKeys, false),
        ("all", ArchiveLookup::AllKeys, true),
    ] {
        let answer = claim(store, &timestamped(name, ahead, lookup)).await;
        let now = answer.now;
        let lease = answer.claimed("a key that only looks timestamped");
        same(&lease.expires_at, &later(now, TTL), "the time of expiry");
        same(&lease.ask_archive, &asks, "whether to ask the archive");
    }
    let required = timestamped("required", ahead, ArchiveLookup::RequireTimestamped);
    let why = claim(store, &required)
        .await
        .refused("a key that only looks timestamped");
    same(&why, &KeyError::TimestampMissing, "the reason");
}

pub(super) async fn a_required_timestamp_that_is_missing_is_refused(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = untimed("k", ArchiveLookup::RequireTimestamped);
    let why = claim(store, &first)
        .await
        .refused("a key without a timestamp");
    same(&why, &KeyError::TimestampMissing, "the reason");
    no_record(store, first.key, "after a refusal").await;
    let now = now(store).await;
    let timed = timestamped("k", now, ArchiveLookup::RequireTimestamped);
    claim(store, &timed).await.claimed("a key with a timestamp");
}
