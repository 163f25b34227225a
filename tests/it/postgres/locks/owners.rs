//! Completions, releases and renewals.

use std::time::Duration;

use axum_idempotency::{
    OwnerToken, ScopedKey,
    store::{
        Fenced, Renewal, Renewed, Store as _, StoreError, StoreErrorKind, postgres::PostgresStore,
    },
};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::{Fixture, Hold, LEASE, Raw, completion, in_time, key, leased, promptly, request};

type Attempt = (ScopedKey, OwnerToken);

#[derive(Clone, Copy, Debug)]
enum Ending {
    Completion,
    Release,
}

impl Ending {
    const BOTH: [Self; 2] = [Self::Completion, Self::Release];

    async fn ask(self, store: PostgresStore, (key, token): Attempt) -> Result<Fenced, StoreError> {
        match self {
            Self::Completion => store.complete(key, token, completion(201)).await,
            Self::Release => store.release(key, token).await,
        }
    }
}

fn renewal(&(key, token): &Attempt) -> Renewal {
    Renewal {
        key,
        token,
        lease: LEASE,
        confirmed: false,
    }
}

/// What is to become of the locked record.
struct Scene {
    fixture: Fixture,
    lock: Raw,
    held: Attempt,
    /// In the middle of the others when it was asked.
    waiting: JoinHandle<Result<Fenced, StoreError>>,
}

/// Ends 41 attempts at once, of which one is locked: the others are done while
/// it still is.
async fn end_around(hold: Hold, ending: Ending, fixture: Fixture) -> Scene {
    let attempts = fixture.claims(41).await;
    let chosen = attempts[20];
    let lock = hold.on(&fixture, chosen.0).await;
    let mut waiting = None;
    let mut others = Vec::new();
    for attempt in attempts {
        let asked = tokio::spawn(ending.ask(fixture.store.clone(), attempt));
        if attempt == chosen {
            waiting = Some(asked);
        } else {
            others.push(asked);
        }
    }
    for done in promptly("endings of other attempts", join_all(others)).await {
        let done = done.expect("no panic").expect("an answer");
        assert_eq!(done, Fenced::Owner, "{ending:?} beside {hold:?}");
    }
    // Nor what is asked after it.
    for later in [key("later-1"), key("later-2")] {
        let token = promptly("a later claim", fixture.claim(later)).await;
        let ended = ending.ask(fixture.store.clone(), (later, token));
        let ended = promptly("a later ending", ended).await;
        assert_eq!(ended.expect("an answer"), Fenced::Owner);
    }
    let waiting = waiting.expect("one is held");
    assert!(!waiting.is_finished(), "{ending:?} ended under {hold:?}");
    Scene {
        fixture,
        lock,
        held: chosen,
        waiting,
    }
}

#[tokio::test]
async fn the_ending_of_a_locked_record_takes_effect_when_the_lock_goes() {
    for hold in Hold::ALL {
        for ending in Ending::BOTH {
            in_time(async {
                let mut scene = end_around(hold, ending, Fixture::new().await).await;
                scene.lock.run("ROLLBACK").await;
                let ended = scene.waiting.await.expect("no panic");
                assert_eq!(ended.expect("an answer"), Fenced::Owner);
                let record = scene.fixture.store.get(scene.held.0).await;
                let record = record.expect("an answer");
                match ending {
                    Ending::Completion => assert!(!record.expect("kept").has_live_lease(now())),
                    Ending::Release => assert_eq!(record, None),
                }
            })
            .await;
        }
    }
}

/// Long before any lease of these tests ends: whoever has one has a live one.
fn now() -> jiff::Timestamp {
    jiff::Timestamp::UNIX_EPOCH
}

#[tokio::test]
async fn the_ending_of_a_record_that_was_deleted_meanwhile_is_stale() {
    for ending in Ending::BOTH {
        in_time(async {
            let mut scene = end_around(Hold::Deleted, ending, Fixture::new().await).await;
            scene.lock.run("COMMIT").await;
            let ended = scene.waiting.await.expect("no panic");
            assert_eq!(ended.expect("an answer"), Fenced::Stale);
        })
        .await;
    }
}

