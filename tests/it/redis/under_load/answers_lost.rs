//! A connection that is cut when a script has run and its answer is on the way:
//! the server has done it, and the store cannot know.

use std::{sync::Arc, time::Duration};

use axum::response::IntoResponse as _;
use axum_idempotency::{Retry, archive::MemoryArchive, store::redis::RedisStore};
use http::StatusCode;
use redis::Script;

use super::{Ledger, Load, Repeats, Services, load::answer};
use crate::support::{
    Backend, FaultyArchive, FaultyStore, Opening, Shop, Verb, Work, in_time,
    redis::{Proxy, Server},
};

/// By what a call names a script of the store.
macro_rules! digest_of {
    ($first:literal, $name:literal) => {
        Script::new(concat!(
            $first,
            include_str!("../../../../src/store/redis/lua/record.lua"),
            include_str!(concat!("../../../../src/store/redis/lua/", $name, ".lua")),
        ))
        .get_hash()
        .to_owned()
    };
}

fn claim() -> String {
    digest_of!("", "claim")
}

fn complete() -> String {
    digest_of!("#!lua flags=allow-oom\n", "complete")
}

fn release() -> String {
    digest_of!("#!lua flags=allow-oom\n", "release")
}

fn renew() -> String {
    digest_of!("#!lua flags=allow-oom\n", "renew")
}

/// With the answer that is lost, those to all that the process is asking are.
async fn answers_are_lost_under_load(to: String) {
    let server = Server::start().await;
    let address = Proxy::before(&server.url());
    let services = Services::over([address.url(), address.url()]).await;
    let mut load = Load::on(services).await;
    for times in 1..=10 {
        address.cut_answer_to(to.clone());
        address.has_fired(times).await;
        load.answers(10).await;
    }
    load.goes_well().await;
    let after = load.stop().await;
    after.runs_nothing_twice();
    after.keeps_its_word(Repeats::Replays).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_claims_are_lost_and_nobody_notices() {
    in_time(answers_are_lost_under_load(claim())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_completions_are_lost_and_nobody_notices() {
    in_time(answers_are_lost_under_load(complete())).await;
}

/// A server by way of a proxy, and two processes.
struct Scene {
    server: Server,
    address: Proxy,
    archive: FaultyArchive,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start().await;
        Self {
            address: Proxy::before(&server.url()),
            archive: FaultyArchive::over(Arc::new(MemoryArchive::new())),
            server,
        }
    }

    /// The process whose answers are lost.
    async fn near(&self) -> Opening {
        self.process(&self.address.url()).await
    }

    /// One that nothing happens to.
    async fn far(&self) -> Shop {
        self.process(&self.server.url()).await.in_memory()
    }

    async fn process(&self, url: &str) -> Opening {
        let store = RedisStore::open(url).await.expect("the server is there");
        let opening = Backend::memory().shop();
        let opening = opening.over(FaultyStore::over(Arc::new(store)));
        opening.archive(self.archive.clone())
    }
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_its_own_when_it_is_repeated() {
    in_time(async {
        let scene = Scene::set().await;
        let (near, far) = (scene.near().await.in_memory(), scene.far().await);
        near.post("/charges").key("warm").send().await.expect_run(1);
        let handler = near.work.hold();
        scene.address.cut_answer_to(claim());
        let first = near.post("/charges").key("k").start();
        handler.reached().await;
        assert_eq!(scene.address.fired(), 1);
        let other = far.post("/charges").key("k").send().await;
        other.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
        handler.open();
        let first = first.answer().await;
        first.expect_run(2);
        assert_eq!(first.json()["attempt"], 1, "it took over from itself");
        far.post("/charges")
            .key("k")
            .send()
            .await
            .expect_replay_of(&first);
    })
    .await;
}

#[tokio::test]
async fn a_completion_whose_answer_is_lost_is_answered_as_it_was_made() {
    in_time(async {
        let scene = Scene::set().await;
        let (near, far) = (scene.near().await.in_memory(), scene.far().await);
        near.post("/charges").key("warm").send().await.expect_run(1);
        scene.address.cut_answer_to(complete());
        let first = near.post("/charges").key("k").send().await;
        first.expect_run(2);
        assert_eq!(scene.address.fired(), 1);
        far.post("/charges")
            .key("k")
            .send()
            .await
            .expect_replay_of(&first);
        near.post("/charges")
            .key("k")
            .send()
            .await
            .expect_replay_of(&first);
    })
    .await;
}

/// 1. A status that is not kept: the claim is given back, and the answer to that
///    is lost.
/// 2. A retry has the key by the time that it is given back again: it stays the
///    retry's.
#[tokio::test]
async fn a_release_whose_answer_is_lost_gives_back_nothing_but_its_own() {
    in_time(async {
        let scene = Scene::set().await;
        let busy = Work::answering(async |_| StatusCode::TOO_MANY_REQUESTS.into_response());
        let near = scene.near().await.work(busy).in_memory();
        let far = scene.far().await;
        assert_eq!(near.post("/charges").key("warm").send().await.status, 429);
        let again = near.store.calls(Verb::Release) + 2;
        let first_try = near.store.hold_before(Verb::Release);
        first_try.open();
        let held = near.store.hold_before(Verb::Release);
        scene.address.cut_answer_to(release());
        let first = near.post("/charges").key("k").send().await;
        assert_eq!(first.status, 429, "the client has its answer");
        assert_eq!(scene.address.fired(), 1);
        held.reached().await;
        let handler = far.work.hold();
        let retry = far.post("/charges").key("k").start();
        handler.reached().await;
        held.open();
        near.store.answered(Verb::Release, again).await;
        let early = near.post("/charges").key("k").send().await;
        early.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
        handler.open();
        retry.answer().await.expect_run(1);
    })
    .await;
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_keeps_the_lease() {
    in_time(async {
        let scene = Scene::set().await;
        let lease = Duration::from_secs(1);
        let near = scene.near().await.policy(|policy| policy.lease(lease));
        let (near, far) = (near.in_memory(), scene.far().await);
        let handler = near.work.hold();
        let first = near.post("/charges").key("k").start();
        handler.reached().await;
        for times in 1..=3 {
            scene.address.cut_answer_to(renew());
            scene.address.has_fired(times).await;
        }
        // By then more than the first lease is over.
        let renewals = near.store.calls(Verb::Renew);
        near.store.answered(Verb::Renew, renewals + 2).await;
        let other = far.post("/charges").key("k").send().await;
        other.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
        handler.open();
        let first = first.answer().await;
        first.expect_run(1);
        far.post("/charges")
            .key("k")
            .send()
            .await
            .expect_replay_of(&first);
        assert_eq!(far.work.runs(), 0);
    })
    .await;
}

/// The claim has landed, and the store cannot be asked again: the key must not be
/// blocked by an attempt that nobody makes.
#[tokio::test]
async fn a_claim_of_unknown_result_leaves_no_ghost() {
    in_time(async {
        let mut scene = Scene::set().await;
        let (near, far) = (scene.near().await.in_memory(), scene.far().await);
        near.post("/charges").key("warm").send().await.expect_run(1);
        scene.address.refuse().await;
        scene.address.cut_answer_to(claim());
        let refused = near.post("/charges").key("k").send().await;
        refused.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
        assert_eq!(scene.address.fired(), 1);
        let ghost = far.post("/charges").key("k").send().await;
        ghost.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
        scene.address.accept();
        // Long before its lease is over.
        let ledger = Ledger::default();
        answer(&far, "k", &ledger).await.expect_run(1);
        assert_eq!(near.work.runs(), 1, "it ran for nobody");
    })
    .await;
}
