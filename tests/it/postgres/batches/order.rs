//! Several calls of one key, and two processes with the same keys.

use axum_idempotency::{
    claim::{Claim, ClaimOutcome},
    store::{Fenced, Store as _},
};

use super::{
    Fixture, all, claim, completion, fingerprint, in_time, key, leased, lock_the_table, promptly,
    request, start,
};

#[tokio::test]
async fn of_many_claims_of_a_key_one_runs() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut lock = lock_the_table(&fixture).await;
        let claims = start((0..64).map(|n| {
            let store = fixture.store.clone();
            let mut request = request(key("k"));
            request.fingerprint = fingerprint(n % 2);
            async move { store.claim(request).await.expect("an answer").outcome }
        }))
        .await;
        lock.until_waiting(1).await;
        lock.run("COMMIT").await;
        let outcomes = all(claims).await;
        let ClaimOutcome::Claimed(_) = outcomes[0] else {
            panic!("the first comes first: {outcomes:?}");
        };
        let count =
            |wanted: fn(&ClaimOutcome) -> bool| outcomes.iter().filter(|one| wanted(one)).count();
        assert_eq!(count(|one| matches!(one, ClaimOutcome::Claimed(_))), 1);
        assert_eq!(
            count(|one| matches!(one, ClaimOutcome::InFlight { .. })),
            31
        );
        assert_eq!(count(|one| matches!(one, ClaimOutcome::Mismatch)), 32);
    })
    .await;
}

#[tokio::test]
async fn of_claims_of_a_key_by_two_processes_one_runs() {
    in_time(async {
        let fixture = Fixture::new().await;
        let stores = [fixture.store.clone(), fixture.other().await];
        for round in 0..20 {
            let claims = start((0..16).map(|n| {
                let store = stores[n % 2].clone();
                async move {
                    store
                        .claim(request(key(round)))
                        .await
                        .expect("an answer")
                        .outcome
                }
            }))
            .await;
            let outcomes = promptly("a race", all(claims)).await;
            let won = |one: &&ClaimOutcome| matches!(one, ClaimOutcome::Claimed(_));
            assert_eq!(outcomes.iter().filter(won).count(), 1, "{outcomes:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_calls_of_a_key_keep_their_order_in_a_lane() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut lock = lock_the_table(&fixture).await;
        let (first, second, third) = (request(key("k")), request(key("k")), request(key("k")));
        let store = || fixture.store.clone();
        let claim = |request| {
            let store = store();
            Box::pin(async move { Ok(store.claim(request).await.expect("an answer")) })
                as std::pin::Pin<Box<dyn Future<Output = Result<Claim, Fenced>> + Send>>
        };
        let release = |token| {
            let store = store();
            Box::pin(async move { Err(store.release(key("k"), token).await.expect("an answer")) })
                as std::pin::Pin<Box<dyn Future<Output = Result<Claim, Fenced>> + Send>>
        };
        let (one, two) = (first.token, second.token);
        let calls = start([
            claim(first),
            claim(second),
            release(two),
            release(one),
            claim(third),
            release(one),
        ])
        .await;
        lock.until_waiting(1).await;
        lock.run("COMMIT").await;
        let mut answers = all(calls).await.into_iter();
        let mut next = || answers.next().expect("an answer for each");
        assert_eq!(leased(next().expect("a claim")).attempt, 1);
        let second = next().expect("a claim").outcome;
        assert!(
            matches!(second, ClaimOutcome::InFlight { .. }),
            "{second:?}"
        );
        assert_eq!(next().expect_err("a release"), Fenced::Stale);
        assert_eq!(next().expect_err("a release"), Fenced::Owner);
        assert_eq!(leased(next().expect("a claim")).attempt, 1);
        assert_eq!(next().expect_err("a release"), Fenced::Stale);
    })
    .await;
}

#[tokio::test]
async fn of_two_completions_of_an_attempt_the_first_is_kept() {
    in_time(async {
        let fixture = Fixture::new().await;
        let token = fixture.claim(key("k")).await;
        let mut lock = lock_the_table(&fixture).await;
        let completions = start([201, 202, 203].map(|status| {
            let store = fixture.store.clone();
            async move { store.complete(key("k"), token, completion(status)).await }
        }))
        .await;
        lock.until_waiting(1).await;
        lock.run("COMMIT").await;
        for done in all(completions).await {
            assert_eq!(done.expect("an answer"), Fenced::Owner);
        }
        let status: i16 = lock.get("SELECT status_code FROM idempotency_keys").await;
        assert_eq!(status, 201);
    })
    .await;
}

#[tokio::test]
async fn two_processes_with_the_same_keys_in_opposite_orders_never_deadlock() {
    const KEYS: usize = 100;
    in_time(async {
        let fixture = Fixture::new().await;
        let stores = [fixture.store.clone(), fixture.other().await];
        let mut raw = fixture.raw().await;
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        let before: i64 = raw.get(deadlocks).await;
        for round in 0..10 {
            let name = move |n: usize| key(round * KEYS + n);
            let forth = (0..KEYS).map(|n| (0, name(n)));
            let back = (0..KEYS).rev().map(|n| (1, name(n)));
            let calls = start(forth.chain(back).map(|(process, key)| {
                let store: axum_idempotency::store::postgres::PostgresStore =
                    stores[process].clone();
                async move {
                    let request = request(key);
                    let token = request.token;
                    let claim = store.claim(request).await.expect("an answer");
                    if let ClaimOutcome::Claimed(_) = claim.outcome {
                        let done = store.complete(key, token, completion(201)).await;
                        assert_eq!(done.expect("an answer"), Fenced::Owner);
                        return 1;
                    }
                    0
                }
            }))
            .await;
            let claimed: usize = all(calls).await.into_iter().sum();
            assert_eq!(claimed, KEYS);
        }
        drop(stores);
        fixture.store.close().await;
        let after: i64 = raw.get(deadlocks).await;
        assert_eq!(after, before, "deadlocks");
    })
    .await;
}

#[tokio::test]
async fn a_key_is_free_for_the_next_as_soon_as_it_is_released() {
    in_time(async {
        let fixture = Fixture::new().await;
        for _ in 0..20 {
            let token = claim(&fixture.store, request(key("k"))).await;
            let released = fixture.store.release(key("k"), token).await;
            assert_eq!(released.expect("an answer"), Fenced::Owner);
        }
    })
    .await;
}
