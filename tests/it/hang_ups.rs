//! A client that hangs up changes nothing, wherever its request is.
//!
//! In every test here: 1. the request has come to the named place and waits;
//! 2. its client hangs up, and the server has dropped the request; 3. the
//! place lets go; 4. the request goes on without its client, and a retry gets
//! the answer that the first run made.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use axum_idempotency::{InFlight, RecordState, StoreDown};
use http::StatusCode;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::support::{
    Backend, Fault, Gate, Logs, Opening, PATIENCE, Shop, Verb, Work, on_every_backend,
};

on_every_backend!(
    while_the_ttl_is_published,
    before_the_claim_reaches_the_store,
    after_the_claim_has_taken_effect,
    before_the_archive_is_asked,
    after_the_archive_was_asked,
    before_the_claim_is_confirmed,
    after_the_claim_is_confirmed,
    inside_the_handler,
    before_the_completion_reaches_the_store,
    after_the_completion_has_taken_effect,
    before_a_release_reaches_the_store,
    after_a_release_has_taken_effect,
    in_the_middle_of_a_streamed_response,
    while_waiting_for_another,
    while_waiting_for_another_process,
    while_finding_out_that_another_process_runs_it,
    inside_a_handler_without_protection,
    the_handler_goes_on_inside_the_span_of_its_request,
);

/// Counts the requests that came to the layer, and those that ended there or
/// were dropped.
#[derive(Clone, Debug)]
struct Door {
    came: watch::Sender<usize>,
    went: watch::Sender<usize>,
}

impl Door {
    fn of(opening: Opening) -> (Self, Opening) {
        let door = Self {
            came: watch::Sender::new(0),
            went: watch::Sender::new(0),
        };
        let counting = door.clone();
        let opening = opening.outside(|router| router.layer(from_fn_with_state(counting, count)));
        (door, opening)
    }

    async fn came(&self, count: usize) {
        let mut came = self.came.subscribe();
        let came = came.wait_for(|came| *came >= count).await;
        came.expect("the service is running");
    }

    async fn went(&self, count: usize) {
        let mut went = self.went.subscribe();
        let went = went.wait_for(|went| *went >= count).await;
        went.expect("the service is running");
    }
}

async fn count(State(door): State<Door>, request: Request, next: Next) -> Response {
    struct OnDrop(Door);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.went.send_modify(|went| *went += 1);
        }
    }
    door.came.send_modify(|came| *came += 1);
    let _going = OnDrop(door);
    next.run(request).await
}

/// Steps 1 to 4.
async fn hang_up_at(backend: Backend, place: impl FnOnce(&Shop) -> Gate) {
    let (door, opening) = Door::of(backend.shop());
    let shop = opening.open().await;
    // Old enough for the archive to be asked.
    let key = backend.ulid_made_before(2 * DAY);
    let gate = place(&shop);
    let first = shop.post("/charges").key(&key).start();
    gate.reached().await;
    first.hang_up().await;
    door.went(1).await;
    gate.open();
    shop.store.answered(Verb::Complete, 1).await;
    let retry = shop.post("/charges").key(&key).send().await;
    assert_eq!(retry.status, 201, "the first run left no answer");
    assert!(retry.is_marked_as_replay(), "the retry ran again");
    assert_eq!(retry.json()["run"], 1);
    assert_eq!(
        shop.work.runs(),
        1,
        "a client that hung up made it run again"
    );
    assert_eq!(
        shop.work.aborted(),
        0,
        "the handler was dropped with its client"
    );
}

async fn while_the_ttl_is_published(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_before(Verb::Publish)).await;
}

async fn before_the_claim_reaches_the_store(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_before(Verb::Claim)).await;
}

async fn after_the_claim_has_taken_effect(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_after(Verb::Claim)).await;
}

async fn before_the_archive_is_asked(backend: Backend) {
    hang_up_at(backend, |shop| shop.archive.hold_before(Verb::Lookup)).await;
}

