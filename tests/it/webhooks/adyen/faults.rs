//! Stores that are down, leases that are lost, deliveries that are late.

use axum_idempotency::{Retry, store::StoreErrorKind};

use super::{DAY, Desk, Failure, LEASE, again, batch_of};
use crate::support::{Backend, Fault, Verb, on_every_backend};

on_every_backend!(
    while_the_store_is_down_nothing_runs_and_all_of_it_runs_later,
    a_store_that_fails_midway_keeps_what_is_done,
    while_the_archive_is_down_nothing_runs_and_all_of_it_runs_later,
    a_full_store_is_told_as_such,
    a_late_delivery_is_accepted_before_a_sweep_and_after_it,
    a_late_delivery_of_what_has_no_outcome_runs_as_another_attempt,
    the_key_for_the_next_service_is_the_same_at_every_attempt,
    an_item_whose_lease_is_lost_is_left_to_whoever_took_over,
);

async fn while_the_store_is_down_nothing_runs_and_all_of_it_runs_later(backend: Backend) {
    let desk = Desk::open(&backend);
    let two = batch_of(["a", "b"]).to_string();
    desk.store.always(Verb::Claim, Fault::DOWN);
    desk.deliver(&two).await.expect_store_down();
    desk.expect_attempts(&[]);
    // One claim lands, and nobody hears of it.
    let desk = Desk::open(&backend);
    desk.store.next(Verb::Claim, Fault::AnswerLost);
    desk.deliver(&two).await.expect_store_down();
    desk.expect_attempts(&[("b", &[1])]);
    desk.store.answered(Verb::Release, 1).await;
    desk.deliver(&two).await.expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1])]);
}

/// Whatever else went wrong in the same batch.
async fn a_store_that_fails_midway_keeps_what_is_done(backend: Backend) {
    let desk = Desk::open(&backend);
    let three = batch_of(["a", "b", "c"]).to_string();
    let gate = desk.hold("a");
    desk.fails_at("c", Failure::Error);
    let first = desk.delivering(batch_of(["a", "b", "c"]));
    gate.reached().await;
    desk.store.next(Verb::Claim, Fault::DOWN);
    gate.open();
    first.await.expect("no panic").expect_store_down();
    desk.expect_attempts(&[("a", &[1]), ("c", &[1])]);
    desk.is_mended();
    desk.deliver(&three).await.expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1]), ("c", &[1, 1])]);
}

async fn while_the_archive_is_down_nothing_runs_and_all_of_it_runs_later(backend: Backend) {
    let desk = Desk::open(&backend);
    let two = batch_of(["a", "b"]).to_string();
    desk.archive.always(Verb::Lookup, Fault::DOWN);
    desk.deliver(&two).await.expect_store_down();
    desk.expect_attempts(&[]);
    desk.archive.heal(Verb::Lookup);
    desk.deliver(&two).await.expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1])]);
}

async fn a_full_store_is_told_as_such(backend: Backend) {
    let desk = Desk::open(&backend);
    let two = batch_of(["a", "b"]).to_string();
    desk.store
        .next(Verb::Claim, Fault::Fails(StoreErrorKind::Full));
    let refused = desk.deliver(&two).await;
    refused
        .expect_problem(503, "idempotency_store_full", Retry::SameKeyLater)
        .with_retry_after_up_to(1);
    desk.deliver(&two).await.expect_accepted();
    desk.expect_attempts(&[("a", &[1]), ("b", &[1])]);
}

async fn a_late_delivery_is_accepted_before_a_sweep_and_after_it(backend: Backend) {
    let (one, other) = (Desk::open(&backend), Desk::open(&backend));
    let two = batch_of(["a", "b"]);
    one.deliver(two.to_string()).await.expect_accepted();
    // Adyen's last retry.
    backend.clock.advance(30 * DAY);
    assert_eq!(backend.sweep().await, 0, "it is forgotten too early");
    other
        .deliver(again(two.clone()).to_string())
        .await
        .expect_accepted();
    backend.clock.advance(5 * DAY);
    other
        .deliver(again(two.clone()).to_string())
        .await
        .expect_accepted();
    assert_eq!(backend.sweep().await, 2);
    other
        .deliver(again(two).to_string())
        .await
        .expect_accepted();
    other.expect_attempts(&[]);
    backend.clock.advance(35 * DAY);
    assert_eq!(backend.sweep().await, 0, "a late delivery left a record");
}

async fn a_late_delivery_of_what_has_no_outcome_runs_as_another_attempt(backend: Backend) {
    let desk = Desk::open(&backend);
    drop((desk.claimed("a").await, desk.claimed("b").await));
    backend.clock.advance(35 * DAY);
    desk.deliver(batch_of(["a"]).to_string())
        .await
        .expect_accepted();
    assert_eq!(backend.sweep().await, 1);
    desk.deliver(batch_of(["a", "b"]).to_string())
        .await
        .expect_accepted();
    desk.expect_attempts(&[("a", &[2]), ("b", &[2])]);
}

async fn the_key_for_the_next_service_is_the_same_at_every_attempt(backend: Backend) {
    let desk = Desk::open(&backend);
    drop(desk.claimed("a").await);
    backend.clock.advance(LEASE);
    desk.fails_at("a", Failure::Panic);
    let one = batch_of(["a"]);
    assert_eq!(desk.deliver(one.to_string()).await.status, 500);
    desk.is_mended();
    desk.deliver(again(one).to_string()).await.expect_accepted();
    // That an earlier attempt may have had its effect is not forgotten.
    desk.expect_attempts(&[("a", &[2, 3])]);
    desk.deliver(batch_of(["b"]).to_string())
        .await
        .expect_accepted();
    let derived = desk.handled(|work| work.derived.clone());
    let [first, second, of_another] = &derived[..] else {
        panic!("three runs, and {} keys", derived.len());
    };
    assert_eq!(first, second, "the next service's key is another");
    assert_ne!(first, of_another, "two items share a key");
}

async fn an_item_whose_lease_is_lost_is_left_to_whoever_took_over(backend: Backend) {
    let (slow, other) = (Desk::open(&backend), Desk::open(&backend));
    let gate = slow.hold("a");
    let first = slow.delivering(batch_of(["a", "b"]));
    gate.reached().await;
    slow.store.always(Verb::Renew, Fault::Hangs);
    backend.clock.advance(LEASE);
    other
        .deliver(batch_of(["a"]).to_string())
        .await
        .expect_accepted();
    slow.store.heal(Verb::Renew);
    gate.open();
    let stale = first.await.expect("no panic");
    assert_eq!(stale.status, 500, "a stale attempt's outcome stands");
    slow.deliver(batch_of(["a", "b"]).to_string())
        .await
        .expect_accepted();
    other.expect_attempts(&[("a", &[2])]);
    slow.expect_attempts(&[("a", &[1]), ("b", &[1])]);
}
