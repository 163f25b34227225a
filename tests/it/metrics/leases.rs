//! Leases that are renewed late, and attempts that had lost their record.

use std::time::Duration;

use axum_idempotency::RequestOutcome;
use tokio::time::sleep;

use super::{KEY, Measured, PRINCIPAL};
use crate::support::{Ask, Backend, Fault, Shop, Verb, Work, on_every_backend, on_tokio_time};

on_every_backend!(
    an_attempt_that_was_taken_over_is_counted_as_fenced,
    an_outcome_that_comes_too_late_behind_a_store_that_was_down_is_counted_as_fenced,
);

on_tokio_time!(
    leases_renewed_in_time_are_not_late,
    a_lease_renewed_in_its_last_third_is_late_once,
    a_lease_that_could_not_be_renewed_is_late_once,
);

const LATE: &str = "idempotency_lease_renewals_late_total";
const FENCED: &str = "idempotency_fenced_completions_total";

/// Of the policy.
const LEASE: Duration = Duration::from_secs(30);

fn ask(shop: &Shop) -> Ask {
    shop.post("/charges").from(PRINCIPAL).key(KEY)
}

fn running_for(time: Duration) -> Work {
    Work::answering(move |seen| async move {
        sleep(time).await;
        seen.charge()
    })
}

async fn leases_renewed_in_time_are_not_late(backend: Backend) {
    let measured = Measured::begin();
    let work = running_for(Duration::from_mins(5));
    let shop = backend.shop().work(work).in_memory();
    ask(&shop).send().await.expect_run(1);
    assert!(shop.store.calls(Verb::Renew) >= 10, "nothing was renewed");
    let scrape = measured.scrape();
    scrape.has(LATE, &[], 0.0);
    assert!(scrape.calls("renew", "ok") >= 10.0, "{scrape:?}");
}

/// 1. The store does not renew for most of the lease, then it does.
/// 2. From then on it is renewed in time.
async fn a_lease_renewed_in_its_last_third_is_late_once(backend: Backend) {
    let measured = Measured::begin();
    let work = running_for(Duration::from_mins(5));
    let shop = backend.shop().work(work).in_memory();
    shop.store.always(Verb::Renew, Fault::DOWN);
    let first = ask(&shop).start();
    shop.work.begun(1).await;
    sleep(LEASE * 5 / 6).await;
    measured.scrape().has(LATE, &[], 0.0);
    shop.store.heal(Verb::Renew);
    first.answer().await.expect_run(1);
    let scrape = measured.scrape();
    scrape.has(LATE, &[], 1.0);
    assert!(scrape.calls("renew", "error") >= 1.0, "{scrape:?}");
}

async fn a_lease_that_could_not_be_renewed_is_late_once(backend: Backend) {
    let measured = Measured::begin();
    let work = running_for(Duration::from_mins(2));
    let shop = backend.shop().work(work).in_memory();
    shop.store.always(Verb::Renew, Fault::DOWN);
    ask(&shop).send().await.expect_run(1);
    measured.scrape().has(LATE, &[], 1.0);
}

async fn an_attempt_that_was_taken_over_is_counted_as_fenced(backend: Backend) {
    let measured = Measured::begin();
    let slow = backend.shop().open().await;
    slow.loses_its_leases();
    let handler = slow.work.hold();
    let first = ask(&slow).start();
    handler.reached().await;
    backend.clock.advance(LEASE);
    let other = backend.shop().open().await;
    let winner = ask(&other).send().await;
    winner.expect_run(1);
    measured.scrape().has(FENCED, &[], 0.0);

    handler.open();
    first.answer().await.expect_replay_of(&winner);
    let scrape = measured.scrape();
    scrape.has(FENCED, &[], 1.0);
    scrape.counts(&[
        (RequestOutcome::Executed, 1.0),
        (RequestOutcome::Fenced, 1.0),
    ]);
}

/// 1. An outcome cannot be told to the store; its client has it.
/// 2. The lease lapses, and another process runs the request again.
/// 3. The store is back, and the outcome has come too late.
async fn an_outcome_that_comes_too_late_behind_a_store_that_was_down_is_counted_as_fenced(
    backend: Backend,
) {
    let measured = Measured::begin();
    let cut_off = backend.shop().open().await;
    cut_off.loses_its_leases();
    cut_off.store.always(Verb::Complete, Fault::DOWN);
    ask(&cut_off).send().await.expect_run(1);
    // Its handler has run, and it still holds the record.
    measured.scrape().has("idempotency_in_flight", &[], 1.0);
    backend.clock.advance(LEASE);
    let other = backend.shop().open().await;
    let answer = ask(&other).send().await;
    if backend.archives_first() {
        // The outcome is archived: nothing runs again.
        assert_eq!(answer.json()["code"], "idempotency_response_not_kept");
    } else {
        answer.expect_run(1);
    }
    measured.scrape().has(FENCED, &[], 0.0);

    cut_off.store.heal(Verb::Complete);
    let told = cut_off.layer.shutdown(crate::support::PATIENCE).await;
    told.expect("nothing is left to be told");
    let scrape = measured.scrape();
    scrape.has(FENCED, &[], 1.0);
    scrape.has("idempotency_in_flight", &[], 0.0);
}
