//! The response header that says when the record expires: on every answer that
//! a repeat would get again, as a structured-field Date (RFC 9651 section
//! 3.3.7), and on no other.

use std::time::Duration;

use axum::response::IntoResponse as _;
use axum_idempotency::{Clock as _, InFlight, PolicyBuilder, Ttl};
use http::{HeaderName, StatusCode};

use crate::support::{Answer, Backend, Work, on_every_backend};

on_every_backend!(
    first_answer_and_replay_say_the_same_moment,
    a_key_from_ahead_lasts_as_much_longer,
    a_takeover_moves_the_moment,
    a_duplicate_that_waited_is_told_too,
    what_is_not_recorded_does_not_expire,
    no_answer_tells_it_unless_the_policy_wants_it,
);

fn telling(policy: PolicyBuilder) -> PolicyBuilder {
    policy.expires_header(HeaderName::from_static(NAME))
}

/// The store's present, in seconds since 1970.
fn now(backend: &Backend) -> i64 {
    backend.clock.now().as_second()
}

/// The moment an answer tells, in seconds since 1970.
#[track_caller]
fn expiry_of(answer: &Answer) -> i64 {
    let date = answer.header(NAME).expect("the expiry is told");
    let seconds = date.strip_prefix('@');
    let seconds = seconds.unwrap_or_else(|| panic!("{date} is no Date"));
    let is_integer = seconds.bytes().all(|byte| byte.is_ascii_digit());
    assert!(is_integer, "a Date is an integer: {date}");
    seconds.parse().expect("a Date fits")
}

async fn first_answer_and_replay_say_the_same_moment(backend: Backend) {
    let ttl = Ttl::new(Duration::from_hours(48)).unwrap();
    let shop = backend.shop().policy(|policy| telling(policy).ttl(ttl));
    let shop = shop.open().await;
    let begun = now(&backend);
    let first = shop.post("/charges").key("k").send().await;
    first.expect_run(1);
    assert_eq!(expiry_of(&first), begun + 48 * 3600, "on the first answer");
    backend.clock.advance(Duration::from_hours(47));
    let replay = shop.post("/charges").key("k").send().await;
    replay.expect_replay_of(&first);
    assert_eq!(expiry_of(&replay), expiry_of(&first), "on the replay");
    // At that very moment the record is over.
    backend.clock.advance(Duration::from_hours(1));
    let late = shop.post("/charges").key("k").send().await;
    assert_eq!(late.json()["code"], "idempotency_key_expired");
}

async fn a_key_from_ahead_lasts_as_much_longer(backend: Backend) {
    let shop = backend.shop().policy(telling).open().await;
    let key = backend.ulid_made_ahead(Duration::from_hours(2));
    let first = shop.post("/charges").key(&key).send().await;
    first.expect_run(1);
    assert_eq!(expiry_of(&first), now(&backend) + 26 * 3600);
}

/// 1. The first attempt's process is gone. 2. Its lease lapses.
/// 3. The next takes over: its record's window begins then.
async fn a_takeover_moves_the_moment(backend: Backend) {
    let gone = backend.shop().policy(telling).open().await;
    let _never_opened = gone.work.hold();
    gone.loses_its_leases();
    let _first = gone.post("/charges").key("k").start();
    gone.work.begun(1).await;
    backend.clock.advance(Duration::from_mins(1));
    let shop = backend.shop().policy(telling).open().await;
    let next = shop.post("/charges").key("k").send().await;
    assert_eq!(next.json()["attempt"], 2, "the takeover");
    assert_eq!(expiry_of(&next), now(&backend) + 24 * 3600);
}

async fn a_duplicate_that_waited_is_told_too(backend: Backend) {
    let wait = InFlight::Wait(Duration::from_mins(1));
    let shop = backend
        .shop()
        .policy(|policy| telling(policy).in_flight(wait));
    let shop = shop.open().await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting = shop.post("/charges").key("k").start();
    handler.open();
    let (first, waiting) = (first.answer().await, waiting.answer().await);
    waiting.expect_replay_of(&first);
    assert_eq!(expiry_of(&waiting), expiry_of(&first));
}

async fn what_is_not_recorded_does_not_expire(backend: Backend) {
    let busy = Work::answering(|_| async { StatusCode::TOO_MANY_REQUESTS.into_response() });
    let shop = backend.shop().policy(telling).work(busy).open().await;
    let forgotten = shop.post("/charges").key("k").send().await;
    assert_eq!(forgotten.status, 429);
    assert_eq!(
        forgotten.header(NAME),
        None,
        "on an answer that is forgotten"
    );
    let missing = shop.post("/charges").send().await;
    assert_eq!(missing.status, 400);
    assert_eq!(missing.header(NAME), None, "on a rejection");
}

async fn no_answer_tells_it_unless_the_policy_wants_it(backend: Backend) {
    let shop = backend.shop().open().await;
    let first = shop.post("/charges").key("k").send().await;
    let replay = shop.post("/charges").key("k").send().await;
    replay.expect_replay_of(&first);
    for answer in [first, replay] {
        assert_eq!(answer.header(NAME), None, "unasked");
    }
}

const NAME: &str = "idempotency-expires";
