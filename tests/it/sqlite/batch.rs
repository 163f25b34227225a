//! Group commit: what shares a transaction, and what does not share its fate.

use std::{fs, path::Path, time::Duration};

use axum_idempotency::{
    claim::ClaimOutcome,
    store::{Fenced, Store as _, StoreErrorKind},
};
use futures_util::future::join_all;
use tokio::task::{JoinHandle, yield_now};

use super::{Fixture, LEASE, Raw, completion, fingerprint, key, leased, request};

/// Lets tasks of this thread run until they wait for something outside it.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// Keeps the writer waiting, so that what is sent meanwhile shares a batch.
async fn hold_the_lock(fixture: &Fixture) -> Raw {
    let mut raw = fixture.raw().await;
    raw.run("BEGIN IMMEDIATE").await;
    raw
}

/// How often the log says that something was committed: its frames name the
/// size of the database only where a commit ends.
fn commits(database: &Path) -> usize {
    let log = fs::read(database.with_extension("db-wal")).expect("a log");
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
    let frame = 24 + number(8) as usize;
    (32..log.len())
        .step_by(frame)
        .filter(|at| number(at + 8) == number(16) && number(at + 4) > 0)
        .count()
}

#[tokio::test]
async fn concurrent_claims_share_their_commits() {
    const CLAIMS: usize = 200;
    let fixture = Fixture::new().await;
    let lock = hold_the_lock(&fixture).await;
    let before = commits(&fixture.path());
    let claims: Vec<JoinHandle<_>> = (0..CLAIMS)
        .map(|n| {
            let store = fixture.store.clone();
            tokio::spawn(async move { store.claim(request(key(n))).await })
        })
        .collect();
    settle().await;
    release(lock).await;
    for claim in join_all(claims).await {
        leased(claim.expect("no panic").expect("an answer"));
    }
    // The first may have gone alone.
    let took = commits(&fixture.path()) - before;
    assert!(
        (1..=2).contains(&took),
        "{took} commits for {CLAIMS} claims"
    );
}

#[tokio::test]
async fn a_lone_operation_is_a_commit_of_its_own() {
    let fixture = Fixture::new().await;
    let before = commits(&fixture.path());
    for n in 0..3 {
        fixture.claim(key(n)).await;
    }
    assert_eq!(commits(&fixture.path()) - before, 3);
}

#[tokio::test]
async fn what_writes_nothing_leaves_the_log_alone() {
    let fixture = Fixture::new().await;
    let (token, _) = fixture.claim(key("done")).await;
    let done = fixture.store.complete(key("done"), token, completion(201));
    assert_eq!(done.await.expect("an answer"), Fenced::Owner);
    fixture.claim(key("running")).await;
    let size = || {
        let log = fixture.path().with_extension("db-wal");
        fs::metadata(log).expect("a log").len()
    };
    let before = size();
    let replay = fixture.store.claim(request(key("done"))).await;
    let in_flight = fixture.store.claim(request(key("running"))).await;
    let mut reused = request(key("done"));
    reused.fingerprint = fingerprint(2);
    let mismatch = fixture.store.claim(reused).await;
    let outcomes = [replay, in_flight, mismatch].map(|claim| claim.expect("an answer").outcome);
    assert!(matches!(
        outcomes,
        [
            ClaimOutcome::Completed(_),
            ClaimOutcome::InFlight { .. },
            ClaimOutcome::Mismatch
        ]
    ));
    assert_eq!(fixture.store.sweep(None, 10).await.expect("an answer"), 0);
    assert_eq!(size(), before);
}

#[tokio::test]
async fn a_failing_operation_does_not_fail_its_neighbours() {
    for action in ["ABORT", "FAIL", "ROLLBACK"] {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        raw.run(&format!(
            "CREATE TRIGGER refusing BEFORE INSERT ON idempotency_keys
             WHEN new.scoped_key = '{}' BEGIN SELECT RAISE({action}, 'refused'); END",
            key("bad")
        ))
        .await;
        let lock = hold_the_lock(&fixture).await;
        let claim = async |name| fixture.store.claim(request(key(name))).await;
        let claims = [claim("a"), claim("b"), claim("bad"), claim("c")];
        let (claims, ()) = tokio::join!(join_all(claims), async {
            settle().await;
            release(lock).await;
        });
        for (name, claim) in ["a", "b", "bad", "c"].into_iter().zip(claims) {
            match claim {
                Ok(claim) => drop(leased(claim)),
                Err(error) => {
                    assert_eq!((name, error.kind()), ("bad", StoreErrorKind::Unavailable));
                }
            }
        }
        assert_eq!(raw.count("idempotency_keys").await, 3, "{action}");
        fixture.claim(key("d")).await;
    }
}

