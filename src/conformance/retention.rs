//! How long an archive keeps its rows. Those that are to go have been past the
//! retention for longer than a month, those that are to stay are not: an archive
//! that drops whole months passes too.

use std::sync::Arc;

use super::{Fixture, support::*};
use crate::archive::Archive;

async fn archive_of_a_year(fixture: &dyn Fixture) -> Option<Arc<dyn Archive>> {
    let archive = fixture.archive_keeping(365 * DAY).await;
    if archive.is_none() {
        eprintln!("skipped: the fixture's archive has no retention");
    }
    archive
}

pub(super) async fn without_a_retention_rows_are_kept_for_ever(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    same(&archive.retention(), &None, "the retention");
    insert(&*archive, &[tombstone("k", 201, before(now, 4000 * DAY))]).await;
    let pruned = ok(archive.prune(now, 100).await, "a pruning");
    same(&pruned, &0, "how many were pruned");
    same(
        &lookup(&*archive, key("k")).await.is_some(),
        &true,
        "whether the row is kept",
    );
}

pub(super) async fn only_rows_past_the_retention_are_pruned(fixture: &dyn Fixture) {
    let Some(archive) = archive_of_a_year(fixture).await else {
        return;
    };
    let now = now(&*fixture.store()).await;
    same(&archive.retention(), &Some(365 * DAY), "the retention");
    let rows = [
        tombstone("past", 201, before(now, (365 + 32) * DAY)),
        tombstone("within", 201, before(now, 365 * DAY - SECOND)),
        tombstone("young", 201, now),
    ];
    insert(&*archive, &rows).await;
    let pruned = ok(archive.prune(now, 100).await, "a pruning");
    same(&pruned, &1, "how many were pruned");
    for (name, is_kept) in [("past", false), ("within", true), ("young", true)] {
        let found = lookup(&*archive, key(name)).await;
        same(
            &found.is_some(),
            &is_kept,
            &format!("whether the row {name} is kept"),
        );
    }
    let pruned = ok(archive.prune(now, 100).await, "a pruning");
    same(&pruned, &0, "how many are left");
}

pub(super) async fn a_pruning_takes_the_oldest_first(fixture: &dyn Fixture) {
    let Some(archive) = archive_of_a_year(fixture).await else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let ages = [500, 700, 400, 600];
    let rows = ages.map(|days| tombstone(&format!("{days} d"), 201, before(now, days * DAY)));
    insert(&*archive, &rows).await;
    let kept = async || {
        let mut kept = Vec::new();
        for days in [400, 500, 600, 700] {
            let row = lookup(&*archive, key(&format!("{days} d"))).await;
            kept.extend(row.map(|_| days));
        }
        kept
    };
    for (pruned, left) in [(3, vec![400]), (1, vec![]), (0, vec![])] {
        let got = ok(archive.prune(now, 3).await, "a pruning");
        same(&got, &pruned, "how many were pruned");
        same(&kept().await, &left, "the ages in days of what is kept");
    }
}

pub(super) async fn an_archive_is_pruned_as_time_goes_on(fixture: &dyn Fixture) {
    let Some(archive) = archive_of_a_year(fixture).await else {
        return;
    };
    let start = now(&*fixture.store()).await;
    insert(&*archive, &[tombstone("k", 0, start)]).await;
    for (days, expected) in [(364, 0), (365 + 32, 1)] {
        let pruned = ok(
            archive.prune(later(start, days * DAY), 100).await,
            "a pruning",
        );
        same(
            &pruned,
            &expected,
            &format!("how many were pruned after {days} days"),
        );
    }
}
