//! On the way of a request: its outcome, the calls of store and archive, and how
//! many are under way.

use std::time::Duration;

use axum_idempotency::{RequestOutcome, StoreDown};
use http::StatusCode;

use super::{KEY, Measured, PRINCIPAL, archived};
use crate::support::{Ask, Backend, Fault, Shop, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    a_request_and_its_replay_are_counted_by_outcome_and_their_calls_timed,
    every_refusal_is_counted_by_its_outcome,
    a_handler_that_forgets_and_one_without_protection_are_counted,
    attempts_are_in_flight_for_as_long_as_they_own_their_record,
    a_late_retry_is_counted_and_its_lookup_timed,
    a_lookup_that_fails_is_counted_as_an_error,
);

on_tokio_time!(a_call_that_is_given_up_and_one_that_fails_are_told_apart,);

fn ask(shop: &Shop) -> Ask {
    shop.post("/charges").from(PRINCIPAL)
}

async fn a_request_and_its_replay_are_counted_by_outcome_and_their_calls_timed(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().open().await;
    let first = ask(&shop).key(KEY).send().await;
    first.expect_run(1);
    let scrape = measured.scrape();
    scrape.counts(&[(RequestOutcome::Executed, 1.0)]);
    assert_eq!(scrape.calls("claim", "ok"), 1.0, "{scrape:?}");
    assert_eq!(scrape.calls("complete", "ok"), 1.0, "{scrape:?}");

    for _ in 0..2 {
        ask(&shop).key(KEY).send().await.expect_replay_of(&first);
    }
    let scrape = measured.scrape();
    scrape.counts(&[
        (RequestOutcome::Executed, 1.0),
        (RequestOutcome::Replayed, 2.0),
    ]);
    assert_eq!(scrape.calls("claim", "ok"), 3.0, "{scrape:?}");
    assert_eq!(scrape.calls("complete", "ok"), 1.0, "{scrape:?}");
    for counter in [
        "idempotency_fenced_completions_total",
        "idempotency_lease_renewals_late_total",
        "idempotency_expired_replay_total",
        "idempotency_sweep_errors_total",
    ] {
        scrape.has(counter, &[], 0.0);
    }
}

async fn every_refusal_is_counted_by_its_outcome(backend: Backend) {
    let measured = Measured::begin();
    let opening = backend.shop().policy(|policy| policy.request_limit(64));
    let shop = opening.open().await;
    ask(&shop).key(KEY).send().await.expect_run(1);
    ask(&shop).key(KEY).body("other").send().await;
    ask(&shop).send().await;
    ask(&shop).key("").send().await;
    shop.post("/charges").anonymous().key(KEY).send().await;
    ask(&shop).key("k").body("x".repeat(65)).send().await;
    shop.store.next(Verb::Claim, Fault::DOWN);
    ask(&shop).key("k").send().await;
    let scrape = measured.scrape();
    scrape.counts(&[
        (RequestOutcome::Executed, 1.0),
        (RequestOutcome::KeyReused, 1.0),
        (RequestOutcome::KeyMissing, 1.0),
        (RequestOutcome::KeyInvalid, 1.0),
        (RequestOutcome::PrincipalMissing, 1.0),
        (RequestOutcome::BodyTooLarge, 1.0),
        (RequestOutcome::StoreUnavailable, 1.0),
    ]);
    assert_eq!(scrape.calls("claim", "error"), 1.0, "{scrape:?}");
}

async fn a_handler_that_forgets_and_one_without_protection_are_counted(backend: Backend) {
    let measured = Measured::begin();
    let work = crate::support::Work::answering(|_| async {
        axum::response::IntoResponse::into_response(StatusCode::TOO_MANY_REQUESTS)
    });
    let opening = backend.shop().work(work);
    let opening = opening.policy(|policy| policy.store_down(StoreDown::Open));
    let shop = opening.open().await;
    ask(&shop).key(KEY).send().await;
    shop.store.next(Verb::Claim, Fault::DOWN);
    ask(&shop).key(KEY).send().await;
    measured.scrape().counts(&[
        (RequestOutcome::Forgotten, 1.0),
        (RequestOutcome::Unprotected, 1.0),
    ]);
}

