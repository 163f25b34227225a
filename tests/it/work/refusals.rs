//! Work that is rolled back leaves the attempt as it was, and what the handler
//! answers then is its outcome.

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::{Recording, store::WorkError};
use futures_util::future::{BoxFuture, FutureExt as _};
use http::StatusCode;

use super::{Place, Work, charged, on_both};
use crate::support::{Gate, Seen, Verb};

on_both!(
    rolled_back_work_leaves_the_attempt_as_it_was,
    dropped_work_leaves_the_attempt_as_it_was,
    a_response_that_is_not_to_be_recorded_takes_its_work_back,
    a_savepoint_and_another_store_are_refused,
    an_effect_that_somebody_else_had_is_not_had_again,
    a_commit_in_spite_of_a_failed_statement_keeps_both_or_neither,
    a_panic_before_the_commit_takes_the_work_back,
);

async fn rolled_back_work_leaves_the_attempt_as_it_was(place: Place) {
    leaves_the_attempt_as_it_was(place, |work| work.roll_back().boxed()).await;
}

async fn dropped_work_leaves_the_attempt_as_it_was(place: Place) {
    leaves_the_attempt_as_it_was(place, |work| async { drop(work) }.boxed()).await;
}

async fn leaves_the_attempt_as_it_was(place: Place, undo: fn(Work) -> BoxFuture<'static, ()>) {
    let (before, after) = (Gate::closed(), Gate::closed());
    let gates = (before.clone(), after.clone());
    let shop = place.shop_of(move |base, seen| {
        let (before, after) = gates.clone();
        async move {
            before.pass().await;
            let mut work = base.begin(&seen.idempotency()).await;
            work.have_effect("once").await;
            undo(work).await;
            after.pass().await;
            (StatusCode::PAYMENT_REQUIRED, "declined").into_response()
        }
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").start();
    before.reached().await;
    let record = place.backend.record("k").await;
    place
        .backend
        .clock
        .advance(std::time::Duration::from_secs(1));
    before.open();
    after.reached().await;
    place.expect_nothing("k").await;
    assert_eq!(place.backend.record("k").await, record, "the lease moved");
    after.open();
    let first = first.answer().await;
    assert_eq!(first.body, "declined");
    let repeat = place.other().await.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 0);
}

/// By what the handler says of the response, by the response itself, and by the
/// policy.
async fn a_response_that_is_not_to_be_recorded_takes_its_work_back(place: Place) {
    fn response(seen: &Seen) -> Response {
        match seen.body.as_ref() {
            b"declared" => {
                seen.idempotency().set_recording(Recording::Forget);
                charged(seen)
            }
            b"response" => (Recording::Forget, charged(seen)).into_response(),
            _ => StatusCode::TOO_MANY_REQUESTS.into_response(),
        }
    }
    let shop = place.shop_of(async |base, seen| {
        let mut work = base.begin(&seen.idempotency()).await;
        work.have_effect("once").await;
        let refused = work.try_commit(response(&seen)).await;
        let refused = refused.expect_err("its effect would be forgotten");
        assert!(matches!(refused, WorkError::NotRecorded), "{refused:?}");
        (StatusCode::TOO_MANY_REQUESTS, "come again").into_response()
    });
    let shop = shop.open().await;
    for (number, how) in ["declared", "response", "policy"].into_iter().enumerate() {
        for again in 1..=2 {
            let ask = shop.post("/charges").key(how).body(how);
            assert_eq!(ask.send().await.body, "come again");
            assert_eq!(shop.work.runs(), 2 * number + again, "it was recorded");
        }
        assert_eq!(place.backend.record(how).await, None);
    }
    assert_eq!(place.base.effects().await, 0);
}

async fn a_savepoint_and_another_store_are_refused(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let idempotency = seen.idempotency();
        let [nested, other] = base.refusals(&idempotency).await;
        assert!(matches!(nested, WorkError::Nested), "{nested:?}");
        assert!(matches!(other, WorkError::OtherStore), "{other:?}");
        // Nothing of it is left in the way.
        super::charge(&base, &seen).await
    });
    let shop = shop.open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    assert_eq!(place.base.effects().await, 1);
}

async fn an_effect_that_somebody_else_had_is_not_had_again(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let mut work = base.begin(&seen.idempotency()).await;
        match work.try_effect("order-1").await {
            Ok(()) => work.commit(charged(&seen)).await,
            Err(error) => {
                let error = error.into_database_error().expect("the index refuses");
                assert!(error.is_unique_violation());
                (StatusCode::CONFLICT, "duplicate").into_response()
            }
        }
    });
    let shop = shop.open().await;
    shop.post("/charges").key("k-1").send().await.expect_run(1);
    let refused = shop.post("/charges").key("k-2").send().await;
    assert_eq!(
        (refused.status, &refused.body[..]),
        (StatusCode::CONFLICT, &b"duplicate"[..])
    );
    let repeat = place.other().await.post("/charges").key("k-2").send().await;
    repeat.expect_replay_of(&refused);
    assert_eq!(shop.work.runs(), 2);
    assert_eq!(place.base.effects().await, 1);
}

/// A handler that does not mind that a statement failed. PostgreSQL refuses
/// everything after it. SQLite goes on, but where the statement said that it
/// takes the whole transaction with it.
async fn a_commit_in_spite_of_a_failed_statement_keeps_both_or_neither(place: Place) {
    place
        .base
        .run("INSERT INTO effects (name) VALUES ('theirs')")
        .await;
    let statements: &'static [&'static str] = if place.base.has_one_writer() {
        &["INSERT INTO", "INSERT OR ROLLBACK INTO"]
    } else {
        &["INSERT INTO"]
    };
    for &statement in statements {
        let shop = place.shop_of(move |base, seen| async move {
            let mut work = base.begin(&seen.idempotency()).await;
            work.have_effect(seen.idempotency().key().as_str()).await;
            let twice = format!("{statement} effects (name) VALUES ('theirs')");
            let failed = work.run(&twice).await;
            failed.expect_err("the index refuses");
            match work.try_commit(charged(&seen)).await {
                Ok(response) => response,
                Err(refused) => {
                    assert!(matches!(refused, WorkError::Store(_)), "{refused:?}");
                    assert!(refused.is_rolled_back());
                    (StatusCode::BAD_GATEWAY, "nothing happened").into_response()
                }
            }
        });
        let shop = shop.open().await;
        let before = place.base.effects().await;
        let key = statement.replace(' ', "-");
        let first = shop.post("/charges").key(&key).send().await;
        let had = place.base.effects().await - before;
        assert!([201, 502].contains(&first.status.as_u16()), "{first:?}");
        let told = i64::from(first.status == 201);
        assert_eq!(told, had, "{statement}: {first:?}");
        let repeat = place.other().await.post("/charges").key(&key).send().await;
        repeat.expect_replay_of(&first);
        assert_eq!(shop.work.runs(), 1);
    }
}

async fn a_panic_before_the_commit_takes_the_work_back(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let mut work = base.begin(&seen.idempotency()).await;
        work.have_effect("once").await;
        panic!("as the test asked")
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.status, 500);
    let repeat = place.other().await.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 0);
    assert!(shop.store.calls(Verb::Complete) > 0);
}
