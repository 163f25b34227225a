//! Claims.

use std::time::Duration;

use axum_idempotency::{
    claim::{Claim, ClaimOutcome, ClaimRequest},
    store::{Fenced, Store as _, StoreErrorKind},
};
use futures_util::future::join_all;

use super::{
    Fixture, Hold, LEASE, around, claim, completion, fingerprint, hide, in_time, key, leased,
    promptly, request,
};

/// Claims all keys around `odd` at once, and answers what it got. The others
/// are all fresh.
async fn claim_around(fixture: &Fixture, odd: ClaimRequest) -> Claim {
    let keys = around(odd.key);
    let claims = keys.iter().map(|&key| {
        let request = if key == odd.key {
            odd.clone()
        } else {
            request(key)
        };
        fixture.store.claim(request)
    });
    let answers = promptly("claims of other keys", join_all(claims)).await;
    let mut of_odd = None;
    for (key, answer) in keys.into_iter().zip(answers) {
        let answer = answer.expect("an answer");
        if key == odd.key {
            of_odd = Some(answer);
        } else {
            assert_eq!(leased(answer).attempt, 1);
        }
    }
    of_odd.expect("an answer")
}

fn assert_in_flight(claim: &Claim) {
    let outcome = &claim.outcome;
    assert!(
        matches!(outcome, ClaimOutcome::InFlight { .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_locked_record_is_answered_as_it_can_be_read() {
    for hold in Hold::ALL {
        in_time(async {
            let fixture = Fixture::new().await;
            let token = fixture.claim(key("held")).await;
            let _lock = hold.on(&fixture, key("held")).await;
            assert_in_flight(&claim_around(&fixture, request(key("held"))).await);
            let mut other = request(key("held"));
            other.fingerprint = fingerprint(2);
            let claim = promptly("a mismatch", fixture.store.claim(other)).await;
            let outcome = claim.expect("an answer").outcome;
            assert!(matches!(outcome, ClaimOutcome::Mismatch), "{outcome:?}");
            // Its own attempt owns it all the same, for as long as its lease runs.
            let mut own = request(key("held"));
            own.token = token;
            let claim = promptly("its own claim", fixture.store.claim(own)).await;
            let outcome = claim.expect("an answer").outcome;
            assert!(matches!(outcome, ClaimOutcome::Claimed(_)), "{outcome:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_locked_record_that_is_completed_is_replayed() {
    for hold in Hold::ALL {
        in_time(async {
            let fixture = Fixture::new().await;
            let token = fixture.claim(key("held")).await;
            let done = fixture.store.complete(key("held"), token, completion(201));
            assert_eq!(done.await.expect("an answer"), Fenced::Owner);
            let _lock = hold.on(&fixture, key("held")).await;
            let answer = claim_around(&fixture, request(key("held"))).await;
            let outcome = answer.outcome;
            assert!(matches!(outcome, ClaimOutcome::Completed(_)), "{outcome:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_locked_record_whose_lease_lapsed_is_in_flight_until_it_is_free() {
    for hold in Hold::ALL {
        in_time(async {
            let fixture = Fixture::new().await;
            let mut brief = request(key("held"));
            brief.lease = Duration::from_millis(1);
            claim(&fixture.store, brief).await;
            let mut raw = fixture.raw().await;
            raw.until("SELECT lease_until < clock_timestamp() FROM idempotency_keys")
                .await;

            let mut lock = hold.on(&fixture, key("held")).await;
            assert_in_flight(&claim_around(&fixture, request(key("held"))).await);
            lock.run("ROLLBACK").await;
            let taken = fixture.store.claim(request(key("held"))).await;
            assert_eq!(leased(taken.expect("an answer")).attempt, 2);
        })
        .await;
    }
}

#[tokio::test]
async fn a_record_that_nobody_can_see_yet_is_in_flight() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut lock = hide(&fixture, key("hidden")).await;
        assert_in_flight(&claim_around(&fixture, request(key("hidden"))).await);
        let again = fixture.store.claim(request(key("hidden")));
        assert_in_flight(&promptly("a lone claim", again).await.expect("an answer"));

        lock.run("COMMIT").await;
        let seen = fixture.store.claim(request(key("hidden"))).await;
        let outcome = seen.expect("an answer").outcome;
        assert!(matches!(outcome, ClaimOutcome::Mismatch), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn a_record_that_is_undone_before_anybody_saw_it_is_claimed_afresh() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut lock = hide(&fixture, key("hidden")).await;
        assert_in_flight(&claim_around(&fixture, request(key("hidden"))).await);
        lock.run("ROLLBACK").await;
        let claim = fixture.store.claim(request(key("hidden"))).await;
        assert_eq!(leased(claim.expect("an answer")).attempt, 1);
    })
    .await;
}

#[tokio::test]
async fn several_records_that_nobody_can_see_delay_nobody() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut locks = Vec::new();
        for name in ["h-1", "h-2", "h-3"] {
            locks.push(hide(&fixture, key(name)).await);
        }
        // Again and again, as clients repeat what is not answered.
        for round in 0..5 {
            let hidden = ["h-1", "h-2", "h-3"].map(|name| fixture.store.claim(request(key(name))));
            let fresh = (0..60).map(|n| fixture.store.claim(request(key(round * 100 + n))));
            let fresh = promptly("claims of other keys", join_all(fresh));
            let (hidden, fresh) = tokio::join!(join_all(hidden), fresh);
            for claim in hidden {
                assert_in_flight(&claim.expect("an answer"));
            }
            for claim in fresh {
                leased(claim.expect("an answer"));
            }
        }
    })
    .await;
}

/// A claim waits for a record that is just being written, which is undone while
/// it waits.
#[tokio::test]
async fn a_claim_that_waited_has_most_of_its_lease_left() {
    in_time(async {
        let fixture = Fixture::new().await;
        // The longest wait is a fifth of it, up to 100 ms.
        let lease = Duration::from_millis(400);
        for round in 0..5 {
            let mut brief = request(key(round));
            brief.lease = lease;
            let mut lock = hide(&fixture, brief.key).await;
            let claim = tokio::spawn({
                let store = fixture.store.clone();
                async move { store.claim(brief).await }
            });
            lock.until_waiting(1).await;
            lock.run("ROLLBACK").await;
            let undone = lock.get::<i64>(MICROS).await;
            let claim = claim.await.expect("no panic").expect("an answer");
            if matches!(claim.outcome, ClaimOutcome::InFlight { .. }) {
                // This machine was too slow to undo it in time.
                continue;
            }
            let until = leased(claim).lease_until.as_microsecond();
            let left = Duration::from_micros(u64::try_from(until - undone).unwrap_or(0));
            assert!(left >= lease * 3 / 4, "{left:?} left of {lease:?}");
        }
    })
    .await;
}

const MICROS: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

#[tokio::test]
async fn locks_on_the_archive_side_of_a_sweep_delay_no_claim() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut brief = request(key("old"));
        (brief.lease, brief.ttl) = (Duration::from_millis(1), Duration::from_millis(2));
        claim(&fixture.store, brief).await;
        let mut raw = fixture.raw().await;
        raw.until("SELECT expires_at < clock_timestamp() FROM idempotency_keys")
            .await;
        let _lock = Hold::Locked.on(&fixture, key("old")).await;
        let swept = promptly("a sweep", fixture.store.sweep(None, 100)).await;
        assert_eq!(swept.expect("an answer"), 0, "it is left to the next sweep");
        let claim = claim_around(&fixture, request(key("old"))).await;
        let outcome = claim.outcome;
        assert!(
            matches!(
                outcome,
                ClaimOutcome::InFlight { .. } | ClaimOutcome::Expired(_)
            ),
            "{outcome:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_store_that_cannot_write_a_key_in_time_says_so() {
    in_time(async {
        let fixture = Fixture::with(|builder| {
            builder
                .acquire_timeout(Duration::from_millis(200))
                .statement_timeout(Duration::from_millis(300))
        })
        .await;
        let mut raw = fixture.raw().await;
        raw.run("BEGIN").await;
        raw.run("LOCK TABLE idempotency_keys IN SHARE ROW EXCLUSIVE MODE")
            .await;
        let late = promptly("its refusal", fixture.store.claim(request(key("k")))).await;
        let error = late.expect_err("nothing can be written");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        raw.run("ROLLBACK").await;
        let mut fresh = request(key("k"));
        fresh.lease = LEASE;
        claim(&fixture.store, fresh).await;
    })
    .await;
}
