//! Handles of one store, and its end.

use uuid::Uuid;

use super::{Fixture, support::*};
use crate::{
    record::{OwnerToken, Tombstone},
    store::{Fenced, StoreError, StoreErrorKind, TtlNotice},
};

pub(super) async fn clones_share_identity(fixture: &dyn Fixture) {
    let (one, other) = (fixture.store(), fixture.store());
    same(
        &other.identity(),
        &one.identity(),
        "the identity of another handle",
    );
    if let Some(within) = fixture.archive().and_then(|archive| archive.within()) {
        same(
            &within,
            &one.identity(),
            "the identity of the archive's database",
        );
    }
}

pub(super) async fn clones_share_records(fixture: &dyn Fixture) {
    let (one, other) = (fixture.store(), fixture.store());
    let first = request("k");
    claim(&*one, &first).await.claimed("the first claim");
    claim(&*other, &retry_of(&first))
        .await
        .in_flight("a claim by another handle");
    let done = complete(&*other, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion by another handle");
    drop(other);
    claim(&*one, &retry_of(&first)).await.completed("a retry");
}

pub(super) async fn another_process_sees_the_same_records(fixture: &dyn Fixture) {
    let (here, there) = (fixture.store(), fixture.elsewhere().await);
    let first = request("k");
    claim(&*here, &first).await.claimed("the first claim");
    claim(&*there, &retry_of(&first))
        .await
        .in_flight("a claim elsewhere");
    let done = complete(&*here, &first, &answered(201)).await;
    same(&done, &Fenced::Owner, "the completion");
    let found = claim(&*there, &retry_of(&first))
        .await
        .completed("a retry elsewhere");
    same(&found.completion, &answered(201), "the answer");
    fixture.advance(TTL).await;
    same(
        &sweep(&*there, None, 100).await,
        &1,
        "how many were swept elsewhere",
    );
    no_record(&*here, first.key, "after the sweep").await;
}

pub(super) async fn the_clock_moves_for_all_handles(fixture: &dyn Fixture) {
    let (here, there) = (fixture.store(), fixture.elsewhere().await);
    let before = later(now(&*here).await, HOUR);
    fixture.advance(HOUR).await;
    for store in [here, fixture.store(), there] {
        let now = now(&*store).await;
        assert!(
            now >= before,
            "expected the clock to have moved on to {before}, got {now}"
        );
    }
}

pub(super) async fn times_are_kept_to_the_microsecond(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    fixture
        .advance(std::time::Duration::from_micros(1_234_567))
        .await;
    let first = request("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    let found = record(store, first.key).await;
    same(&found.created_at, &lease.created_at, "the time of creation");
    same(&found.expires_at, &lease.expires_at, "the time of expiry");
    let until = claim(store, &retry_of(&first)).await.in_flight("a retry");
    same(&until, &lease.lease_until, "the end of the lease");
}

pub(super) async fn a_closed_store_is_unavailable(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    run(store, &first, 201).await;
    fixture.store().close().await;
    store.close().await;

    let (key, token, done) = (first.key, OwnerToken::random(), answered(201));
    let notice = TtlNotice {
        process: Uuid::new_v4(),
        smallest: HOUR,
        largest: HOUR,
    };
    closed(store.claim(retry_of(&first)).await, "a claim");
    closed(
        store.complete(key, token, done.clone()).await,
        "a completion",
    );
    closed(store.release(key, token).await, "a release");
    closed(store.renew(&[renewal_of(&first)]).await, "a renewal");
    closed(store.get(key).await, "a read");
    closed(store.amend(key, done).await, "an amendment");
    closed(store.sweep(None, 100).await, "a sweep");
    closed(store.expired(100).await, "a list of expired records");
    closed(store.remove(&[expired_record()]).await, "a removal");
    closed(store.publish_ttl(notice).await, "a notice");
    closed(store.now().await, "the store's clock");
}

#[track_caller]
fn closed<T>(result: Result<T, StoreError>, what: &str) {
    let kind = result.err().map(|error| error.kind());
    let expected = Some(StoreErrorKind::Unavailable);
    same(
        &kind,
        &expected,
        &format!("the error of {what} after close"),
    );
}

fn expired_record() -> crate::record::ExpiredRecord {
    let long_ago = jiff::Timestamp::from_second(1_700_000_000).expect("a time in 2023");
    crate::record::ExpiredRecord {
        tombstone: tombstone("k", Tombstone::UNKNOWN_OUTCOME, long_ago),
        token: OwnerToken::random(),
        speculative: false,
    }
}
