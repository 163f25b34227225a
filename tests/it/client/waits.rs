//! How long the client waits, and how often it comes back.

use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use http::{
    StatusCode,
    header::{DATE, RETRY_AFTER},
};

use super::support::{Client, answering, bare, patient};
use crate::support::{Backend, within_a_day};

fn busy() -> Response {
    StatusCode::TOO_MANY_REQUESTS.into_response()
}

fn in_seven_seconds() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "7")]).into_response()
}

/// The response's own clock is a month away from the client's.
fn at_a_date() -> Response {
    let at = "Fri, 01 Jan 2027 00:00:30 GMT";
    let date = "Fri, 01 Jan 2027 00:00:00 GMT";
    (StatusCode::BAD_GATEWAY, [(RETRY_AFTER, at), (DATE, date)]).into_response()
}

fn done() -> Response {
    StatusCode::CREATED.into_response()
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_never_shorter_than_asked_for() {
    within_a_day(async {
        for base in [Duration::ZERO, Duration::from_secs(1)] {
            let settings = patient(&Backend::memory()).backoff(base, base);
            let work = answering([in_seven_seconds, at_a_date, done]);
            let client = Client::over(&bare(&work), settings);
            client.post("/charges").send().await.unwrap();
            let waits = client.waits();
            let asked = [7, 30].map(Duration::from_secs);
            assert_eq!(waits.len(), asked.len());
            for (wait, asked) in waits.iter().zip(asked) {
                // Timers are in whole milliseconds.
                let latest = asked + base + Duration::from_millis(2);
                assert!((asked..=latest).contains(wait), "{wait:?} of {asked:?}");
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_being_asked_the_client_backs_off_further_each_time() {
    within_a_day(async {
        let second = Duration::from_secs(1);
        let mut longest = [Duration::ZERO; 5];
        for _ in 0..100 {
            let settings = patient(&Backend::memory()).backoff(second, 4 * second);
            let client = Client::over(&bare(&answering([busy])), settings.attempts(6));
            client.post("/charges").send().await.unwrap();
            for (longest, wait) in longest.iter_mut().zip(client.waits()) {
                *longest = wait.max(*longest);
            }
        }
        for (longest, ceiling) in longest.into_iter().zip([1, 2, 4, 4, 4]) {
            let ceiling = ceiling * second;
            let range = ceiling / 2..=ceiling + Duration::from_millis(2);
            assert!(range.contains(&longest), "{longest:?} of {ceiling:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_attempts_are_ten_or_as_many_as_set() {
    let backend = Backend::memory();
    for (settings, expected) in [
        (patient(&backend), 10),
        (patient(&backend).attempts(1), 1),
        (patient(&backend).attempts(7), 7),
    ] {
        let work = answering([busy]);
        let client = Client::over(&bare(&work), settings);
        let answer = client.post("/charges").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((client.attempts(), work.runs()), (expected, expected));
        client.only_key();
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_total_time() {
    within_a_day(async {
        let begun = tokio::time::Instant::now();
        let settings = patient(&Backend::memory()).total_time(Duration::from_secs(20));
        let client = Client::over(&bare(&answering([in_seven_seconds])), settings);
        client.post("/charges").send().await.unwrap();
        assert_eq!(client.attempts(), 3, "at 0, 7 and 14 seconds");
        let passed = begun.elapsed();
        assert!(passed < Duration::from_secs(15), "it waited for nothing");
    })
    .await;
}
