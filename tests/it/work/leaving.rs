//! What leaves after the commit is what was recorded, whatever has become of the
//! response since.

use std::time::Duration;

use axum::{
    extract::Request,
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;

use super::{Place, charge, on_both};
use crate::support::{Answer, Gate, Shop, Verb};

on_both!(
    an_effect_and_its_record_are_there_together,
    of_a_handler_that_answers_something_else,
    of_a_handler_that_panics,
    of_an_inner_layer_that_rewrites,
    of_an_inner_layer_that_times_out,
    of_a_handler_that_is_aborted_at_the_end_of_its_longest_lease,
    of_a_client_that_has_hung_up,
);

/// The recorded response leaves with its cookie, and is replayed without.
async fn expect_recorded(place: &Place, shop: &Shop, first: &Answer) {
    first.expect_run(1);
    assert_eq!(first.header("location"), Some("/charges/ch_1"));
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    for shop in [shop, &place.other().await] {
        let repeat = shop.post("/charges").key("k").send().await;
        repeat.expect_replay_of(first);
        assert_eq!(repeat.header("location"), Some("/charges/ch_1"));
        assert_eq!(repeat.header("set-cookie"), None);
    }
    assert_eq!(shop.work.runs(), 1);
    assert_eq!(place.base.effects().await, 1);
    assert_eq!(shop.store.calls(Verb::Complete), 0, "it was recorded twice");
}

async fn an_effect_and_its_record_are_there_together(place: Place) {
    let shop = place.charging().open().await;
    let first = shop.post("/charges").key("k").send().await;
    expect_recorded(&place, &shop, &first).await;
}

async fn of_a_handler_that_answers_something_else(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let _recorded = charge(&base, &seen).await;
        (StatusCode::BAD_GATEWAY, "the mail was not sent").into_response()
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    expect_recorded(&place, &shop, &first).await;
}

async fn of_a_handler_that_panics(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let _recorded = charge(&base, &seen).await;
        panic!("after the commit, as the test asked")
    });
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    expect_recorded(&place, &shop, &first).await;
}

async fn of_an_inner_layer_that_rewrites(place: Place) {
    async fn rewrite(request: Request, next: Next) -> Response {
        let _lost = next.run(request).await;
        ([("x-rewritten", "yes")], "rewritten").into_response()
    }
    let shop = place
        .charging()
        .routes(|work, layer| work.router().layer(from_fn(rewrite)).layer(layer.clone()));
    let shop = shop.open().await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(first.header("x-rewritten"), None);
    expect_recorded(&place, &shop, &first).await;
}

async fn of_an_inner_layer_that_times_out(place: Place) {
    let committed = Gate::closed();
    let (held, over) = (committed.clone(), committed.clone());
    let shop = place.shop_of(move |base, seen| {
        let held = held.clone();
        async move {
            let recorded = charge(&base, &seen).await;
            held.pass().await;
            recorded
        }
    });
    let time_out = from_fn(move |request: Request, next: Next| {
        let over = over.clone();
        async move {
            tokio::select! {
                response = next.run(request) => response,
                () = over.reached() => StatusCode::REQUEST_TIMEOUT.into_response(),
            }
        }
    });
    let shop = shop
        .routes(move |work, layer| work.router().layer(time_out).layer(layer.clone()))
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(shop.work.aborted(), 1, "the handler was dropped");
    expect_recorded(&place, &shop, &first).await;
}

async fn of_a_handler_that_is_aborted_at_the_end_of_its_longest_lease(place: Place) {
    let shop = place.shop_of(async |base, seen| {
        let _recorded = charge(&base, &seen).await;
        std::future::pending().await
    });
    let longest = Duration::from_millis(500);
    let shop = shop
        .policy(|policy| policy.lease(longest / 2).max_lease(longest))
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    assert_eq!(shop.work.aborted(), 1, "the handler was dropped");
    expect_recorded(&place, &shop, &first).await;
}

async fn of_a_client_that_has_hung_up(place: Place) {
    let shop = place.charging().open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    first.hang_up().await;
    handler.open();
    shop.work.ended(1).await;
    let repeat = shop.post("/charges").key("k").send().await;
    assert!(repeat.is_marked_as_replay());
    assert_eq!(place.base.effects().await, 1);
}
