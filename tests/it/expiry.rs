//! The end of a record's window.

use std::time::Duration;

use axum_idempotency::{Abandoned, Record, RecordState, Retry, Ttl};

use crate::support::{Backend, Fault, PATIENCE, Verb, on_every_backend};

on_every_backend!(
    a_record_is_replayed_to_the_end_of_its_window_and_not_longer,
    completion_does_not_move_the_end_of_the_window,
    a_replay_does_not_move_the_end_of_the_window,
    an_expired_record_answers_before_the_sweep_in_every_mode,
    an_abandoned_record_expires_as_unknown_whatever_the_policy_says_of_takeovers,
    a_sweep_archives_what_completed_and_what_did_not,
    a_sweep_leaves_what_is_inside_its_window,
    a_completion_is_refused_once_its_record_has_expired,
    a_completion_that_is_repeated_is_refused_once_its_record_has_expired,
    another_policy_decides_about_the_ttl_of_its_own_records_only,
);

async fn a_record_is_replayed_to_the_end_of_its_window_and_not_longer(backend: Backend) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("k").send().await;
    backend.clock.advance(DAY.saturating_sub(TICK));
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
    backend.clock.advance(TICK);
    let late = shop.post("/charges").key("k").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(shop.work.runs(), 1, "a late retry ran again");
}

async fn completion_does_not_move_the_end_of_the_window(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let claimed = backend.record("k").await.expect("the key is claimed");
    backend.clock.advance(Duration::from_secs(20));
    handler.open();
    first.answer().await.expect_run(1);
    let completed = backend
        .record("k")
        .await
        .expect("the request left a record");
    assert_eq!(completed.expires_at, claimed.expires_at);
    assert_eq!(completed.created_at, claimed.created_at);
}

async fn a_replay_does_not_move_the_end_of_the_window(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let before = backend.record("k").await;
    backend.clock.advance(DAY / 2);
    assert!(
        shop.post("/charges")
            .key("k")
            .send()
            .await
            .is_marked_as_replay()
    );
    assert_eq!(
        backend.record("k").await,
        before,
        "a replay wrote something"
    );
}

async fn an_expired_record_answers_before_the_sweep_in_every_mode(backend: Backend) {
    use axum_idempotency::ArchiveLookup::{AllKeys, RequireTimestamped, TimestampedKeys};
    let key = backend.ulid_made_before(Duration::ZERO);
    let recorded = backend.shop().open().await;
    recorded
        .post("/charges")
        .key(&key)
        .send()
        .await
        .expect_run(1);
    backend.clock.advance(DAY);
    for mode in [TimestampedKeys, AllKeys, RequireTimestamped] {
        let shop = backend
            .shop()
            .policy(|policy| policy.archive_lookup(mode))
            .open()
            .await;
        let late = shop.post("/charges").key(&key).send().await;
        late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
        assert_eq!(
            shop.archive.calls(Verb::Lookup),
            0,
            "{mode:?} asked the archive"
        );
    }
}

async fn an_abandoned_record_expires_as_unknown_whatever_the_policy_says_of_takeovers(
    backend: Backend,
) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let handler = stuck.work.hold();
    let _first = stuck.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(DAY);
    for abandoned in [Abandoned::TakeOver, Abandoned::Refuse] {
        let shop = backend
            .shop()
            .policy(|policy| policy.abandoned(abandoned))
            .open()
            .await;
        let late = shop.post("/charges").key("k").send().await.json();
        assert_eq!(late["code"], "idempotency_key_expired", "{abandoned:?}");
        assert_eq!(late["outcome"], "unknown", "{abandoned:?}");
        assert_eq!(shop.work.runs(), 0, "{abandoned:?} ran it again");
    }
}

async fn a_sweep_archives_what_completed_and_what_did_not(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("done").send().await.expect_run(1);
    let handler = shop.work.hold();
    let _stuck = shop.post("/charges").key("stuck").start();
    handler.reached().await;
    let recorded = backend
        .record("done")
        .await
        .map(|record: Record| record.tombstone());
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 2, "both have expired");
    let done = backend.tombstone("done").await;
    assert_eq!(done, recorded, "what is left of a record");
    let done = done.expect("it is archived");
    assert_eq!((done.status, done.has_outcome()), (201, true));
    let stuck = backend.tombstone("stuck").await.expect("it is archived");
    assert_eq!((stuck.status, stuck.has_outcome()), (0, false));
    assert_eq!(stuck.resource_id, None);
    for key in ["done", "stuck"] {
        assert_eq!(
            backend.record(key).await,
            None,
            "{key} is still in the store"
        );
    }
    assert_eq!(backend.sweep().await, 0, "nothing is left to sweep");
}

async fn a_sweep_leaves_what_is_inside_its_window(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("old").send().await.expect_run(1);
    backend.clock.advance(DAY.saturating_sub(TICK));
    let young = shop.post("/charges").key("young").send().await;
    assert_eq!(backend.sweep().await, 0, "the old one has a moment left");
    backend.clock.advance(TICK);
    assert_eq!(backend.sweep().await, 1, "only the old one has expired");
    shop.post("/charges")
        .key("young")
        .send()
        .await
        .expect_replay_of(&young);
}

/// 1. The handler runs, and its lease is not renewed.
/// 2. The record expires, and is not swept.
/// 3. The handler answers: too late to be recorded.
async fn a_completion_is_refused_once_its_record_has_expired(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    backend.clock.advance(DAY);
    handler.open();
    let first = first.answer().await;
    first.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
    let record = backend.record("k").await.expect("it is not swept yet");
    assert!(
        matches!(record.state, RecordState::InProgress { .. }),
        "an expired record was completed"
    );
}

async fn a_completion_that_is_repeated_is_refused_once_its_record_has_expired(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.store.next(Verb::Complete, Fault::DOWN);
    let second_try = shop.store.hold_before(Verb::Complete);
    shop.post("/charges").key("k").send().await.expect_run(1);
    second_try.reached().await;
    backend.clock.advance(DAY);
    second_try.open();
    shop.store.answered(Verb::Complete, 2).await;
    // It is not repeated for ever.
    let nothing_pends = shop.layer.shutdown(PATIENCE).await;
    assert_eq!(
        nothing_pends,
        Ok(()),
        "a completion that was refused is repeated"
    );
}

async fn another_policy_decides_about_the_ttl_of_its_own_records_only(backend: Backend) {
    let shop = backend.shop().open().await;
    let week = Ttl::new(7 * DAY).expect("a week is a TTL");
    let long = backend
        .shop()
        .policy(|policy| policy.ttl(week))
        .open()
        .await;
    let first = shop.post("/charges").key("day").send().await;
    let kept = long.post("/charges").key("week").send().await;
    backend.clock.advance(DAY.saturating_sub(TICK));
    long.post("/charges")
        .key("day")
        .send()
        .await
        .expect_replay_of(&first);
    backend.clock.advance(TICK);
    let late = long.post("/charges").key("day").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    shop.post("/charges")
        .key("week")
        .send()
        .await
        .expect_replay_of(&kept);
}

const DAY: Duration = Duration::from_hours(24);
const TICK: Duration = Duration::from_micros(1);
