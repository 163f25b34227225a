//! When the archive is asked, and what a late retry meets on the way.

use std::time::Duration;

use axum_idempotency::{ArchiveLookup, Retry, Sweeper, Ttl};

use crate::support::{Backend, Fault, Gate, Opening, Verb, on_every_backend, on_tokio_time};

on_every_backend!(
    the_key_of_a_fresh_request_costs_no_lookup,
    a_key_is_looked_up_from_the_moment_its_record_could_have_expired,
    all_keys_means_every_key_that_is_not_provably_young,
    a_key_without_an_age_runs_again_after_the_sweep_by_default,
    a_key_without_an_age_is_found_after_the_sweep_under_all_keys,
    without_an_archive_an_expired_key_is_unknown,
    a_record_that_a_sweeper_moves_away_before_the_claim_is_found_by_the_lookup,
    a_record_that_a_sweeper_is_moving_during_the_claim_is_found_by_the_lookup,
    a_late_retry_leaves_no_claim_and_the_next_one_is_told_the_same,
    a_takeover_asks_the_archive_whatever_the_key_looks_like,
    a_takeover_that_finds_no_outcome_in_the_archive_runs_nothing,
);

on_tokio_time!(a_slow_lookup_does_not_lose_the_lease,);

fn all_keys(opening: Opening) -> Opening {
    opening.policy(|policy| policy.archive_lookup(ArchiveLookup::AllKeys))
}

async fn the_key_of_a_fresh_request_costs_no_lookup(backend: Backend) {
    let shop = backend.shop().open().await;
    for key in [
        backend.ulid_made_before(Duration::ZERO),
        backend.ulid_made_before(Duration::from_hours(1)),
        "order-1".to_owned(),
        uuid::Uuid::new_v4().to_string(),
    ] {
        shop.post("/charges").key(&key).send().await;
    }
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        0,
        "a fresh key was looked up"
    );
    assert_eq!(
        shop.store.calls(Verb::Renew),
        0,
        "and so nothing had to be confirmed"
    );
    assert_eq!(shop.work.runs(), 4);
}

async fn a_key_is_looked_up_from_the_moment_its_record_could_have_expired(backend: Backend) {
    let shop = backend.shop().open().await;
    // A minute before its TTL is over, in case the store's clock steps back.
    let last_young = DAY.saturating_sub(Duration::from_mins(1));
    let young = backend.ulid_made_before(last_young);
    shop.post("/charges").key(&young).send().await.expect_run(1);
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        0,
        "a key too young to have expired"
    );
    let old = backend.ulid_made_before(last_young + Duration::from_millis(1));
    shop.post("/charges").key(&old).send().await.expect_run(2);
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        1,
        "a key that may have expired"
    );
    let repeat = shop.post("/charges").key(&old).send().await;
    assert!(repeat.is_marked_as_replay());
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        1,
        "a replay is answered by the live record"
    );
}

async fn all_keys_means_every_key_that_is_not_provably_young(backend: Backend) {
    let shop = all_keys(backend.shop()).open().await;
    let young = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&young).send().await.expect_run(1);
    // What a store may have lost may be gone at any age.
    let of_the_young = usize::from(backend.archives_first());
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        of_the_young,
        "a key that is provably young"
    );
    for (others, key) in [(1, "order-1"), (2, "f81d4fae-7dec-41d0-a765-00a0c91e6bf6")] {
        shop.post("/charges")
            .key(key)
            .send()
            .await
            .expect_run(1 + others);
        assert_eq!(
            shop.archive.calls(Verb::Lookup),
            of_the_young + others,
            "{key} may be old"
        );
    }
}

async fn a_key_without_an_age_runs_again_after_the_sweep_by_default(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges")
        .key("order-1")
        .send()
        .await
        .expect_run(1);
    backend.clock.advance(DAY);
    let before = shop.post("/charges").key("order-1").send().await;
    before.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(backend.sweep().await, 1);
    shop.post("/charges")
        .key("order-1")
        .send()
        .await
        .expect_run(2);
}

async fn a_key_without_an_age_is_found_after_the_sweep_under_all_keys(backend: Backend) {
    let shop = all_keys(backend.shop()).open().await;
    shop.post("/charges")
        .key("order-1")
        .send()
        .await
        .expect_run(1);
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 1);
    let late = shop.post("/charges").key("order-1").send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(shop.work.runs(), 1, "a late retry ran again");
}

async fn without_an_archive_an_expired_key_is_unknown(backend: Backend) {
    let shop = backend.shop().without_archive().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    let again = shop
        .post("/charges")
        .key(&key)
        .body("even another")
        .send()
        .await;
    again.expect_run(2);
    assert_eq!(again.json()["attempt"], 1, "it is a fresh request");
}

/// 1. The record has expired; a late retry is on its way to the store.
/// 2. A sweeper moves the record into the archive.
/// 3. The claim finds nothing and is won, and the lookup after it finds the
///    tombstone.
async fn a_record_that_a_sweeper_moves_away_before_the_claim_is_found_by_the_lookup(
    backend: Backend,
) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    let claim = shop.store.hold_before(Verb::Claim);
    let late = shop.post("/charges").key(&key).start();
    claim.reached().await;
    assert_eq!(backend.sweep().await, 1);
    claim.open();
    let late = late.answer().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(shop.work.runs(), 1, "a late retry slipped past the sweeper");
}

