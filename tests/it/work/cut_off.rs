//! A commit whose end nobody saw: the client is told what the record says,
//! whatever the handler makes of it. On PostgreSQL, where a commit can be cut off.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::Request,
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
};
use axum_idempotency::{Recording, Retry, store::WorkError};
use http::StatusCode;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::Mutex;

use super::{Base, Place, charged};
use crate::support::{
    Answer, Gate, Opening, Seen, Shop, Verb, in_time,
    postgres::{CommitGate, Proxy, Schema},
};

/// What a handler makes of a commit that was cut off.
#[derive(Clone, Copy, Debug)]
enum Then {
    Forgets,
    Fails,
    Panics,
}

impl Then {
    const ALL: [Self; 3] = [Self::Forgets, Self::Fails, Self::Panics];

    fn answer(self) -> Response {
        match self {
            Self::Forgets => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                (status, Recording::Forget, "perhaps").into_response()
            }
            Self::Fails => (StatusCode::BAD_GATEWAY, "perhaps").into_response(),
            Self::Panics => panic!("as the test asked"),
        }
    }
}

/// A service whose commit may be cut off.
fn doubting(place: &Place, then: Then) -> Opening {
    place.shop_of(move |base, seen| async move {
        let mut work = base.begin(&seen.idempotency()).await;
        work.have_effect(seen.idempotency().key().as_str()).await;
        match work.try_commit(charged(&seen)).await {
            Ok(response) => response,
            Err(error) => {
                assert!(matches!(error, WorkError::Unknown(_)), "{error:?}");
                assert!(!error.is_rolled_back());
                then.answer()
            }
        }
    })
}

/// The answer and the record agree.
async fn expect_one_truth(place: &Place, shop: &Shop, first: &Answer, happened: bool) {
    assert_eq!(place.base.effects().await, i64::from(happened));
    let repeat = place.other().await.post("/charges").key("k").send().await;
    if happened {
        assert_eq!(first.status, 201, "{first:?}");
        assert!(first.is_marked_as_replay(), "it is the record's answer");
        repeat.expect_replay_of(first);
    } else if first.status == 503 {
        repeat.expect_run(1);
    } else {
        repeat.expect_replay_of(first);
    }
    assert_eq!(shop.work.runs(), 1);
}

#[tokio::test]
async fn after_the_server_had_committed_the_record_is_the_answer() {
    for then in Then::ALL {
        in_time(async {
            let schema = Schema::new();
            let proxy = Proxy::before(&schema.url());
            let (base, backend) = Base::postgres_by_way_of(schema, &proxy.url()).await;
            let place = Place { base, backend };
            let shop = doubting(&place, then).open().await;
            proxy.cut_answer_to("COMMIT");
            let first = shop.post("/charges").key("k").send().await;
            proxy.has_fired(1).await;
            expect_one_truth(&place, &shop, &first, true).await;
        })
        .await;
    }
}

#[tokio::test]
async fn when_the_server_rolls_back_the_handlers_answer_counts() {
    for then in Then::ALL {
        in_time(async {
            let place = Place::postgres().await;
            let mut gate = CommitGate::before(place.base.url(), "effects").await;
            let shop = doubting(&place, then).open().await;
            let first = shop.post("/charges").key("k").start();
            let standing = gate.reached().await;
            gate.turn_away(standing).await;
            gate.open().await;
            let first = first.answer().await;
            let status = match then {
                Then::Forgets => 503,
                Then::Fails => 502,
                Then::Panics => 500,
            };
            assert_eq!(first.status, status);
            expect_one_truth(&place, &shop, &first, false).await;
        })
        .await;
    }
}

/// 1. The connection is cut while the server is within the commit.
/// 2. The handler gives up; its answer waits for the locked record.
/// 3. The commit takes effect.
#[tokio::test]
async fn while_the_server_commits_the_answer_waits_for_it() {
    for then in Then::ALL {
        in_time(async {
            let schema = Schema::new();
            let proxy = Proxy::before(&schema.url());
            let (base, backend) = Base::postgres_by_way_of(schema, &proxy.url()).await;
            let place = Place { base, backend };
            let mut gate = CommitGate::before(place.base.url(), "effects").await;
            let shop = doubting(&place, then).open().await;
            let first = shop.post("/charges").key("k").start();
            let standing = gate.reached().await;
            proxy.cut();
            let verb = match then {
                Then::Forgets => Verb::Release,
                Then::Fails | Then::Panics => Verb::Complete,
            };
            shop.store.begun(verb, 1).await;
            gate.let_through(standing).await;
            let first = first.answer().await;
            expect_one_truth(&place, &shop, &first, true).await;
        })
        .await;
    }
}

/// The store gives no answer either: nobody knows, and nobody says otherwise.
#[tokio::test]
async fn while_the_store_does_not_answer_the_outcome_is_unknown() {
    for then in Then::ALL {
        in_time(async {
            let schema = Schema::new();
            let proxy = Proxy::before(&schema.url());
            let (base, backend) = Base::postgres_by_way_of(schema, &proxy.url()).await;
            let place = Place { base, backend };
            let mut gate = CommitGate::before(place.base.url(), "effects").await;
            let shop = doubting(&place, then)
                .policy(|policy| policy.store_timeout(Duration::from_millis(500)))
                .open()
                .await;
            let first = shop.post("/charges").key("k").start();
            let standing = gate.reached().await;
            proxy.cut();
            let first = first.answer().await;
            first.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
            gate.let_through(standing).await;
            let repeat = crate::support::servers::until_some("the outcome is known", async || {
                let repeat = place.other().await.post("/charges").key("k").send().await;
                repeat.is_marked_as_replay().then_some(repeat)
            });
            assert_eq!(repeat.await.status, 201, "{then:?}");
            assert_eq!(place.base.effects().await, 1);
            assert_eq!(shop.work.runs(), 1);
        })
        .await;
    }
}