#[tokio::test]
async fn one_key_twice_in_a_batch_is_claimed_once() {
    let fixture = Fixture::new().await;
    let lock = hold_the_lock(&fixture).await;
    let claims = (0..20).map(|_| fixture.store.claim(request(key("one"))));
    let (claims, ()) = tokio::join!(join_all(claims), async {
        settle().await;
        release(lock).await;
    });
    let claimed = claims
        .into_iter()
        .filter(|claim| {
            let outcome = &claim.as_ref().expect("an answer").outcome;
            matches!(outcome, ClaimOutcome::Claimed(_))
        })
        .count();
    assert_eq!(claimed, 1);
}

#[tokio::test]
async fn a_lease_begins_when_it_is_written() {
    let fixture = Fixture::new().await;
    let asked = axum_idempotency::Clock::now(&fixture.clock);
    let lock = hold_the_lock(&fixture).await;
    let waited = Duration::from_secs(20);
    let (claim, ()) = tokio::join!(fixture.store.claim(request(key("k"))), async {
        settle().await;
        fixture.clock.advance(waited);
        release(lock).await;
    });
    let claim = claim.expect("an answer");
    assert_eq!(claim.now, asked + waited);
    assert_eq!(leased(claim).lease_until, asked + waited + LEASE);
}

#[tokio::test]
async fn what_was_sent_happens_though_its_caller_is_gone() {
    let fixture = Fixture::new().await;
    let (token, _) = fixture.claim(key("completing")).await;
    let lock = hold_the_lock(&fixture).await;
    let store = fixture.store.clone();
    let claim = tokio::spawn(async move { store.claim(request(key("claiming"))).await });
    let store = fixture.store.clone();
    let complete = tokio::spawn(async move {
        let completion = completion(201);
        store.complete(key("completing"), token, completion).await
    });
    settle().await;
    claim.abort();
    complete.abort();
    assert!(claim.await.expect_err("dropped").is_cancelled());
    assert!(complete.await.expect_err("dropped").is_cancelled());
    release(lock).await;
    // It stands in line behind the two.
    fixture.claim(key("behind")).await;
    let store = &fixture.store;
    let claimed = store.get(key("claiming")).await.expect("an answer");
    assert!(
        claimed
            .expect("a record")
            .has_live_lease(axum_idempotency::Clock::now(&fixture.clock))
    );
    let completed = store.claim(request(key("completing"))).await;
    let outcome = completed.expect("an answer").outcome;
    assert!(matches!(outcome, ClaimOutcome::Completed(_)), "{outcome:?}");
}

#[tokio::test]
async fn closing_finishes_what_was_accepted() {
    let fixture = Fixture::new().await;
    let lock = hold_the_lock(&fixture).await;
    let claims: Vec<JoinHandle<_>> = (0..50)
        .map(|n| {
            let store = fixture.store.clone();
            tokio::spawn(async move { store.claim(request(key(n))).await })
        })
        .collect();
    settle().await;
    let ((), ()) = tokio::join!(fixture.store.close(), async {
        settle().await;
        release(lock).await;
    });
    for claim in join_all(claims).await {
        leased(
            claim
                .expect("no panic")
                .expect("accepted before the store was closed"),
        );
    }
    let log = fixture.path().with_extension("db-wal");
    assert!(!log.exists(), "the log was not folded into the database");

    let store = &fixture.store;
    store.close().await;
    let kinds = [
        store.claim(request(key(1))).await.map(drop),
        store.get(key(1)).await.map(drop),
        store.expired(1).await.map(drop),
        store.renew(&[]).await.map(drop),
        store.sweep(None, 1).await.map(drop),
        store.now().await.map(drop),
        store.migrate().await,
    ];
    for refused in kinds {
        let error = refused.expect_err("closed");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
    let reopened = fixture.other().await;
    assert!(reopened.get(key(49)).await.expect("an answer").is_some());
}

async fn release(mut lock: Raw) {
    lock.run("COMMIT").await;
}
