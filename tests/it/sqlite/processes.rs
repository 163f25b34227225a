//! Several handles on one file, as several processes have them, and what is
//! left when one of them dies.

use std::time::Duration;

use axum_idempotency::{
    ManualClock, OwnerToken, ScopedKey,
    claim::ClaimOutcome,
    store::{Fenced, Store as _, StoreErrorKind, sqlite::SqliteStore},
};
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::runtime;

use super::{Fixture, LEASE, completion, key, leased, open, request, url};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_claims_of_a_key_through_any_handle_one_wins() {
    let fixture = Fixture::new().await;
    let handles = [
        fixture.store.clone(),
        fixture.other().await,
        fixture.other().await,
    ];
    let claims = (0..40).flat_map(|n| {
        handles.iter().flat_map(move |store| {
            [store.clone(), store.clone()].map(|store| {
                tokio::spawn(async move {
                    let claim = store.claim(request(key(n))).await.expect("an answer");
                    (n, matches!(claim.outcome, ClaimOutcome::Claimed(_)))
                })
            })
        })
    });
    let mut winners = [0; 40];
    for claim in join_all(claims).await {
        let (n, won) = claim.expect("no panic");
        winners[n] += usize::from(won);
    }
    assert_eq!(winners, [1; 40]);
}

#[tokio::test]
async fn one_handle_sees_what_another_has_answered() {
    let fixture = Fixture::new().await;
    let other = fixture.other().await;
    assert_ne!(fixture.store.identity(), other.identity());
    let (token, _) = fixture.claim(key("k")).await;
    assert!(other.get(key("k")).await.expect("an answer").is_some());
    let in_flight = other.claim(request(key("k"))).await.expect("an answer");
    assert!(matches!(in_flight.outcome, ClaimOutcome::InFlight { .. }));

    fixture.clock.advance(LEASE);
    let taken_over = other.claim(request(key("k"))).await.expect("an answer");
    assert_eq!(leased(taken_over).attempt, 2);
    let late = fixture.store.complete(key("k"), token, completion(201));
    assert_eq!(late.await.expect("an answer"), Fenced::Stale);
}

#[tokio::test]
async fn a_database_that_stays_locked_is_unavailable_and_recovers() {
    let fixture = Fixture::new().await;
    let mut lock = fixture.raw().await;
    lock.run("BEGIN IMMEDIATE").await;
    let (a, b) = tokio::join!(
        fixture.store.claim(request(key("a"))),
        fixture.store.claim(request(key("b"))),
    );
    for refused in [a, b] {
        let error = refused.expect_err("locked");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
    // Those who read are not kept waiting.
    assert!(
        fixture
            .store
            .get(key("a"))
            .await
            .expect("an answer")
            .is_none()
    );
    lock.run("COMMIT").await;
    fixture.claim(key("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_start_together_find_one_schema() {
    let dir = TempDir::new().expect("a directory");
    let clock = ManualClock::default();
    let starts = (0..8).map(|_| {
        let (url, clock) = (url(&dir), clock.clone());
        tokio::spawn(async move { open(&url, &clock).await })
    });
    let stores = join_all(starts).await;
    for (n, store) in stores.into_iter().enumerate() {
        let claim = store.expect("opened").claim(request(key(n))).await;
        leased(claim.expect("an answer"));
    }
}

#[tokio::test]
async fn dropped_without_closing_a_store_leaves_all_it_answered() {
    let dir = TempDir::new().expect("a directory");
    let (first, second) = (key("first"), key("second"));
    let claimed = claim_and_die(&dir, first, End::HandlesDropped);
    let killed = claim_and_die(&dir, second, End::RuntimeGone);

    let store = open(&url(&dir), &ManualClock::default()).await;
    for (key, token) in [(first, claimed), (second, killed)] {
        let record = store.get(key).await.expect("an answer").expect("a record");
        assert_eq!(record.token, token);
    }
}

#[derive(PartialEq)]
enum End {
    HandlesDropped,
    RuntimeGone,
}

/// Claims in a runtime of its own, on a thread of its own, which then ends.
fn claim_and_die(dir: &TempDir, key: ScopedKey, end: End) -> OwnerToken {
    let url = url(dir);
    let life = std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let request = request(key);
        let token = request.token;
        let store = runtime.block_on(async {
            let store = open(&url, &ManualClock::default()).await;
            leased(store.claim(request).await.expect("an answer"));
            store
        });
        if end == End::RuntimeGone {
            runtime.shutdown_timeout(Duration::ZERO);
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let refused = runtime.expect("a runtime").block_on(store.now());
            let error = refused.expect_err("its task is gone");
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        }
        token
    });
    life.join().expect("no panic")
}

#[tokio::test]
async fn databases_in_memory_are_apart_and_whole() {
    let clock = ManualClock::default();
    let (one, other) = (
        open("sqlite::memory:", &clock).await,
        open("sqlite::memory:", &clock).await,
    );
    let claims = (0..50).map(|n| one.claim(request(key(n))));
    for claim in join_all(claims).await {
        leased(claim.expect("an answer"));
    }
    let reads = join_all((0..50).map(|n| one.get(key(n)))).await;
    assert!(
        reads
            .into_iter()
            .all(|read| read.expect("an answer").is_some())
    );
    assert!(other.get(key(1)).await.expect("an answer").is_none());

    one.migrate().await.expect("nothing to do");
    one.close().await;
    let error = one.get(key(1)).await.expect_err("closed");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_in_memory_that_has_a_name_is_shared() {
    let clock = ManualClock::default();
    let url = "sqlite:file:shared-by-name?mode=memory&cache=shared";
    let (one, other) = (open(url, &clock).await, open(url, &clock).await);
    let claims = (0..20).flat_map(|n| [one.claim(request(key(n))), other.claim(request(key(n)))]);
    let claimed = join_all(claims)
        .await
        .into_iter()
        .filter(|claim| {
            let outcome = &claim.as_ref().expect("an answer").outcome;
            matches!(outcome, ClaimOutcome::Claimed(_))
        })
        .count();
    assert_eq!(claimed, 20);
}

#[tokio::test]
async fn without_readers_reads_stand_in_line() {
    let fixture = Fixture::new().await;
    let alone = SqliteStore::builder().url(fixture.url()).readers(0);
    let alone = alone.clock(fixture.clock.clone()).open().await;
    let alone = alone.expect("a store");
    fixture.claim(key("k")).await;
    assert!(alone.get(key("k")).await.expect("an answer").is_some());
}
