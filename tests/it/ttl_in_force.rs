//! From which age on a key is looked up: the smallest TTL in force, over
//! policies, processes and deploys.

use std::time::Duration;

use axum_idempotency::{Policy, PrincipalSource, Retry, StoreDown, Ttl};
use tokio::time::sleep;

use crate::support::{Backend, Fault, Opening, Shop, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    a_record_of_the_shortest_policy_is_found_by_every_other,
    a_policy_that_is_added_later_counts_from_then_on,
    a_process_that_began_earlier_with_a_shorter_ttl_counts,
    a_deploy_that_raises_the_ttl_opens_no_gap,
    the_ttl_is_published_once_for_many_requests,
    while_the_ttl_cannot_be_published_nothing_runs,
    an_open_policy_runs_although_the_ttl_cannot_be_published,
);

on_tokio_time!(
    a_process_that_begins_later_with_a_shorter_ttl_is_noticed,
    what_was_read_of_the_ttls_does_not_hold_for_ever,
    a_reread_that_is_never_answered_does_not_stop_the_next,
);

fn with_ttl(opening: Opening, ttl: Duration) -> Opening {
    opening.policy(|policy| policy.ttl(Ttl::new(ttl).expect("a TTL")))
}

/// Whether a key of this age is looked up.
async fn looks_up(backend: &Backend, shop: &Shop, age: Duration) -> bool {
    let before = shop.archive.calls(Verb::Lookup);
    let key = backend.ulid_made_before(age);
    let answer = shop.post("/charges").key(&key).send().await;
    assert_eq!(answer.status, 201, "a fresh key runs");
    shop.archive.calls(Verb::Lookup) > before
}

async fn a_record_of_the_shortest_policy_is_found_by_every_other(backend: Backend) {
    let store = backend.process();
    let short = with_ttl(backend.shop().over(store.clone()), HOUR)
        .open()
        .await;
    let long = with_ttl(backend.shop().over(store), 24 * HOUR).open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    short.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(HOUR);
    assert_eq!(backend.sweep().await, 1);
    let late = long.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(
        long.work.runs(),
        0,
        "a late retry ran behind the other policy"
    );
}

async fn a_policy_that_is_added_later_counts_from_then_on(backend: Backend) {
    let shop = with_ttl(backend.shop(), 24 * HOUR).open().await;
    assert!(
        !looks_up(&backend, &shop, 2 * HOUR).await,
        "no record lives that short"
    );
    let short = Policy::builder(PrincipalSource::bearer())
        .ttl(Ttl::new(HOUR).unwrap())
        .build()
        .unwrap();
    let _short = shop.layer.with_policy(short).unwrap();
    assert!(
        looks_up(&backend, &shop, 2 * HOUR).await,
        "the shorter TTL is in force"
    );
    assert!(
        !looks_up(&backend, &shop, HOUR / 2).await,
        "a young key is looked up"
    );
}

async fn a_process_that_began_earlier_with_a_shorter_ttl_counts(backend: Backend) {
    let short = with_ttl(backend.shop(), HOUR).open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    short.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(HOUR);
    assert_eq!(backend.sweep().await, 1);
    let long = with_ttl(backend.shop(), 24 * HOUR).open().await;
    let late = long.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(long.work.runs(), 0, "a late retry ran in the other process");
}

/// 1. The old version publishes an hour, and serves.
/// 2. Its last record can be made as long as it runs, and retried for as long
///    as the new version keeps its own.
async fn a_deploy_that_raises_the_ttl_opens_no_gap(backend: Backend) {
    let old = with_ttl(backend.shop(), HOUR).open().await;
    old.post("/charges").key("k").send().await.expect_run(1);
    for (passed, is_in_force) in [
        (Duration::ZERO, true),
        (23 * HOUR, true),
        // A day after the old one published last, nothing of it is left.
        (2 * HOUR, false),
    ] {
        backend.clock.advance(passed);
        let new = with_ttl(backend.shop(), 24 * HOUR).open().await;
        let looks_up = looks_up(&backend, &new, 2 * HOUR).await;
        assert_eq!(looks_up, is_in_force, "{passed:?} later");
    }
}

async fn the_ttl_is_published_once_for_many_requests(backend: Backend) {
    let shop = backend.shop().open().await;
    for key in 0..20 {
        shop.post("/charges").key(&format!("k-{key}")).send().await;
    }
    assert_eq!(shop.store.calls(Verb::Publish), 1);
}

async fn while_the_ttl_cannot_be_published_nothing_runs(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.always(Verb::Publish, Fault::DOWN);
    for _ in 0..3 {
        let answer = shop.post("/charges").key("k").send().await;
        answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    }
    assert_eq!(shop.work.runs(), 0, "a request was judged by no TTL");
    shop.store.heal(Verb::Publish);
    shop.post("/charges").key("k").send().await.expect_run(1);
    assert_eq!(
        shop.store.calls(Verb::Release),
        0,
        "what was never claimed was released"
    );
}

async fn an_open_policy_runs_although_the_ttl_cannot_be_published(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.store_down(StoreDown::Open))
        .open()
        .await;
    shop.store.always(Verb::Publish, Fault::DOWN);
    shop.post("/charges").key("k").send().await.expect_run(1);
    assert_eq!(
        shop.store.calls(Verb::Claim),
        0,
        "a claim was judged by no TTL"
    );
}

/// 1. A serves, and has read the TTLs in force.
/// 2. B begins, with a shorter one.
/// 3. A rereads in the background, and looks up what B may have recorded.
async fn a_process_that_begins_later_with_a_shorter_ttl_is_noticed(backend: Backend) {
    let a = with_ttl(backend.shop(), 24 * HOUR).in_memory();
    assert!(
        !looks_up(&backend, &a, 2 * HOUR).await,
        "no record lives that short"
    );
    let b = with_ttl(backend.shop(), HOUR).in_memory();
    b.post("/charges").key("k").send().await.expect_run(1);
    sleep(Duration::from_secs(15)).await;
    a.post("/charges").key("k").send().await;
    a.store.answered(Verb::Publish, 2).await;
    assert!(
        looks_up(&backend, &a, 2 * HOUR).await,
        "B's TTL went unnoticed"
    );
}

/// 1. The TTLs in force were read; the store does not answer any more when
///    they are to be reread.
/// 2. For a while they still hold; then nobody can say, and nothing runs.
async fn what_was_read_of_the_ttls_does_not_hold_for_ever(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.post("/charges").key("k-1").send().await.expect_run(1);
    shop.store.always(Verb::Publish, Fault::DOWN);
    sleep(Duration::from_secs(29)).await;
    shop.post("/charges").key("k-2").send().await.expect_run(2);
    sleep(Duration::from_secs(2)).await;
    let unsure = shop.post("/charges").key("k-3").send().await;
    unsure.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.store.heal(Verb::Publish);
    shop.post("/charges").key("k-3").send().await.expect_run(3);
}

/// 1. The TTLs in force are reread in the background, and the store never
///    answers.
/// 2. They grow too old to be judged by, and the next request asks itself.
async fn a_reread_that_is_never_answered_does_not_stop_the_next(backend: Backend) {
    let shop = backend.shop().in_memory();
    shop.post("/charges").key("k-1").send().await.expect_run(1);
    shop.store.next(Verb::Publish, Fault::Hangs);
    sleep(Duration::from_secs(15)).await;
    shop.post("/charges").key("k-2").send().await.expect_run(2);
    sleep(Duration::from_secs(31)).await;
    shop.post("/charges").key("k-3").send().await.expect_run(3);
}

const HOUR: Duration = Duration::from_hours(1);
