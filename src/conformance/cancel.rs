//! Calls whose future is dropped at its first await: the store is left as if
//! the call had happened or had not.

use futures_util::FutureExt as _;

use super::{Fixture, support::*};
use crate::{
    claim::ClaimOutcome,
    record::RecordState,
    store::{Fenced, Renewed},
};

pub(super) async fn a_dropped_claim_blocks_nobody_for_good(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..16 {
        let dropped = request(&format!("k{n}"));
        let _ = store.claim(dropped.clone()).now_or_never();

        let next = retry_of(&dropped);
        match claim(store, &next).await.into_outcome() {
            ClaimOutcome::Claimed(lease) => same(&lease.attempt, &1, "the attempt"),
            ClaimOutcome::InFlight { .. } => {
                let released = release(store, &dropped).await;
                same(
                    &released,
                    &Fenced::Owner,
                    "the release by the dropped claim's token",
                );
                claim(store, &next)
                    .await
                    .claimed("the next claim after the release");
            }
            other => unexpected("the claim after a dropped one", "to be claimed", &other),
        }
        let done = complete(store, &next, &answered(201)).await;
        same(&done, &Fenced::Owner, "the completion");
    }
}

pub(super) async fn a_dropped_claim_can_be_made_again(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..16 {
        let dropped = request(&format!("k{n}"));
        let _ = store.claim(dropped.clone()).now_or_never();
        let lease = claim(store, &dropped).await.claimed("the claim made again");
        same(&lease.attempt, &1, "the attempt");
        let done = complete(store, &dropped, &answered(201)).await;
        same(&done, &Fenced::Owner, "the completion");
    }
}

pub(super) async fn a_dropped_completion_is_whole_or_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..16 {
        let first = request(&format!("k{n}"));
        claim(store, &first).await.claimed("the first claim");
        let _ = store
            .complete(first.key, first.token, answered(201))
            .now_or_never();

        let found = record(store, first.key).await;
        if let RecordState::Completed(completion) = &found.state {
            same(completion, &answered(201), "the answer");
        }
        let done = complete(store, &first, &answered(201)).await;
        same(&done, &Fenced::Owner, "the completion made again");
        let found = claim(store, &retry_of(&first)).await.completed("a retry");
        same(&found.completion, &answered(201), "the answer");
    }
}

pub(super) async fn a_dropped_release_can_be_made_again(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..16 {
        let first = request(&format!("k{n}"));
        claim(store, &first).await.claimed("the first claim");
        let _ = store.release(first.key, first.token).now_or_never();
        // Owner or stale: as if the dropped call had not happened, or had.
        let _: Fenced = release(store, &first).await;
        no_record(store, first.key, "after the release").await;
        claim(store, &retry_of(&first))
            .await
            .claimed("the next claim");
    }
}

pub(super) async fn a_dropped_renewal_can_be_made_again(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..16 {
        let first = request(&format!("k{n}"));
        claim(store, &first).await.claimed("the first claim");
        let renewals = [renewal_of(&first)];
        let _ = store.renew(&renewals).now_or_never();
        let renewed = renew(store, renewals[0]).await;
        assert!(
            renewed != Renewed::Lost,
            "expected the renewal made again to be granted"
        );
        claim(store, &retry_of(&first)).await.in_flight("a retry");
    }
}

pub(super) async fn a_dropped_amendment_is_whole_or_nothing(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..16 {
        let first = request(&format!("k{n}"));
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(LEASE).await;
        let _ = store.amend(first.key, answered(201)).now_or_never();
        amend(store, first.key, &answered(201)).await;
        let found = claim(store, &retry_of(&first)).await.completed("a retry");
        same(&found.completion, &answered(201), "the answer");
    }
}

pub(super) async fn a_dropped_sweep_loses_nothing(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for n in 0..30 {
        run(store, &archived(&format!("k{n}")), 201).await;
    }
    fixture.advance(TTL).await;
    for _ in 0..3 {
        let _ = store.sweep(Some(&*archive), 5).now_or_never();
        for n in 0..30 {
            let key = key(&format!("k{n}"));
            // In this order, so that one that moves in between is not missed.
            let is_live = ok(store.get(key).await, "a read").is_some();
            let is_somewhere = is_live || lookup(&*archive, key).await.is_some();
            same(&is_somewhere, &true, "whether a record is live or archived");
        }
    }
    while sweep(store, Some(&*archive), 5).await > 0 {}
    for n in 0..30 {
        let key = key(&format!("k{n}"));
        no_record(store, key, "after the sweeps").await;
        let found = lookup(&*archive, key).await;
        same(
            &found.map(|row| row.status),
            &Some(201),
            "the status in the archive",
        );
    }
}

pub(super) async fn a_dropped_insertion_can_be_made_again(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let rows: Vec<_> = (0..50)
        .map(|n| tombstone(&format!("k{n}"), 201, now))
        .collect();
    let _ = archive.insert(&rows).now_or_never();
    insert(&*archive, &rows).await;
    for row in rows {
        let found = lookup(&*archive, row.key).await;
        same(&found, &Some(row), "the row");
    }
}
