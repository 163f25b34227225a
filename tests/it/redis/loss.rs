//! What is answered when Redis has lost a record: evicted, or gone with a
//! restart or a failover.

use std::time::Duration;

use axum_idempotency::{ArchiveLookup, Retry};

use super::places::{Place, beside_every_archive};
use crate::support::{Shop, Verb};

beside_every_archive!(
    a_lost_record_is_answered_from_the_archive_however_young_its_key,
    a_lost_record_of_a_key_without_a_timestamp_is_answered_too,
    by_default_a_lost_record_of_an_old_key_is_answered,
    by_default_a_lost_record_of_a_young_key_runs_again,
    a_lost_record_in_progress_runs_again_beside_the_first,
    the_outcome_of_a_lost_record_is_archived_though_the_loss_was_noticed,
    records_in_progress_have_no_end_of_their_own,
    without_an_archive_records_in_progress_end_by_themselves,
);

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

async fn asking_for_all(place: &Place) -> Shop {
    let opening = place.backend.shop();
    let all =
        |policy: axum_idempotency::PolicyBuilder| policy.archive_lookup(ArchiveLookup::AllKeys);
    opening.policy(all).open().await
}

async fn is_answered_from_the_archive(place: &Place, key: &str) {
    let shop = asking_for_all(place).await;
    shop.post("/charges").key(key).send().await.expect_run(1);
    place.lose(key).await;
    let retry = shop.post("/charges").key(key).send().await;
    retry.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    let retry = retry.json();
    assert_eq!(retry["original_status"], 201);
    assert_eq!(retry["resource_id"], "ch_1");
    assert_eq!(retry["same_request"], true);
    assert_eq!(shop.work.runs(), 1, "it ran again");
    assert_eq!(
        place.backend.record(key).await,
        None,
        "a ghost blocks the key"
    );
}

async fn a_lost_record_is_answered_from_the_archive_however_young_its_key(place: Place) {
    let young = place.backend.ulid_made_before(Duration::ZERO);
    is_answered_from_the_archive(&place, &young).await;
    let ahead = place.backend.ulid_made_ahead(HOUR);
    let shop = asking_for_all(&place).await;
    shop.post("/charges").key(&ahead).send().await.expect_run(1);
    place.lose(&ahead).await;
    let retry = shop.post("/charges").key(&ahead).send().await;
    retry.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
}

async fn a_lost_record_of_a_key_without_a_timestamp_is_answered_too(place: Place) {
    is_answered_from_the_archive(&place, "order-1").await;
}

async fn by_default_a_lost_record_of_an_old_key_is_answered(place: Place) {
    let old = place.backend.ulid_made_before(2 * DAY);
    let shop = place.backend.shop().open().await;
    shop.post("/charges").key(&old).send().await.expect_run(1);
    place.lose(&old).await;
    let retry = shop.post("/charges").key(&old).send().await;
    retry.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(shop.work.runs(), 1, "it ran again");
}

/// The documentation says so.
async fn by_default_a_lost_record_of_a_young_key_runs_again(place: Place) {
    let young = place.backend.ulid_made_before(HOUR);
    let shop = place.backend.shop().open().await;
    shop.post("/charges").key(&young).send().await.expect_run(1);
    place.lose(&young).await;
    shop.post("/charges").key(&young).send().await.expect_run(2);
}

/// 1. Redis loses the record of a request that runs: only Redis knew of it.
/// 2. A retry in another process runs too, and is recorded.
/// 3. The first has no record to complete: its client gets the other's answer.
async fn a_lost_record_in_progress_runs_again_beside_the_first(place: Place) {
    let (one, other) = (asking_for_all(&place).await, asking_for_all(&place).await);
    let handler = one.work.hold();
    let first = one.post("/charges").key("k").start();
    handler.reached().await;
    place.lose("k").await;
    let retry = other.post("/charges").key("k").send().await;
    retry.expect_run(1);
    handler.open();
    let first = first.answer().await;
    first.expect_replay_of(&retry);
}

/// 1. Redis loses the record of a request that runs, and a renewal notices.
/// 2. Nobody else claims the key: the first client gets its answer, and a retry
///    is told of it.
async fn the_outcome_of_a_lost_record_is_archived_though_the_loss_was_noticed(place: Place) {
    let shop = place
        .backend
        .shop()
        .policy(|policy| {
            policy
                .archive_lookup(ArchiveLookup::AllKeys)
                .lease(Duration::from_millis(150))
        })
        .open()
        .await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    place.lose("k").await;
    let noticed = shop.store.calls(Verb::Renew) + 2;
    // Nothing is renewed any more once it is noticed.
    let renewals = shop.store.answered(Verb::Renew, noticed);
    let _noticed = tokio::time::timeout(Duration::from_secs(1), renewals).await;
    handler.open();
    first.answer().await.expect_run(1);
    let retry = shop.post("/charges").key("k").send().await;
    retry.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(retry.json()["original_status"], 201);
    assert_eq!(shop.work.runs(), 1, "it ran again");
}

async fn records_in_progress_have_no_end_of_their_own(place: Place) {
    let shop = place.backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    assert_eq!(place.kept_for("k").await, None, "it is owed to the archive");
    handler.open();
    first.answer().await.expect_run(1);
    let left = place.kept_for("k").await.expect("an end");
    let (day, minute) = (DAY.as_millis(), 60_000);
    let left = u128::from(left);
    assert!(left > day && left <= day + minute, "{left} ms are left");
}

async fn without_an_archive_records_in_progress_end_by_themselves(place: Place) {
    let shop = place.backend.shop().without_archive().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let left = place.kept_for("k").await.expect("an end");
    assert!(u128::from(left) > DAY.as_millis(), "{left} ms are left");
    handler.open();
    first.answer().await.expect_run(1);
}