async fn attempts_are_in_flight_for_as_long_as_they_own_their_record(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().open().await;
    let gates = [shop.work.hold(), shop.work.hold()];
    let first = ask(&shop).key(KEY).start();
    gates[0].reached().await;
    measured.scrape().has("idempotency_in_flight", &[], 1.0);
    let second = ask(&shop).key("k").start();
    gates[1].reached().await;
    measured.scrape().has("idempotency_in_flight", &[], 2.0);

    // A repeat owns nothing.
    let repeat = ask(&shop).key(KEY).send().await;
    assert_eq!(repeat.status, 409);
    let scrape = measured.scrape();
    scrape.has("idempotency_in_flight", &[], 2.0);
    scrape.counts(&[(RequestOutcome::RequestInProgress, 1.0)]);

    gates[0].open();
    first.answer().await;
    measured.scrape().has("idempotency_in_flight", &[], 1.0);
    gates[1].open();
    second.answer().await;
    measured.scrape().has("idempotency_in_flight", &[], 0.0);
}

async fn a_late_retry_is_counted_and_its_lookup_timed(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    ask(&shop).key(&key).send().await.expect_run(1);
    backend.clock.advance(2 * DAY);
    backend.sweep().await;
    let name = "idempotency_archived_total";
    measured.scrape().has(name, &[], archived(&backend));

    let late = ask(&shop).key(&key).send().await;
    assert_eq!(late.json()["code"], "idempotency_key_expired");
    let scrape = measured.scrape();
    scrape.counts(&[
        (RequestOutcome::Executed, 1.0),
        (RequestOutcome::KeyExpired, 1.0),
    ]);
    scrape.has("idempotency_expired_replay_total", &[], 1.0);
    let lookups = "idempotency_archive_lookup_duration_ms_count";
    scrape.has(lookups, &[("result", "hit")], 1.0);
    let missed = scrape.value(lookups, &[("result", "miss")]);
    assert_eq!(missed, None, "a key of just now was looked up");

    let old = backend.ulid_made_before(3 * DAY);
    ask(&shop).key(&old).send().await.expect_run(2);
    let scrape = measured.scrape();
    scrape.has(lookups, &[("result", "miss")], 1.0);
    scrape.has("idempotency_expired_replay_total", &[], 1.0);
}

async fn a_lookup_that_fails_is_counted_as_an_error(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().open().await;
    shop.archive.next(Verb::Lookup, Fault::DOWN);
    let old = backend.ulid_made_before(3 * DAY);
    let refused = ask(&shop).key(&old).send().await;
    assert_eq!(refused.status, 503);
    let scrape = measured.scrape();
    let lookups = "idempotency_archive_lookup_duration_ms_count";
    scrape.has(lookups, &[("result", "error")], 1.0);
    scrape.has("idempotency_in_flight", &[], 0.0);
}

async fn a_call_that_is_given_up_and_one_that_fails_are_told_apart(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().in_memory();
    shop.store.next(Verb::Claim, Fault::Hangs);
    ask(&shop).key(KEY).send().await;
    shop.store.next(Verb::Claim, Fault::DOWN);
    ask(&shop).key(KEY).send().await;
    let scrape = measured.scrape();
    assert_eq!(scrape.calls("claim", "given_up"), 1.0, "{scrape:?}");
    assert_eq!(scrape.calls("claim", "error"), 1.0, "{scrape:?}");
    assert_eq!(scrape.calls("claim", "ok"), 0.0, "{scrape:?}");
    // On a paused clock a call takes as long as its caller has patience.
    let labels = [("call", "claim"), ("result", "given_up")];
    let took = scrape.value("idempotency_store_call_duration_ms_sum", &labels);
    assert!(took >= Some(100.0), "given up after {took:?} ms");
    scrape.counts(&[(RequestOutcome::StoreUnavailable, 2.0)]);
}

const DAY: Duration = Duration::from_hours(24);
