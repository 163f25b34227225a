//! Commits, one and many at once.

use std::time::Duration;

use axum_idempotency::{Clock as _, InFlight, inspect::LiveState};
use futures_util::future::join_all;

use super::{Place, on_both};
use crate::support::PATIENCE;

on_both!(
    of_sixty_four_duplicates_through_two_processes_one_has_its_effect,
    thirty_two_keys_at_once_are_all_charged,
    a_commit_leaves_the_moment_of_its_outcome,
);

async fn of_sixty_four_duplicates_through_two_processes_one_has_its_effect(place: Place) {
    let one = place
        .charging()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .open()
        .await;
    let clock = place.backend.clock.clone();
    let (base, backend) = place.base.reopened(clock).await;
    let elsewhere = Place { base, backend };
    let other = elsewhere
        .charging()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .open()
        .await;
    let asks = (0..32).flat_map(|_| [&one, &other]);
    let answers = join_all(asks.map(|shop| shop.post("/charges").key("k").send())).await;
    let (ran, replayed): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| !answer.is_marked_as_replay());
    assert_eq!(ran.len(), 1, "{ran:#?}");
    assert_eq!(ran[0].status, 201);
    for answer in replayed {
        answer.expect_replay_of(ran[0]);
    }
    assert_eq!(one.work.runs() + other.work.runs(), 1);
    assert_eq!(place.base.effects().await, 1);
}

async fn thirty_two_keys_at_once_are_all_charged(place: Place) {
    let shop = place.charging().open().await;
    let keys: Vec<_> = (0..32).map(|n| format!("k-{n}")).collect();
    let asks = keys.iter().map(|key| shop.post("/charges").key(key).send());
    for answer in join_all(asks).await {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    assert_eq!(place.base.effects().await, 32);
}

async fn a_commit_leaves_the_moment_of_its_outcome(place: Place) {
    let shop = place.charging().open().await;
    let clock = place.backend.clock.clone();
    clock.advance(Duration::from_mins(3));
    let answer = shop.post("/charges").key("k").send().await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let then = clock.now();
    clock.advance(Duration::from_mins(3));
    let record = place.backend.seen_by_an_operator("k").await;
    let state = record.expect("a record").state;
    let LiveState::Completed { completed_at, .. } = state else {
        panic!("expected a completed record, got {state:?}");
    };
    assert_eq!(completed_at, Some(then));
}
