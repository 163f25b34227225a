//! The archive: in the store's database, and in one of its own.

use std::time::Duration;

use axum_idempotency::{
    Clock as _, ResourceId, ScopedKey, Tombstone,
    archive::{Archive as _, SqliteArchive},
    store::{Store as _, StoreErrorKind},
};
use jiff::Timestamp;
use tempfile::TempDir;

use super::{Fixture, TTL, fingerprint, key, url};

fn tombstone(key: ScopedKey, status: u16, expired_at: Timestamp) -> Tombstone {
    Tombstone {
        key,
        fingerprint: fingerprint(1),
        status,
        resource_id: (status != 0).then(|| ResourceId::new("ch_1")).flatten(),
        created_at: expired_at - TTL,
        expired_at,
    }
}

/// Days from the moment that manual clocks begin at.
fn day(number: i64) -> Timestamp {
    let start = axum_idempotency::ManualClock::default().now();
    start + jiff::SignedDuration::from_hours(24 * number)
}

/// One archive within a store and one apart, with what keeps them alive.
async fn both() -> (Fixture, TempDir, [SqliteArchive; 2]) {
    let fixture = Fixture::new().await;
    let dir = TempDir::new().expect("a directory");
    let apart = SqliteArchive::open(&url(&dir)).await.expect("an archive");
    let within = fixture.store.archive();
    (fixture, dir, [within, apart])
}

#[tokio::test]
async fn a_row_with_an_outcome_answers_before_a_later_one_without() {
    let (_fixture, _dir, archives) = both().await;
    for archive in archives {
        let rows = [
            tombstone(key("k"), 201, day(1)),
            tombstone(key("k"), 202, day(2)),
            tombstone(key("k"), 0, day(3)),
            tombstone(key("unknown"), 0, day(1)),
            tombstone(key("unknown"), 0, day(2)),
        ];
        archive.insert(&rows).await.expect("inserted");
        let lookup = async |name, not_before| {
            let found = archive.lookup(key(name), not_before).await;
            found
                .expect("an answer")
                .map(|row| (row.status, row.expired_at))
        };
        assert_eq!(lookup("k", None).await, Some((202, day(2))));
        assert_eq!(lookup("k", Some(day(2))).await, Some((202, day(2))));
        let just_after = day(2) + Duration::from_micros(1);
        assert_eq!(lookup("k", Some(just_after)).await, Some((0, day(3))));
        assert_eq!(lookup("k", Some(day(4))).await, None);
        assert_eq!(lookup("unknown", None).await, Some((0, day(2))));
        assert_eq!(lookup("absent", None).await, None);
    }
}

#[tokio::test]
async fn inserting_again_changes_only_what_had_no_outcome() {
    let (_fixture, _dir, archives) = both().await;
    for archive in archives {
        let unknown = tombstone(key("k"), 0, day(1));
        let known = tombstone(key("k"), 201, day(1));
        let other = tombstone(key("k"), 500, day(1));
        for (inserted, expected) in [
            (&unknown, &unknown),
            (&unknown, &unknown),
            (&known, &known),
            (&other, &known),
            (&unknown, &known),
        ] {
            let insert = archive.insert(std::slice::from_ref(inserted)).await;
            insert.expect("inserted");
            let found = archive.lookup(key("k"), None).await.expect("an answer");
            assert_eq!(found.as_ref(), Some(expected));
        }
        archive.insert(&[]).await.expect("nothing to do");
    }
}

#[tokio::test]
async fn of_rows_one_of_which_is_refused_none_is_inserted() {
    let (fixture, _dir, [within, _]) = both().await;
    let mut raw = fixture.raw().await;
    raw.run(
        "CREATE TRIGGER refusing BEFORE INSERT ON idempotency_key_archive
         WHEN new.status_code = 418 BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    .await;
    let rows = [
        tombstone(key("a"), 201, day(1)),
        tombstone(key("b"), 418, day(1)),
    ];
    within.insert(&rows).await.expect_err("refused");
    assert_eq!(raw.count("idempotency_key_archive").await, 0);
}

#[tokio::test]
async fn the_latest_row_without_an_outcome_learns_it() {
    let (_fixture, _dir, archives) = both().await;
    for archive in archives {
        let rows = [
            tombstone(key("k"), 0, day(1)),
            tombstone(key("k"), 0, day(2)),
            tombstone(key("k"), 201, day(3)),
        ];
        archive.insert(&rows).await.expect("inserted");
        let amend = async |name| {
            let id = ResourceId::new("ch_2");
            archive.amend(key(name), 202, id).await.expect("an answer")
        };
        assert!(!amend("absent").await);
        assert!(amend("k").await);
        let until = async |not_before| {
            let found = archive.lookup(key("k"), Some(not_before)).await;
            found.expect("an answer").expect("a row")
        };
        assert_eq!(until(day(3)).await.status, 201, "had one already");
        assert!(amend("k").await, "the older one is left");
        assert!(!amend("k").await);
    }
}

#[tokio::test]
async fn rows_past_the_retention_are_pruned_oldest_first() {
    let (_fixture, _dir, archives) = both().await;
    for archive in archives {
        let rows: Vec<_> = (1..=1_500)
            .map(|n| tombstone(key(n), 201, day(0) + Duration::from_secs(n)))
            .collect();
        archive.insert(&rows).await.expect("inserted");
        let for_ever = archive.prune(Timestamp::MAX, 10).await;
        assert_eq!(for_ever.expect("an answer"), 0);
        assert_eq!(archive.retention(), None);

        let archive = archive.with_retention(TTL);
        assert_eq!(archive.retention(), Some(TTL));
        let prune = async |now, limit| archive.prune(now, limit).await.expect("an answer");
        assert_eq!(prune(day(1), 10).await, 0);
        // The row that expired just so long ago is past it.
        let now = day(1) + Duration::from_secs(1_400);
        assert_eq!(prune(now, 2).await, 2);
        for (n, is_there) in [(1, false), (2, false), (3, true)] {
            let found = archive.lookup(key(n), None).await.expect("an answer");
            assert_eq!(found.is_some(), is_there, "{n}");
        }
        assert_eq!(prune(now, 10_000).await, 1_398);
        assert_eq!(prune(now, 10_000).await, 0);
        assert_eq!(prune(Timestamp::MIN, 10).await, 0);
        assert_eq!(prune(Timestamp::MAX, 10_000).await, 100);
    }
}

#[tokio::test]
async fn a_lookup_sees_what_was_committed_before_it() {
    let fixture = Fixture::new().await;
    let archive = fixture.store.archive();
    for n in 0..100 {
        let row = tombstone(key(n), 201, day(1));
        archive
            .insert(std::slice::from_ref(&row))
            .await
            .expect("inserted");
        let found = archive.lookup(key(n), Some(day(1))).await;
        assert_eq!(found.expect("an answer"), Some(row));
    }
}

#[tokio::test]
async fn an_archive_is_closed_with_the_store_it_lives_in() {
    let (fixture, dir, [within, apart]) = both().await;
    fixture.store.close().await;
    let row = [tombstone(key("k"), 201, day(1))];
    let error = within.insert(&row).await.expect_err("closed");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = within.lookup(key("k"), None).await.expect_err("closed");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let error = within.prune(day(1), 1).await.expect_err("closed");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);

    apart.insert(&row).await.expect("open");
    apart.close().await;
    let again = SqliteArchive::open(&url(&dir)).await.expect("an archive");
    let found = again.lookup(key("k"), None).await.expect("an answer");
    assert_eq!(found.as_ref(), row.first());
}