/// 1. A task of the handler's is within the commit when the handler answers.
/// 2. That answer waits for the locked record, and finds another in it.
#[tokio::test]
async fn an_answer_beside_a_commit_under_way_gives_way_to_it() {
    in_time(async {
        let place = Place::postgres().await;
        let gate = CommitGate::before(place.base.url(), "effects").await;
        let gate = Arc::new(Mutex::new((gate, None)));
        let held = Arc::clone(&gate);
        let shop = place.shop_of(move |base, seen: Seen| {
            let held = Arc::clone(&held);
            async move {
                let mut work = base.begin(&seen.idempotency()).await;
                work.have_effect("once").await;
                tokio::spawn(async move { work.commit(charged(&seen)).await });
                let (gate, standing) = &mut *held.lock().await;
                *standing = Some(gate.reached().await);
                (StatusCode::ACCEPTED, "it will be done").into_response()
            }
        });
        let shop = shop.open().await;
        let first = shop.post("/charges").key("k").start();
        shop.store.begun(Verb::Complete, 1).await;
        let (gate, standing) = &mut *gate.lock().await;
        gate.let_through(standing.take().expect("it is there"))
            .await;
        let first = first.answer().await;
        expect_one_truth(&place, &shop, &first, true).await;
    })
    .await;
}

/// 1. A layer inside gives up on the handler while its commit is under way.
/// 2. The layer's answer waits for the locked record, and finds another in it.
#[tokio::test]
async fn a_handler_that_is_dropped_within_its_commit_may_have_committed() {
    in_time(async {
        let place = Place::postgres().await;
        let mut gate = CommitGate::before(place.base.url(), "effects").await;
        let over = Gate::closed();
        let given_up = over.clone();
        let time_out = from_fn(move |request: Request, next: Next| {
            let given_up = given_up.clone();
            async move {
                tokio::select! {
                    response = next.run(request) => response,
                    () = given_up.pass() => StatusCode::REQUEST_TIMEOUT.into_response(),
                }
            }
        });
        let shop = place
            .charging()
            .routes(move |work, layer| work.router().layer(time_out).layer(layer.clone()))
            .open()
            .await;
        let first = shop.post("/charges").key("k").start();
        let standing = gate.reached().await;
        over.open();
        shop.store.begun(Verb::Complete, 1).await;
        assert_eq!(shop.work.aborted(), 1, "the handler was dropped");
        gate.let_through(standing).await;
        let first = first.answer().await;
        expect_one_truth(&place, &shop, &first, true).await;
    })
    .await;
}

#[tokio::test]
async fn at_the_end_of_the_longest_lease_within_a_commit_the_outcome_is_unknown() {
    in_time(async {
        let place = Place::postgres().await;
        let mut gate = CommitGate::before(place.base.url(), "effects").await;
        let longest = Duration::from_millis(500);
        let shop = place
            .charging()
            .policy(|policy| policy.lease(longest / 2).max_lease(longest))
            .open()
            .await;
        let first = shop.post("/charges").key("k").start();
        let standing = gate.reached().await;
        let first = first.answer().await;
        first.expect_problem(409, "idempotency_outcome_unknown", Retry::Reconcile);
        gate.let_through(standing).await;
        let repeat = place.other().await.post("/charges").key("k").send().await;
        assert!(repeat.is_marked_as_replay());
        assert_eq!(repeat.status, 201);
        assert_eq!(place.base.effects().await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_takes_effect_and_record_back() {
    in_time(async {
        let place = Place::postgres().await;
        let deferred = "CREATE TABLE orders (name TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED); \
                        INSERT INTO orders VALUES ('order-1')";
        place.base.run(deferred).await;
        let shop = place.shop_of(async |base: Base, seen: Seen| {
            let mut work = base.begin(&seen.idempotency()).await;
            work.have_effect("once").await;
            let ran = work.run("INSERT INTO orders VALUES ('order-1')").await;
            ran.expect("the constraint is deferred");
            match work.try_commit(charged(&seen)).await {
                Ok(response) => response,
                Err(error) => {
                    assert!(matches!(error, WorkError::Store(_)), "{error:?}");
                    assert!(error.is_rolled_back());
                    Then::Forgets.answer()
                }
            }
        });
        let shop = shop.open().await;
        let first = shop.post("/charges").key("k").send().await;
        assert_eq!(first.status, 503);
        place.expect_nothing("k").await;
        let mut raw = PgConnection::connect(place.base.url()).await.expect("one");
        let empty = sqlx::query(AssertSqlSafe("DELETE FROM orders"));
        empty.execute(&mut raw).await.expect("emptied");
        let again = shop.post("/charges").key("k").send().await;
        again.expect_run(2);
        assert_eq!(place.base.effects().await, 1);
    })
    .await;
}