#[tokio::test]
async fn an_ending_that_waited_in_vain_is_unavailable_and_nothing_is_lost() {
    for ending in Ending::BOTH {
        in_time(async {
            let fixture = Fixture::with(|builder| {
                builder
                    .acquire_timeout(Duration::from_secs(1))
                    .statement_timeout(Duration::from_secs(2))
            });
            let mut scene = end_around(Hold::Updated, ending, fixture.await).await;
            let ended = scene.waiting.await.expect("no panic");
            let error = ended.expect_err("the record is still locked");
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            scene.lock.run("COMMIT").await;

            let store = scene.fixture.store.clone();
            let renewed = store.renew(&[renewal(&scene.held)]).await;
            let renewed = renewed.expect("an answer");
            assert!(matches!(renewed[..], [Renewed::Until(_)]), "{renewed:?}");
            let ended = ending.ask(store, scene.held).await;
            assert_eq!(ended.expect("an answer"), Fenced::Owner);
        })
        .await;
    }
}

#[tokio::test]
async fn the_renewal_of_a_locked_record_comes_back_and_the_others_are_done() {
    for hold in Hold::ALL {
        in_time(async {
            let fixture = Fixture::new().await;
            let attempts = fixture.claims(41).await;
            let held = attempts[20];
            let mut lock = hold.on(&fixture, held.0).await;
            let renewals: Vec<_> = attempts.iter().map(renewal).collect();
            let answers = promptly("renewals", fixture.store.renew(&renewals)).await;
            for (attempt, answer) in attempts.iter().zip(answers.expect("an answer")) {
                match answer {
                    Renewed::Locked => assert_eq!(*attempt, held, "of another record"),
                    Renewed::Until(_) => assert_ne!(*attempt, held, "under {hold:?}"),
                    Renewed::Lost => panic!("lost under {hold:?}"),
                }
            }
            lock.run("ROLLBACK").await;
            let answers = fixture.store.renew(&renewals[20..=20]).await;
            assert!(matches!(
                answers.expect("an answer")[..],
                [Renewed::Until(_)]
            ));
        })
        .await;
    }
}

#[tokio::test]
async fn a_renewal_after_the_record_was_deleted_is_lost() {
    in_time(async {
        let fixture = Fixture::new().await;
        let held = (key("held"), fixture.claim(key("held")).await);
        let mut lock = Hold::Deleted.on(&fixture, held.0).await;
        let answers = fixture.store.renew(&[renewal(&held)]).await;
        assert_eq!(answers.expect("an answer"), [Renewed::Locked]);
        lock.run("COMMIT").await;
        let answers = fixture.store.renew(&[renewal(&held)]).await;
        assert_eq!(answers.expect("an answer"), [Renewed::Lost]);
    })
    .await;
}

/// A user may read records in a transaction of theirs.
#[tokio::test]
async fn a_transaction_that_has_only_read_the_records_holds_nobody_up() {
    in_time(async {
        let fixture = Fixture::new().await;
        let attempts = fixture.claims(4).await;
        let mut reader = fixture.raw().await;
        reader.run("BEGIN ISOLATION LEVEL SERIALIZABLE").await;
        let read: i64 = reader.get("SELECT count(*) FROM idempotency_keys").await;
        assert_eq!(read, 4);
        for attempt in attempts {
            let renewals = [renewal(&attempt)];
            let renewed = promptly("a renewal", fixture.store.renew(&renewals)).await;
            let renewed = renewed.expect("an answer");
            assert!(matches!(renewed[..], [Renewed::Until(_)]));
            let ended = Ending::Completion.ask(fixture.store.clone(), attempt);
            let ended = promptly("a completion", ended).await;
            assert_eq!(ended.expect("an answer"), Fenced::Owner);
        }
        let claim = promptly("a claim", fixture.store.claim(request(key("fresh")))).await;
        leased(claim.expect("an answer"));
    })
    .await;
}
