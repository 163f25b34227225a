//! How often Redis is asked.

use std::time::Duration;

use axum_idempotency::{
    InFlight,
    archive::MemoryArchive,
    store::{Fenced, Store as _, redis::RedisStore},
};

use super::open;
use crate::support::{
    Backend, PATIENCE, Verb,
    attempt::{completion, key, leased, request},
    in_time,
    redis::{Proxy, Server},
};

/// Commands of clients since the server was asked last: what scripts do does not
/// count as one.
struct Counter<'a> {
    server: &'a Server,
    scripts: u64,
}

impl<'a> Counter<'a> {
    async fn start(server: &'a Server) -> Self {
        let scripts = server.calls("evalsha").await;
        Self { server, scripts }
    }

    async fn scripts(&mut self) -> u64 {
        let scripts = self.server.calls("evalsha").await;
        let since = scripts - self.scripts;
        self.scripts = scripts;
        since
    }
}

async fn every_script_is_loaded(store: &RedisStore) {
    let warm = request(key("warm"));
    leased(store.claim(warm.clone()).await.expect("an answer"));
    let done = store.complete(warm.key, warm.token, completion(201));
    assert_eq!(done.await.expect("an answer"), Fenced::Owner);
}

#[tokio::test]
async fn claim_completion_and_replay_are_one_round_trip_each() {
    in_time(async {
        let server = Server::start().await;
        let proxy = Proxy::before(&server.url());
        let store = open(&proxy.url()).await;
        every_script_is_loaded(&store).await;
        let mut counter = Counter::start(&server).await;
        let mut trips = proxy.round_trips();
        let mut is_one = async |what: &str| {
            assert_eq!(counter.scripts().await, 1, "scripts for {what}");
            let now = proxy.round_trips();
            assert_eq!(
                now - std::mem::replace(&mut trips, now),
                1,
                "round trips for {what}"
            );
        };
        let first = request(key("k"));
        leased(store.claim(first.clone()).await.expect("an answer"));
        is_one("a claim").await;
        let done = store.complete(first.key, first.token, completion(201));
        assert_eq!(done.await.expect("an answer"), Fenced::Owner);
        is_one("a completion").await;
        store.claim(request(key("k"))).await.expect("an answer");
        is_one("a replay").await;
        for other in ["eval", "get", "multi", "watch", "script|load"] {
            let calls = server.calls(other).await;
            // Scripts read completed records, and each was loaded once.
            let allowed = if other == "get" || other == "script|load" {
                4
            } else {
                0
            };
            assert!(calls <= allowed, "{calls} of {other}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_asks_redis_twice_a_replay_once_and_a_duplicate_in_flight_never() {
    in_time(async {
        let server = Server::start().await;
        let store = open(&server.url()).await;
        every_script_is_loaded(&store).await;
        let backend = Backend::over(store, MemoryArchive::new(), ());
        let shop = backend
            .shop()
            .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
            .open()
            .await;
        // The TTL in force is read with the first.
        shop.post("/charges")
            .key("before")
            .send()
            .await
            .expect_run(1);
        let mut counter = Counter::start(&server).await;
        let young = backend.ulid_made_before(Duration::ZERO);
        let handler = shop.work.hold();
        let first = shop.post("/charges").key(&young).start();
        handler.reached().await;
        let duplicate = shop.post("/charges").key(&young).start();
        tokio::task::yield_now().await;
        assert_eq!(counter.scripts().await, 1, "a claim");
        handler.open();
        let first = first.answer().await;
        duplicate.answer().await.expect_replay_of(&first);
        assert_eq!(counter.scripts().await, 1, "a completion");
        let repeat = shop.post("/charges").key(&young).send().await;
        repeat.expect_replay_of(&first);
        assert_eq!(counter.scripts().await, 1, "a replay");
        assert_eq!(shop.archive.calls(Verb::Lookup), 0, "lookups of young keys");
        assert_eq!(
            shop.archive.calls(Verb::Insert),
            2,
            "a row for each outcome"
        );
    })
    .await;
}