async fn after_the_archive_was_asked(backend: Backend) {
    hang_up_at(backend, |shop| shop.archive.hold_after(Verb::Lookup)).await;
}

async fn before_the_claim_is_confirmed(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_before(Verb::Renew)).await;
}

async fn after_the_claim_is_confirmed(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_after(Verb::Renew)).await;
}

async fn inside_the_handler(backend: Backend) {
    hang_up_at(backend, |shop| shop.work.hold()).await;
}

async fn before_the_completion_reaches_the_store(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_before(Verb::Complete)).await;
}

async fn after_the_completion_has_taken_effect(backend: Backend) {
    hang_up_at(backend, |shop| shop.store.hold_after(Verb::Complete)).await;
}

/// The handler says that nothing happened, so the retry runs.
async fn hang_up_at_release(backend: Backend, place: impl FnOnce(&Shop) -> Gate) {
    let work = Work::answering(|seen| async move {
        let first = (StatusCode::TOO_MANY_REQUESTS, "slow down");
        if seen.run == 1 {
            first.into_response()
        } else {
            seen.charge()
        }
    });
    let (door, opening) = Door::of(backend.shop().work(work));
    let shop = opening.open().await;
    let gate = place(&shop);
    let first = shop.post("/charges").key("k").start();
    gate.reached().await;
    first.hang_up().await;
    door.went(1).await;
    gate.open();
    shop.store.answered(Verb::Release, 1).await;
    let retry = shop.post("/charges").key("k").send().await;
    retry.expect_run(2);
    assert_eq!(retry.json()["attempt"], 1, "nothing had happened");
}

async fn before_a_release_reaches_the_store(backend: Backend) {
    hang_up_at_release(backend, |shop| shop.store.hold_before(Verb::Release)).await;
}

async fn after_a_release_has_taken_effect(backend: Backend) {
    hang_up_at_release(backend, |shop| shop.store.hold_after(Verb::Release)).await;
}

/// 1. The first half is on its way to the client, and it is recorded that the
///    response is not kept. 2. The client hangs up. 3. A retry learns that it
///    ran.
async fn in_the_middle_of_a_streamed_response(backend: Backend) {
    let middle = Gate::closed();
    let held = middle.clone();
    let work = Work::answering(move |_| {
        let held = held.clone();
        let rest = futures_util::stream::once(async move {
            held.pass().await;
            Ok::<_, std::io::Error>("the rest")
        });
        let body = axum::body::Body::from_stream(rest);
        async { (axum_idempotency::Recording::Stream, body).into_response() }
    });
    let shop = backend.shop().work(work).open().await;
    let first = shop.post("/charges").key("k").start();
    middle.reached().await;
    first.hang_up().await;
    let retry = shop.post("/charges").key("k").send().await;
    assert_eq!(retry.json()["code"], "idempotency_response_not_kept");
    assert_eq!(shop.work.runs(), 1, "a stream that was cut off ran again");
}

/// 1. The first request runs. 2. A duplicate waits for it, and its client hangs
///    up. 3. The first is answered as if the duplicate had never been.
async fn while_waiting_for_another(backend: Backend) {
    let waiting = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .layer(|layer| layer.waiter_caps(1, 1));
    let (door, opening) = Door::of(waiting);
    let shop = opening.open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    // The one place is free again after every one of them.
    for gone in 1..=3 {
        let duplicate = shop.post("/charges").key("k").start();
        door.came(1 + gone).await;
        duplicate.hang_up().await;
        door.went(gone).await;
    }
    let duplicate = shop.post("/charges").key("k").start();
    door.came(5).await;
    handler.open();
    let first = first.answer().await;
    first.expect_run(1);
    duplicate.answer().await.expect_replay_of(&first);
    let record = backend.record("k").await.expect("the first left a record");
    assert!(matches!(record.state, RecordState::Completed(_)));
}

