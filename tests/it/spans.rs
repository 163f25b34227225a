//! One span a request: what came of it, for which record, in which attempt, and
//! where the time went.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{
    RequestOutcome, StoreDown,
    worker::{Delivery, Worker},
};
use http::StatusCode;

use crate::support::{Backend, Fault, Fields, Spans, Verb, Work, on_every_backend, scoped};

on_every_backend!(
    a_fresh_request_and_its_repeat_tell_what_came_of_them,
    every_refusal_is_told_by_its_code,
    a_takeover_tells_its_number_and_that_the_first_was_fenced,
    a_handler_that_forgets_and_one_without_protection_are_told,
    a_late_retry_tells_how_long_the_archive_took,
    a_message_leaves_one_span_from_its_claim_to_its_end,
);

/// The client's key and the principal, which no span may show.
const SECRETS: [&str; 2] = ["order-4711", "sk_live_alice"];

#[track_caller]
fn tells(fields: &Fields, outcome: RequestOutcome) {
    let told = fields.get("outcome").map(String::as_str);
    assert_eq!(told, Some(outcome.as_str()), "{fields:?}");
    takes_time(fields, "total_ms");
    for secret in SECRETS {
        let shown = fields.values().find(|value| value.contains(secret));
        assert_eq!(shown, None, "{secret} is in a span");
    }
}

#[track_caller]
fn takes_time(fields: &Fields, name: &str) {
    let time = fields.get(name).and_then(|time| time.parse::<f64>().ok());
    assert!(
        time.is_some_and(|time| time >= 0.0),
        "{name} is a time: {fields:?}"
    );
}

async fn a_fresh_request_and_its_repeat_tell_what_came_of_them(backend: Backend) {
    let shop = backend.shop().open().await;
    let spans = Spans::capture();
    let ask = || {
        shop.post("/charges")
            .from("sk_live_alice")
            .key("order-4711")
    };
    let record = scoped("sk_live_alice", "order-4711").to_string();

    let first = ask().send().await;
    first.expect_run(1);
    let fresh = spans.only("a fresh request").await;
    tells(&fresh, RequestOutcome::Executed);
    assert_eq!(fresh["scoped_key"], record);
    assert_eq!(fresh["attempt"], "1");
    for step in ["claim_ms", "handler_ms", "record_ms"] {
        takes_time(&fresh, step);
    }
    assert!(
        !fresh.contains_key("archive_ms"),
        "a young key is not looked up"
    );

    ask().send().await.expect_replay_of(&first);
    let repeat = spans.only("a repeat").await;
    tells(&repeat, RequestOutcome::Replayed);
    assert_eq!(repeat["scoped_key"], record);
    takes_time(&repeat, "claim_ms");
    for step in ["attempt", "handler_ms", "record_ms"] {
        assert!(
            !repeat.contains_key(step),
            "nothing runs for a repeat: {repeat:?}"
        );
    }
}

async fn every_refusal_is_told_by_its_code(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.request_limit(64))
        .open()
        .await;
    let spans = Spans::capture();
    let ask = || shop.post("/charges").from("sk_live_alice");
    ask().key("order-4711").send().await.expect_run(1);
    tells(&spans.only("the first").await, RequestOutcome::Executed);

    let other = ask().key("order-4711").body("other");
    let refused = [
        (other, RequestOutcome::KeyReused),
        (ask(), RequestOutcome::KeyMissing),
        (ask().key(""), RequestOutcome::KeyInvalid),
        (
            shop.post("/charges").anonymous().key("k"),
            RequestOutcome::PrincipalMissing,
        ),
        (
            ask().key("k").body("x".repeat(65)),
            RequestOutcome::BodyTooLarge,
        ),
    ];
    for (ask, outcome) in refused {
        let answer = ask.send().await;
        let code = format!("idempotency_{}", outcome.as_str());
        assert_eq!(answer.json()["code"], code, "the outcome is the code's");
        tells(&spans.only(&code).await, outcome);
    }

    shop.store.next(Verb::Claim, Fault::DOWN);
    ask().key("k").send().await;
    tells(
        &spans.only("store down").await,
        RequestOutcome::StoreUnavailable,
    );

    let handler = shop.work.hold();
    let first = ask().key("held").start();
    handler.reached().await;
    ask().key("held").send().await;
    tells(
        &spans.only("a duplicate").await,
        RequestOutcome::RequestInProgress,
    );
    handler.open();
    first.answer().await;
    tells(&spans.only("the held one").await, RequestOutcome::Executed);
}

async fn a_takeover_tells_its_number_and_that_the_first_was_fenced(backend: Backend) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let other = backend.shop().open().await;
    let spans = Spans::capture();
    let handler = stuck.work.hold();
    let first = stuck.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(Duration::from_secs(30));
    other.post("/charges").key("k").send().await;
    let takeover = spans.only("the takeover").await;
    tells(&takeover, RequestOutcome::Executed);
    assert_eq!(takeover["attempt"], "2");
    takes_time(&takeover, "archive_ms");

    handler.open();
    first.answer().await;
    let fenced = spans.only("the first attempt").await;
    tells(&fenced, RequestOutcome::Fenced);
    assert_eq!(fenced["attempt"], "1");
}

async fn a_handler_that_forgets_and_one_without_protection_are_told(backend: Backend) {
    let work = Work::answering(|_| async { StatusCode::TOO_MANY_REQUESTS.into_response() });
    let shop = backend
        .shop()
        .work(work)
        .policy(|policy| policy.store_down(StoreDown::Open))
        .open()
        .await;
    let spans = Spans::capture();
    shop.post("/charges").key("k").send().await;
    tells(&spans.only("a 429").await, RequestOutcome::Forgotten);
    shop.store.next(Verb::Claim, Fault::DOWN);
    shop.post("/charges").key("l").send().await;
    tells(&spans.only("fail open").await, RequestOutcome::Unprotected);
}

async fn a_late_retry_tells_how_long_the_archive_took(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(Duration::from_hours(30));
    backend.sweep().await;
    let spans = Spans::capture();
    let answer = shop.post("/charges").key(&key).send().await;
    assert_eq!(answer.json()["code"], "idempotency_key_expired");
    let late = spans.only("a late retry").await;
    tells(&late, RequestOutcome::KeyExpired);
    takes_time(&late, "archive_ms");
}

async fn a_message_leaves_one_span_from_its_claim_to_its_end(backend: Backend) {
    let worker = Worker::builder("payouts", backend.process())
        .archive(backend.archive())
        .build()
        .expect("a worker");
    let spans = Spans::capture();
    let job = worker.claim("order-4711").await.expect("the store answers");
    let Delivery::Claimed(job) = job else {
        panic!("a fresh message is to be done, not {job:?}");
    };
    assert_eq!(
        spans.take(),
        Vec::<Fields>::new(),
        "it goes on with its job"
    );
    job.complete(None).await.expect("the job is recorded");
    let done = spans.only("a message").await;
    tells(&done, RequestOutcome::Executed);
    assert_eq!(done["attempt"], "1");
    worker.claim("order-4711").await.expect("the store answers");
    tells(
        &spans.only("its repeat").await,
        RequestOutcome::Acknowledged,
    );
}
