//! What an archive keeps, and which row it answers with.

use super::{Fixture, support::*};
use crate::{
    archive::Archive,
    fingerprint::Fingerprint,
    record::{ResourceId, Tombstone},
    scope::ScopedKey,
};

const UNKNOWN: u16 = Tombstone::UNKNOWN_OUTCOME;

async fn status(archive: &dyn Archive, key: ScopedKey) -> Option<u16> {
    lookup(archive, key).await.map(|row| row.status)
}

pub(super) async fn a_row_is_found_as_it_was_inserted(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let rows = [
        tombstone("completed", 201, now),
        tombstone("unknown", UNKNOWN, later(now, HOUR)),
        Tombstone {
            resource_id: None,
            ..tombstone("without an id", 204, before(now, HOUR))
        },
        Tombstone {
            resource_id: ResourceId::new(&"~".repeat(ResourceId::MAX_LENGTH)),
            fingerprint: Fingerprint::from_bytes([0xf7; 400]),
            ..tombstone("large", 599, now)
        },
        Tombstone {
            fingerprint: Fingerprint::from_bytes([0x13]),
            ..tombstone("small", 100, now)
        },
    ];
    insert(&*archive, &rows).await;
    for row in rows {
        let found = lookup(&*archive, row.key)
            .await
            .expect("the row that was inserted");
        same(
            &found.fingerprint.as_bytes(),
            &row.fingerprint.as_bytes(),
            "the fingerprint",
        );
        same(&found, &row, "the row");
    }
}

pub(super) async fn an_unknown_key_is_not_found(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    same(
        &lookup(&*archive, key("k")).await,
        &None,
        "the row of an empty archive",
    );
    insert(&*archive, &[tombstone("other", 201, now)]).await;
    same(
        &lookup(&*archive, key("k")).await,
        &None,
        "the row of an unknown key",
    );
    insert(&*archive, &[]).await;
}

pub(super) async fn a_row_that_is_there_already_stays(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let first = tombstone("k", 201, now);
    for row in [
        &first,
        &first,
        &tombstone("k", 500, now),
        &tombstone("k", UNKNOWN, now),
    ] {
        insert(&*archive, std::slice::from_ref(row)).await;
        same(
            &lookup(&*archive, key("k")).await,
            &Some(first.clone()),
            "the row",
        );
    }
}

pub(super) async fn an_unknown_outcome_takes_a_later_one(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    insert(&*archive, &[tombstone("k", UNKNOWN, now)]).await;
    insert(&*archive, &[tombstone("k", UNKNOWN, now)]).await;
    insert(&*archive, &[tombstone("k", 201, now)]).await;
    let expected = Some(tombstone("k", 201, now));
    same(&lookup(&*archive, key("k")).await, &expected, "the row");
    insert(&*archive, &[tombstone("k", 500, now)]).await;
    same(
        &lookup(&*archive, key("k")).await,
        &expected,
        "the row after that",
    );
}

pub(super) async fn one_row_twice_in_an_insertion_is_no_error(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let rows = [
        tombstone("twice", 201, now),
        tombstone("twice", 201, now),
        tombstone("learned", UNKNOWN, now),
        tombstone("learned", 201, now),
        tombstone("forgotten", 201, now),
        tombstone("forgotten", UNKNOWN, now),
    ];
    insert(&*archive, &rows).await;
    for name in ["twice", "learned", "forgotten"] {
        same(
            &status(&*archive, key(name)).await,
            &Some(201),
            "the status",
        );
    }
}

pub(super) async fn many_rows_go_in_at_once(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let row = |n: u32| tombstone(&format!("k{n}"), 201, before(now, n * MINUTE));
    let rows: Vec<_> = (0..10_000).map(row).collect();
    insert(&*archive, &rows).await;
    for n in [0, 1, 4_999, 9_999] {
        let found = lookup(&*archive, key(&format!("k{n}"))).await;
        same(&found, &Some(row(n)), "a row of many");
    }
}

pub(super) async fn an_outcome_is_preferred_to_a_later_unknown(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let rows = [
        tombstone("k", UNKNOWN, before(now, 3 * DAY)),
        tombstone("k", 201, before(now, 2 * DAY)),
        tombstone("k", UNKNOWN, before(now, DAY)),
    ];
    insert(&*archive, &rows).await;
    same(&status(&*archive, key("k")).await, &Some(201), "the status");
}