/// 1. The first request runs in another process. 2. A duplicate waits for it
///    here, and its client hangs up. 3. Nothing of it is left.
async fn while_waiting_for_another_process(backend: Backend) {
    let elsewhere = backend.shop().open().await;
    let waiting = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .layer(|layer| layer.waiter_caps(1, 1));
    let (door, opening) = Door::of(waiting);
    let shop = opening.open().await;
    let handler = elsewhere.work.hold();
    let first = elsewhere.post("/charges").key("k").start();
    handler.reached().await;
    let duplicate = shop.post("/charges").key("k").start();
    shop.store.answered(Verb::Claim, 2).await;
    duplicate.hang_up().await;
    door.went(1).await;
    // The one place is free again.
    let another = shop.post("/charges").key("k").start();
    let asked = shop.store.calls(Verb::Claim);
    shop.store.answered(Verb::Claim, asked + 2).await;
    handler.open();
    let first = first.answer().await;
    another.answer().await.expect_replay_of(&first);
    assert_eq!(shop.work.runs(), 0, "a duplicate whose client was gone ran");
}

/// 1. The first request runs in another process. 2. A duplicate's claim has
///    found that out, and its client hangs up. 3. Nobody waits in its name.
async fn while_finding_out_that_another_process_runs_it(backend: Backend) {
    let elsewhere = backend.shop().open().await;
    let waiting = backend
        .shop()
        .policy(|policy| policy.in_flight(InFlight::Wait(PATIENCE)))
        .layer(|layer| layer.waiter_caps(1, 1));
    let (door, opening) = Door::of(waiting);
    let shop = opening.open().await;
    let handler = elsewhere.work.hold();
    let first = elsewhere.post("/charges").key("k").start();
    handler.reached().await;
    let claim = shop.store.hold_after(Verb::Claim);
    let duplicate = shop.post("/charges").key("k").start();
    claim.reached().await;
    duplicate.hang_up().await;
    door.went(1).await;
    claim.open();
    let another = shop.post("/charges").key("k").start();
    shop.store.answered(Verb::Claim, 4).await;
    handler.open();
    let first = first.answer().await;
    another.answer().await.expect_replay_of(&first);
}

async fn inside_a_handler_without_protection(backend: Backend) {
    let open = backend
        .shop()
        .policy(|policy| policy.store_down(StoreDown::Open));
    let (door, opening) = Door::of(open);
    let shop = opening.open().await;
    shop.store.next(Verb::Claim, Fault::AnswerLost);
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    first.hang_up().await;
    door.went(1).await;
    handler.open();
    shop.store.answered(Verb::Complete, 1).await;
    let retry = shop.post("/charges").key("k").send().await;
    assert!(retry.is_marked_as_replay(), "the retry ran again");
    assert_eq!(
        shop.work.aborted(),
        0,
        "the handler was dropped with its client"
    );
}

async fn the_handler_goes_on_inside_the_span_of_its_request(backend: Backend) {
    async fn in_a_span(request: Request, next: Next) -> Response {
        let span = tracing::info_span!(target: "axum_idempotency", "of_the_request");
        next.run(request).instrument(span).await
    }
    let _logs = Logs::capture();
    let work = Work::telling_its_spans();
    let spanned = backend.shop().work(work).routes(|work, layer| {
        let inner = work.router().layer(layer.clone());
        inner.layer(axum::middleware::from_fn(in_a_span))
    });
    let (door, opening) = Door::of(spanned);
    let shop = opening.open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    first.hang_up().await;
    door.went(1).await;
    handler.open();
    shop.store.answered(Verb::Complete, 1).await;
    let retry = shop.post("/charges").key("k").send().await;
    assert_eq!(
        retry.body, "of_the_request:idempotency",
        "the handler's logs belong to its request"
    );
}

const DAY: Duration = Duration::from_hours(24);
