//! A route that runs without protection, since its claim was not answered: where
//! that had landed, its record takes the work all the same.

use axum::response::IntoResponse as _;
use axum_idempotency::{InFlight, StoreDown, store::WorkError};
use http::StatusCode;

use super::{Base, Place, charge, on_both};
use crate::support::{Fault, Opening, PATIENCE, Seen, Shop, Verb};

on_both!(
    the_record_of_a_claim_that_landed_is_the_answer,
    the_record_of_a_claim_that_landed_is_the_answer_to_all_who_waited,
    without_a_record_there_is_no_work,
);

fn open(shop: Opening) -> Opening {
    shop.policy(|policy| {
        let policy = policy.store_down(StoreDown::Open);
        policy.in_flight(InFlight::Wait(PATIENCE))
    })
}

async fn the_record_of_a_claim_that_landed_is_the_answer(place: Place) {
    let shop = place.shop_of(async |base: Base, seen: Seen| {
        let charged = charge(&base, &seen).await;
        match seen.body.as_ref() {
            b"answers" => charged,
            b"panics" => panic!("as the test asked"),
            _ => StatusCode::BAD_GATEWAY.into_response(),
        }
    });
    let shop = open(shop).open().await;
    for (run, ending) in ["answers", "fails", "panics"].into_iter().enumerate() {
        shop.store.next(Verb::Claim, Fault::AnswerLost);
        let ask = |shop: &Shop| shop.post("/charges").key(ending).body(ending);
        let first = ask(&shop).send().await;
        first.expect_run(run + 1);
        let repeat = ask(&place.other().await).send().await;
        repeat.expect_replay_of(&first);
    }
    assert_eq!(place.base.effects().await, 3);
}

async fn the_record_of_a_claim_that_landed_is_the_answer_to_all_who_waited(place: Place) {
    let shop = place.shop_of(async |base: Base, seen: Seen| {
        let _recorded = charge(&base, &seen).await;
        StatusCode::BAD_GATEWAY.into_response()
    });
    let shop = open(shop).open().await;
    let handler = shop.work.hold();
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting = shop.post("/charges").key("k").start();
    handler.open();
    let first = first.answer().await;
    first.expect_run(1);
    waiting.answer().await.expect_replay_of(&first);
    assert_eq!(place.base.effects().await, 1);
}

async fn without_a_record_there_is_no_work(place: Place) {
    let shop = place.shop_of(async |base: Base, seen: Seen| {
        let begun = base.try_begin(&seen.idempotency()).await;
        let refused = begun.expect_err("there is no record");
        assert!(matches!(refused, WorkError::Fenced), "{refused:?}");
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    });
    let shop = open(shop).open().await;
    shop.store.next(Verb::Claim, Fault::DOWN);
    let refused = shop.post("/charges").key("k").send().await;
    assert_eq!(refused.status, 503);
    assert_eq!(place.base.effects().await, 0);
}