/// 1. A sweeper has read the expired record and is about to write it into the
///    archive; the live row is still there.
/// 2. A late retry asks: the row answers.
/// 3. The sweeper writes and removes. Another late retry asks: the archive
///    answers.
async fn a_record_that_a_sweeper_is_moving_during_the_claim_is_found_by_the_lookup(
    backend: Backend,
) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    let gate = shop.archive.hold_before(Verb::Insert);
    let sweeper = Sweeper::new(shop.store.clone())
        .archive(shop.archive.clone())
        .pause(Duration::ZERO);
    let sweeping = tokio::spawn(async move { sweeper.sweep_once().await });
    // A store that sweeps in one transaction does not call the archive.
    tokio::select! {
        () = gate.reached() => {}
        () = async { while !sweeping.is_finished() { tokio::task::yield_now().await; } } => {}
    }
    let late = shop.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    gate.open();
    let swept = sweeping
        .await
        .expect("the sweeper lives")
        .expect("the store answers");
    assert_eq!(swept.archived, 1);
    let late = shop.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(shop.work.runs(), 1, "a late retry slipped past the sweeper");
}

async fn a_late_retry_leaves_no_claim_and_the_next_one_is_told_the_same(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_before(Duration::ZERO);
    shop.post("/charges").key(&key).send().await.expect_run(1);
    backend.clock.advance(DAY);
    backend.sweep().await;
    let one = shop.post("/charges").key(&key).send().await;
    let two = shop.post("/charges").key(&key).send().await;
    assert_eq!(
        one.json(),
        two.json(),
        "two late retries are told different things"
    );
    assert_eq!(
        backend.record(&key).await,
        None,
        "a late retry left a claim"
    );
    backend.clock.advance(2 * DAY);
    assert_eq!(
        backend.sweep().await,
        0,
        "a late retry made a row for the archive"
    );
}

/// 1. The key was used before: its outcome is in the archive.
/// 2. It came again without an age, so nobody asked, and that attempt lapsed.
/// 3. Before a third attempt runs, the archive is asked, and its outcome
///    completes the live record.
async fn a_takeover_asks_the_archive_whatever_the_key_looks_like(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges")
        .key("order-1")
        .send()
        .await
        .expect_run(1);
    backend.clock.advance(DAY);
    backend.sweep().await;
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    let handler = stuck.work.hold();
    let _second = stuck.post("/charges").key("order-1").start();
    handler.reached().await;
    backend.clock.advance(Duration::from_secs(30));
    for asked in ["the archive", "the live record"] {
        let third = shop.post("/charges").key("order-1").send().await;
        let problem = third.json();
        assert_eq!(
            problem["code"], "idempotency_response_not_kept",
            "by {asked}"
        );
        assert_eq!(problem["original_status"], 201, "by {asked}");
        assert_eq!(problem["resource_id"], "ch_1", "by {asked}");
        assert_eq!(shop.archive.calls(Verb::Lookup), 1, "by {asked}");
    }
    assert_eq!(
        shop.work.runs(),
        1,
        "a takeover ran although its outcome was known"
    );
}

async fn a_takeover_that_finds_no_outcome_in_the_archive_runs_nothing(backend: Backend) {
    let stuck = backend.shop().open().await;
    stuck.loses_its_leases();
    for _ in 0..2 {
        let handler = stuck.work.hold();
        let ask = stuck.post("/charges").key("order-1").start();
        handler.reached().await;
        backend.clock.advance(DAY);
        backend.sweep().await;
        drop(ask);
        handler.open();
        // Fenced, it asks for the winner's record, and then its flight is over.
        stuck.store.answered(Verb::Get, stuck.work.runs()).await;
    }
    let handler = stuck.work.hold();
    let _third = stuck.post("/charges").key("order-1").start();
    handler.reached().await;
    backend.clock.advance(Duration::from_secs(30));
    let shop = backend.shop().open().await;
    let late = shop.post("/charges").key("order-1").send().await;
    // Where outcomes are archived first, that of a fenced attempt may be known.
    let code = if backend.archives_first() {
        "idempotency_response_not_kept"
    } else {
        "idempotency_key_expired"
    };
    late.expect_problem(409, code, Retry::Reconcile);
    assert_eq!(shop.work.runs(), 0, "it ran again");
    let record = backend
        .record("order-1")
        .await
        .expect("the third attempt is not forgotten");
    assert!(record.attempt > 1, "the number of attempts is kept");
}

/// 1. The claim is won; the archive takes longer than the lease.
/// 2. The lease is renewed all the while, so nobody takes over.
/// 3. The archive answers, and the handler runs.
async fn a_slow_lookup_does_not_lose_the_lease(backend: Backend) {
    let patient = |opening: Opening| {
        opening.policy(|policy| {
            let ttl = Ttl::new(DAY).expect("a day is a TTL");
            policy.ttl(ttl).store_timeout(Duration::from_mins(5))
        })
    };
    let (shop, other) = (
        patient(backend.shop()).in_memory(),
        patient(backend.shop()).in_memory(),
    );
    let key = backend.ulid_made_before(2 * DAY);
    let lookup = Gate::closed();
    shop.archive
        .next(Verb::Lookup, Fault::HeldBefore(lookup.clone()));
    let first = shop.post("/charges").key(&key).start();
    lookup.reached().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let repeat = other.post("/charges").key(&key).send().await;
    repeat.expect_problem(409, "idempotency_request_in_progress", Retry::SameKeyLater);
    lookup.open();
    first.answer().await.expect_run(1);
    assert_eq!(other.work.runs(), 0, "it ran twice");
}

const DAY: Duration = Duration::from_hours(24);
