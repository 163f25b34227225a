//! No attempt starts past the window.

use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::client::{Key, WindowPassed};
use http::{StatusCode, header::RETRY_AFTER};

use super::support::{Client, answering, bare, patient};
use crate::support::{Backend, Work, within_a_day};

const HOUR: Duration = Duration::from_hours(1);
const TICK: Duration = Duration::from_millis(1);

/// Asks for an hour, every time.
fn in_an_hour() -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    (status, [(RETRY_AFTER, "3600")], "in an hour").into_response()
}

/// A client whose only bound is a window of three hours, less half an hour.
fn bound_by_window(backend: &Backend, work: &Work) -> Client {
    let settings = patient(backend).window(3 * HOUR).margin(HOUR / 2);
    let settings = settings.attempts(100).total_time(100 * HOUR);
    Client::over(&bare(work), settings)
}

#[tokio::test(start_paused = true)]
async fn a_restored_key_is_sent_until_the_margin_and_not_past_it() {
    let backend = Backend::memory();
    let work = Work::charging();
    let end = 2 * HOUR + HOUR / 2;
    let client = bound_by_window(&backend, &work);
    let inside = Key::new(&backend.ulid_made_before(end)).expect("a key");
    let charge = client.post("/charges").with_extension(inside);
    assert!(charge.send().await.is_ok(), "it is inside the window");
    let past = Key::new(&backend.ulid_made_before(end + TICK)).expect("a key");
    let charge = client.post("/charges").with_extension(past.clone());
    let error = charge.send().await.unwrap_err();
    let passed = WindowPassed::from_error(&error).expect("it is past the window");
    assert_eq!((&passed.key, passed.window), (&past, 3 * HOUR));
    assert_eq!(passed.age, end + TICK);
    assert_eq!((client.attempts(), work.runs()), (1, 1), "it was sent");
}

#[tokio::test]
async fn by_default_the_window_is_a_day_and_its_last_tenth_is_spare() {
    let backend = Backend::memory();
    let client = Client::over(&bare(&Work::charging()), patient(&backend));
    for (age, is_sent) in [(21 * HOUR, true), (22 * HOUR, false), (48 * HOUR, false)] {
        let key = Key::new(&backend.ulid_made_before(age)).expect("a key");
        let charge = client.post("/charges").with_extension(key).send().await;
        assert_eq!(charge.is_ok(), is_sent, "{age:?}");
    }
}

#[tokio::test]
async fn a_uuid_of_version_7_tells_its_age_and_a_random_one_does_not() {
    let backend = Backend::memory();
    let client = Client::over(&bare(&Work::charging()), patient(&backend));
    for (key, is_sent) in [
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", false),
        ("919108f7-52d1-4320-9bac-f847db4148a8", true),
        ("order-1", true),
    ] {
        let charge = client.post("/charges").header("idempotency-key", key);
        assert_eq!(charge.send().await.is_ok(), is_sent, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_end_with_the_window_of_the_keys_own_time() {
    within_a_day(async {
        // Each is sent at once and then hourly, until less than half an hour
        // of three hours is left.
        for (age, attempts) in [(Duration::ZERO, 3), (HOUR, 2), (2 * HOUR, 1)] {
            let backend = Backend::memory();
            let client = bound_by_window(&backend, &answering([in_an_hour]));
            let key = Key::new(&backend.ulid_made_before(age)).expect("a key");
            let charge = client.post("/charges").with_extension(key);
            let answer = charge.send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.text().await.unwrap(), "in an hour");
            assert_eq!(client.attempts(), attempts, "a key of {age:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_time_and_one_from_the_future_count_from_the_first_send() {
    within_a_day(async {
        let backend = Backend::memory();
        for key in ["order-1".to_owned(), backend.ulid_made_ahead(HOUR)] {
            let client = bound_by_window(&backend, &answering([in_an_hour]));
            let key = Key::new(&key).expect("a key");
            let charge = client.post("/charges").with_extension(key);
            charge.send().await.unwrap();
            assert_eq!(client.attempts(), 3);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_found_to_have_gone_on_ends_the_retries() {
    // As after a machine has slept: the monotonic clock knows nothing of it.
    for ahead in [Duration::ZERO, HOUR] {
        let backend = Backend::memory();
        let client = bound_by_window(&backend, &answering([in_an_hour]));
        let key = Key::new(&backend.ulid_made_ahead(ahead)).expect("a key");
        let charge = client.post("/charges").with_extension(key).send();
        let charge = tokio::spawn(charge);
        while client.attempts() < 1 {
            tokio::task::yield_now().await;
        }
        backend.clock.advance(3 * HOUR);
        let answer = charge.await.unwrap().unwrap();
        assert_eq!(answer.text().await.unwrap(), "in an hour");
        assert_eq!(client.attempts(), 1, "sent past the window, {ahead:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_not_lengthen_the_window() {
    within_a_day(async {
        let backend = Backend::memory();
        let client = bound_by_window(&backend, &answering([in_an_hour]));
        let charge = tokio::spawn(client.post("/charges").send());
        while client.attempts() < 1 {
            tokio::task::yield_now().await;
        }
        backend.clock.set(jiff::Timestamp::UNIX_EPOCH);
        charge.await.unwrap().unwrap();
        assert_eq!(client.attempts(), 3);
    })
    .await;
}
