//! Sweepers that meet each other, and claims that meet a sweeper.

use std::sync::Arc;

use super::{
    Fixture,
    race::{handles, together},
    support::*,
};
use crate::{
    archive::Archive,
    claim::{ClaimOutcome, ClaimRequest},
    record::Tombstone,
    store::{Fenced, Store},
};

async fn sweep_all(store: &dyn Store, archive: Option<&dyn Archive>, limit: u32) -> u64 {
    let mut total = 0;
    loop {
        match sweep(store, archive, limit).await {
            0 => return total,
            moved => total += moved,
        }
    }
}

pub(super) async fn many_sweepers_move_every_record_once(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for n in 0..200 {
        run(store, &archived(&format!("k{n}")), 201).await;
    }
    fixture.advance(TTL).await;
    let moved = together(handles(fixture, 4).await, |store| {
        let archive = archive.clone();
        async move { sweep_all(&*store, Some(&*archive), 7).await }
    });
    let total: u64 = moved.await.iter().sum();
    same(&total, &200, "how many the sweepers moved together");
    let left = ok(store.expired(100).await, "a list of expired records");
    same(&left, &vec![], "the expired records");
    for n in 0..200 {
        let found = lookup(&*archive, key(&format!("k{n}"))).await;
        same(
            &found.map(|row| row.status),
            &Some(201),
            "the status in the archive",
        );
    }
}

pub(super) async fn many_sweepers_without_an_archive_delete_each_once(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for n in 0..200 {
        run(store, &request(&format!("k{n}")), 201).await;
    }
    fixture.advance(TTL).await;
    let moved = together(handles(fixture, 4).await, |store| async move {
        sweep_all(&*store, None, 7).await
    });
    let total: u64 = moved.await.iter().sum();
    same(&total, &200, "how many the sweepers deleted together");
    let left = ok(store.expired(100).await, "a list of expired records");
    same(&left, &vec![], "the expired records");
}

/// A late retry that meets a sweeper: it is told that the key expired, either
/// by the record or, when that is gone, by the archive.
async fn is_known(store: Arc<dyn Store>, archive: Arc<dyn Archive>, late: ClaimRequest) -> bool {
    match claim(&*store, &late).await.into_outcome() {
        ClaimOutcome::Expired(tombstone) => tombstone.status == 201,
        // Another late retry is asking the archive.
        ClaimOutcome::InFlight { .. } => true,
        ClaimOutcome::Claimed(lease) => {
            same(&lease.ask_archive, &true, "whether to ask the archive");
            let found = ok(
                archive.lookup(late.key, late.age.timestamp).await,
                "a lookup",
            );
            same(
                &release(&*store, &late).await,
                &Fenced::Owner,
                "the release",
            );
            found.is_some_and(|row| row.status == 201)
        }
        other => unexpected("a late retry", "to be expired", &other),
    }
}

pub(super) async fn a_late_retry_never_slips_past_a_sweep(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for round in 0..24 {
        let mut first = archived(&format!("k{round}"));
        first.age.timestamp = Some(now(store).await);
        run(store, &first, 201).await;
        fixture.advance(TTL).await;
        let numbered = handles(fixture, 9).await.into_iter().enumerate();
        let known = together(numbered.collect(), |(n, store)| {
            let (archive, late) = (archive.clone(), retry_of(&first));
            async move {
                if n == 4 {
                    sweep(&*store, Some(&*archive), 100).await;
                    true
                } else {
                    is_known(store, archive, late).await
                }
            }
        });
        same(
            &known.await,
            &vec![true; 9],
            "whether every late retry was known",
        );
    }
}

pub(super) async fn a_completion_that_races_a_sweep_is_not_lost(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for round in 0..16 {
        // Past its TTL under a live lease: the completion is accepted, and the
        // sweep takes the record right after it, or leaves it.
        let first = ClaimRequest {
            lease: 2 * TTL,
            ..archived(&format!("k{round}"))
        };
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(TTL + HOUR).await;
        let numbered = handles(fixture, 4).await.into_iter().enumerate();
        let done = together(numbered.collect(), |(n, store)| {
            let (archive, first) = (archive.clone(), first.clone());
            async move {
                if n == 0 {
                    let done = complete(&*store, &first, &answered(201)).await;
                    same(&done, &Fenced::Owner, "the completion");
                } else {
                    sweep(&*store, Some(&*archive), 100).await;
                }
            }
        });
        done.await;
        sweep_all(store, Some(&*archive), 100).await;
        let found = lookup(&*archive, first.key).await;
        same(
            &found.map(|row| row.status),
            &Some(201),
            "the status in the archive",
        );
    }
}

pub(super) async fn an_amendment_that_races_a_sweep_is_not_lost(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let store = &*fixture.store();
    for round in 0..16 {
        let first = archived(&format!("k{round}"));
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(TTL).await;
        let numbered = handles(fixture, 4).await.into_iter().enumerate();
        let amended = together(numbered.collect(), |(n, store)| {
            let (archive, first) = (archive.clone(), first.clone());
            async move {
                if n == 0 {
                    return amend(&*store, first.key, &answered(201)).await;
                }
                sweep(&*store, Some(&*archive), 100).await;
                false
            }
        });
        let was_amended = amended.await.contains(&true);
        sweep_all(store, Some(&*archive), 100).await;
        let expected = if was_amended {
            201
        } else {
            Tombstone::UNKNOWN_OUTCOME
        };
        let found = lookup(&*archive, first.key).await;
        same(
            &found.map(|row| row.status),
            &Some(expected),
            "the status in the archive",
        );
    }
}
