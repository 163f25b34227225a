//! What a handler learns of its attempt, and what it declares before it has a
//! response.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::{RecordState, Recording, ResourceId, StoreDown};
use futures_util::future::{BoxFuture, FutureExt as _};
use http::StatusCode;
use tokio::time::sleep;

use crate::support::{Backend, Fault, Seen, Verb, Work, on_every_backend, on_tokio_time};

on_every_backend!(
    a_derived_key_is_the_same_at_every_attempt,
    another_name_or_another_caller_derives_another_key,
    what_was_named_before_a_panic_is_in_the_record,
    what_is_named_beside_the_response_comes_first,
    a_response_may_be_declared_forgotten_or_kept,
    what_is_declared_beside_the_response_comes_first,
    a_panic_is_recorded_whatever_was_declared,
);

on_tokio_time!(
    a_lease_shrinks_and_is_renewed,
    a_lease_that_is_not_renewed_runs_out,
    without_protection_there_is_no_lease,
);

/// A process that holds its first attempt, and one that takes over.
async fn a_derived_key_is_the_same_at_every_attempt(backend: Backend) {
    let derived = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&derived);
    let work = Work::answering(move |seen| {
        let key = seen.idempotency().derive("stripe");
        noted.lock().unwrap().push(key.as_str().to_owned());
        async move { seen.charge() }
    });
    let shop = backend.shop().work(work.clone()).open().await;
    shop.loses_its_leases();
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(LEASE);
    let other = backend.shop().work(work).open().await;
    let won = other.post("/charges").key("k").send().await;
    assert_eq!(won.json()["attempt"], 2);
    handler.open();
    first.answer().await;
    let derived = derived.lock().unwrap();
    assert_eq!(derived.len(), 2);
    assert_eq!(derived[0], derived[1], "another attempt, another key");
}

async fn another_name_or_another_caller_derives_another_key(backend: Backend) {
    let work = Work::answering(async |seen: Seen| {
        let idempotency = seen.idempotency();
        let [one, other] = ["stripe", "ledger"].map(|name| idempotency.derive(name));
        assert!(one.as_str().len() <= 36);
        format!("{} {}", one.as_str(), other.as_str()).into_response()
    });
    let shop = backend.shop().work(work).open().await;
    let mut derived = Vec::new();
    for (caller, key) in [("alice", "k-1"), ("alice", "k-2"), ("bob", "k-1")] {
        let answer = shop.post("/charges").from(caller).key(key).send().await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        derived.extend(text.split(' ').map(str::to_owned));
    }
    let distinct: std::collections::HashSet<_> = derived.iter().collect();
    assert_eq!(distinct.len(), 6, "{derived:?}");
}

fn id(text: &str) -> ResourceId {
    ResourceId::new(text).expect("short and visible")
}

async fn recorded_id(backend: &Backend, key: &str) -> Option<ResourceId> {
    let record = backend.record(key).await.expect("a record");
    match record.state {
        RecordState::Completed(completion) => completion.resource_id,
        RecordState::InProgress { .. } => panic!("not completed: {key}"),
    }
}

async fn what_was_named_before_a_panic_is_in_the_record(backend: Backend) {
    let work = Work::answering(async |seen: Seen| {
        seen.idempotency().set_resource_id(id("ch_early"));
        panic!("as the test asked")
    });
    let shop = backend.shop().work(work).open().await;
    let failed = shop.post("/charges").key("k").send().await;
    assert_eq!(failed.status, 500);
    assert_eq!(recorded_id(&backend, "k").await, Some(id("ch_early")));
    // A late retry is told of it.
    backend.clock.advance(Duration::from_hours(24));
    let late = shop.post("/charges").key("k").send().await;
    assert_eq!(late.json()["resource_id"], "ch_early");
}

async fn what_is_named_beside_the_response_comes_first(backend: Backend) {
    let work = Work::answering(async |seen: Seen| {
        seen.idempotency().set_resource_id(id("ch_early"));
        match seen.body.as_ref() {
            b"named" => (id("ch_late"), "{}").into_response(),
            _ => seen.charge(),
        }
    });
    let shop = backend.shop().work(work).open().await;
    for (body, expected) in [("named", "ch_late"), ("in the body", "ch_early")] {
        let key = expected;
        shop.post("/charges").key(key).body(body).send().await;
        assert_eq!(recorded_id(&backend, key).await, Some(id(expected)));
    }
}

