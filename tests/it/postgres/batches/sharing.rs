//! How many statements and round trips there are.

use axum_idempotency::{
    Completion,
    claim::ClaimOutcome,
    store::{Fenced, Store as _, postgres::PostgresStore},
};
use futures_util::future::join_all;

use super::{
    Fixture, all, claim, completion, in_time, key, leased, lock_the_table, request, response,
    start, statements,
};
use crate::support::postgres::{Proxy, Schema};

#[tokio::test]
async fn what_is_asked_together_shares_statements() {
    const CALLS: usize = 200;
    in_time(async {
        let fixture = Fixture::new().await;
        let mut lock = lock_the_table(&fixture).await;
        let store = &fixture.store;
        let claims = start((0..CALLS).map(|n| {
            let (store, request) = (store.clone(), request(key(n)));
            async move { (request.key, claim(&store, request).await) }
        }))
        .await;
        lock.until_waiting(2).await;
        lock.run("COMMIT").await;
        let attempts = all(claims).await;
        // Four are under way while they are slow, and went with what was there.
        let claimed = statements(&mut lock).await;
        assert!((1..=6).contains(&claimed), "{claimed} for {CALLS} claims");

        let mut lock = lock_the_table(&fixture).await;
        let completions = start(attempts.into_iter().map(|(key, token)| {
            let store = store.clone();
            async move { store.complete(key, token, completion(201)).await }
        }))
        .await;
        lock.until_waiting(2).await;
        lock.run("COMMIT").await;
        for done in all(completions).await {
            assert_eq!(done.expect("an answer"), Fenced::Owner);
        }
        let completed = statements(&mut lock).await;
        assert!((1..=6).contains(&completed), "{completed} for {CALLS}");
    })
    .await;
}

#[tokio::test]
async fn a_lone_request_costs_two_round_trips_and_a_replay_one() {
    in_time(async {
        let schema = Schema::new();
        let proxy = Proxy::before(&schema.url());
        let store = PostgresStore::open(&proxy.url()).await.expect("a store");
        let once = async |n: u32| {
            let before = proxy.round_trips();
            let token = claim(&store, request(key(n))).await;
            let claimed = proxy.round_trips();
            let done = store.complete(key(n), token, completion(201)).await;
            assert_eq!(done.expect("an answer"), Fenced::Owner);
            let completed = proxy.round_trips();
            let replay = store.claim(request(key(n))).await.expect("an answer");
            assert!(matches!(replay.outcome, ClaimOutcome::Completed(_)));
            [
                claimed - before,
                completed - claimed,
                proxy.round_trips() - completed,
            ]
        };
        // Connections are made, and statements prepared.
        once(0).await;
        for n in 1..10 {
            assert_eq!(once(n).await, [1, 1, 1], "claim, completion, replay");
        }
        let token = claim(&store, request(key("released"))).await;
        let before = proxy.round_trips();
        let released = store.release(key("released"), token).await;
        assert_eq!(released.expect("an answer"), Fenced::Owner);
        let trips = proxy.round_trips() - before;
        assert!(trips <= 2, "{trips} for a release");
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn large_bodies_do_not_all_go_in_one_statement() {
    const CALLS: usize = 300;
    in_time(async {
        let fixture = Fixture::new().await;
        let attempts = fixture.claims(CALLS).await;
        let mut lock = lock_the_table(&fixture).await;
        let large = Completion {
            response: Some(response(&[], &vec![b'x'; 1 << 20])),
            ..completion(201)
        };
        let done = attempts
            .iter()
            .map(|&(key, token)| fixture.store.complete(key, token, large.clone()));
        let free = async {
            lock.until_waiting(2).await;
            lock.run("COMMIT").await;
        };
        let (done, ()) = tokio::join!(join_all(done), free);
        for done in done {
            assert_eq!(done.expect("an answer"), Fenced::Owner);
        }
        let largest = "SELECT max(bytes) FROM (SELECT sum(octet_length(body)) AS bytes \
                       FROM idempotency_keys GROUP BY xmin::text) s";
        let largest: i64 = lock.get(&format!("SELECT ({largest})::bigint")).await;
        assert!(largest <= 4 << 20, "{largest} bytes in one statement");
        let count: i64 = lock.get("SELECT count(body) FROM idempotency_keys").await;
        assert_eq!(count, 300);
    })
    .await;
}

#[tokio::test]
async fn callers_who_leave_take_no_answer_with_them() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut lock = lock_the_table(&fixture).await;
        let claims = start((0..100).map(|n| {
            let store = fixture.store.clone();
            async move { store.claim(request(key(n))).await }
        }))
        .await;
        lock.until_waiting(1).await;
        let mut stay = Vec::new();
        for (n, call) in claims.into_iter().enumerate() {
            if n % 2 == 0 {
                call.abort();
            } else {
                stay.push(call);
            }
        }
        lock.run("COMMIT").await;
        for claim in all(stay).await {
            leased(claim.expect("an answer"));
        }
        // What was sent is run; nothing is left half done.
        let broken = "SELECT count(*) FROM idempotency_keys WHERE lease_until IS NULL";
        assert_eq!(lock.get::<i64>(broken).await, 0);
        let count: i64 = lock.get("SELECT count(*) FROM idempotency_keys").await;
        assert!((50..=100).contains(&count), "{count} records");
    })
    .await;
}