pub(super) async fn of_two_outcomes_the_later_answers(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let rows = [
        tombstone("completed", 202, before(now, DAY)),
        tombstone("completed", 201, before(now, 2 * DAY)),
    ];
    insert(&*archive, &rows).await;
    same(
        &status(&*archive, key("completed")).await,
        &Some(202),
        "the status",
    );
    let latest = tombstone("unknown", UNKNOWN, before(now, DAY));
    let rows = [
        latest.clone(),
        tombstone("unknown", UNKNOWN, before(now, 2 * DAY)),
    ];
    insert(&*archive, &rows).await;
    same(
        &lookup(&*archive, key("unknown")).await,
        &Some(latest),
        "the row",
    );
}

pub(super) async fn a_lookup_leaves_out_what_expired_before(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let (first, second) = (before(now, 60 * DAY), before(now, 30 * DAY));
    insert(
        &*archive,
        &[tombstone("k", 201, first), tombstone("k", UNKNOWN, second)],
    )
    .await;
    let microsecond = std::time::Duration::from_micros(1);
    for (not_before, expected) in [
        (first, Some(201)),
        (later(first, microsecond), Some(UNKNOWN)),
        (second, Some(UNKNOWN)),
        (later(second, microsecond), None),
        (later(now, 4000 * DAY), None),
    ] {
        let found = ok(archive.lookup(key("k"), Some(not_before)).await, "a lookup");
        let what = format!("the status of what expired at {not_before} or later");
        same(&found.map(|row| row.status), &expected, &what);
    }
}

pub(super) async fn an_archived_unknown_outcome_can_be_amended(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let row = tombstone("k", UNKNOWN, now);
    insert(&*archive, std::slice::from_ref(&row)).await;
    let id = ResourceId::new("ch_found");
    let amended = ok(
        archive.amend(row.key, 201, id.clone()).await,
        "an amendment",
    );
    same(&amended, &true, "the amendment");
    let expected = Tombstone {
        status: 201,
        resource_id: id,
        ..row
    };
    same(
        &lookup(&*archive, key("k")).await,
        &Some(expected.clone()),
        "the row",
    );
    let amended = ok(archive.amend(key("k"), 500, None).await, "an amendment");
    same(&amended, &false, "the second amendment");
    same(
        &lookup(&*archive, key("k")).await,
        &Some(expected),
        "the row",
    );
}

pub(super) async fn only_an_unknown_outcome_can_be_amended(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let row = tombstone("k", 201, now);
    insert(&*archive, std::slice::from_ref(&row)).await;
    for name in ["k", "unknown"] {
        let amended = ok(archive.amend(key(name), 500, None).await, "an amendment");
        same(&amended, &false, "the amendment");
    }
    same(&lookup(&*archive, key("k")).await, &Some(row), "the row");
    same(
        &lookup(&*archive, key("unknown")).await,
        &None,
        "the row of an unknown key",
    );
}

pub(super) async fn the_latest_unknown_outcome_is_amended(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let rows = [
        tombstone("k", UNKNOWN, before(now, 2 * DAY)),
        tombstone("k", UNKNOWN, before(now, DAY)),
    ];
    insert(&*archive, &rows).await;
    let amended = ok(archive.amend(key("k"), 201, None).await, "an amendment");
    same(&amended, &true, "the amendment");
    let found = lookup(&*archive, key("k")).await.expect("a row");
    same(
        &found.expired_at,
        &before(now, DAY),
        "the row that took the outcome",
    );
    let amended = ok(archive.amend(key("k"), 202, None).await, "an amendment");
    same(&amended, &true, "the amendment of the other");
    same(
        &status(&*archive, key("k")).await,
        &Some(201),
        "the status of the latest",
    );
}

pub(super) async fn archive_handles_share_their_rows(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(other) = archive_of(fixture) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    insert(&*archive, &[tombstone("k", 201, now)]).await;
    same(
        &status(&*other, key("k")).await,
        &Some(201),
        "the status by another handle",
    );
    same(
        &archive.within(),
        &other.within(),
        "the database of another handle",
    );
    same(
        &archive.retention(),
        &other.retention(),
        "the retention of another handle",
    );
}