/// Answers so after it has declared that.
fn declaring(declared: Recording, answer: impl Fn() -> Response + Send + Sync + 'static) -> Work {
    Work::answering(move |seen| -> BoxFuture<'static, Response> {
        seen.idempotency().set_recording(declared);
        let response = answer();
        async move { response }.boxed()
    })
}

/// How often two requests under one key run.
async fn runs(backend: &Backend, key: &str, work: Work) -> usize {
    let shop = backend.shop().work(work).open().await;
    for _ in 0..2 {
        shop.post("/charges").key(key).send().await;
    }
    shop.work.runs()
}

async fn a_response_may_be_declared_forgotten_or_kept(backend: Backend) {
    let declined = || StatusCode::PAYMENT_REQUIRED.into_response();
    let forgotten = declaring(Recording::Forget, declined);
    assert_eq!(runs(&backend, "forgotten", forgotten).await, 2);
    let busy = || StatusCode::TOO_MANY_REQUESTS.into_response();
    let kept = declaring(Recording::Keep, busy);
    assert_eq!(runs(&backend, "kept", kept).await, 1);
}

async fn what_is_declared_beside_the_response_comes_first(backend: Backend) {
    let kept = || (Recording::Keep, "kept").into_response();
    let kept = declaring(Recording::Forget, kept);
    assert_eq!(runs(&backend, "kept", kept).await, 1);
    let forgotten = || (Recording::Forget, "forgotten").into_response();
    let forgotten = declaring(Recording::Keep, forgotten);
    assert_eq!(runs(&backend, "forgotten", forgotten).await, 2);
}

async fn a_panic_is_recorded_whatever_was_declared(backend: Backend) {
    let panics = declaring(Recording::Forget, || panic!("as the test asked"));
    assert_eq!(runs(&backend, "k", panics).await, 1);
}

/// Renewed when a third of it is over, it never has less than half.
async fn a_lease_shrinks_and_is_renewed(backend: Backend) {
    let work = Work::answering(async |seen: Seen| {
        let idempotency = seen.idempotency();
        let mut left = vec![idempotency.lease_left()];
        assert_eq!(left[0], LEASE);
        for _ in 0..20 {
            sleep(Duration::from_secs(3)).await;
            left.push(idempotency.lease_left());
        }
        let shrinks = left.windows(2).any(|pair| pair[1] < pair[0]);
        let grows = left.windows(2).any(|pair| pair[1] > pair[0]);
        let is_renewed = left.iter().all(|left| *left > LEASE / 2 && *left <= LEASE);
        assert!(shrinks && grows && is_renewed, "{left:?}");
        seen.charge()
    });
    let shop = backend.shop().work(work).in_memory();
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn a_lease_that_is_not_renewed_runs_out(backend: Backend) {
    let work = Work::answering(async |seen: Seen| {
        let idempotency = seen.idempotency();
        sleep(LEASE / 3 * 2).await;
        assert_eq!(idempotency.lease_left(), LEASE / 3);
        sleep(LEASE).await;
        assert_eq!(idempotency.lease_left(), Duration::ZERO);
        assert!(idempotency.is_lease_lost());
        seen.charge()
    });
    let shop = backend.shop().work(work).in_memory();
    shop.store.always(Verb::Renew, Fault::DOWN);
    shop.post("/charges").key("k").send().await.expect_run(1);
}

async fn without_protection_there_is_no_lease(backend: Backend) {
    let work = Work::answering(async |seen: Seen| {
        assert_eq!(seen.idempotency().lease_left(), Duration::ZERO);
        seen.charge()
    });
    let shop = backend.shop().work(work);
    let shop = shop
        .policy(|policy| policy.store_down(StoreDown::Open))
        .in_memory();
    shop.store.next(Verb::Claim, Fault::DOWN);
    shop.post("/charges").key("k").send().await.expect_run(1);
}

const LEASE: Duration = Duration::from_secs(30);
