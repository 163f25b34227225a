//! Retries against this crate's own layer.

use std::time::Duration;

use axum_idempotency::{
    RecordState,
    client::{GaveUp, Key, RetriesExhausted},
};
use http::{Method, StatusCode};

use super::support::{Client, CutLine, patient};
use crate::support::{Backend, Fault, Verb, Work, in_time, within_a_day};

#[tokio::test]
async fn an_answer_that_is_lost_on_its_way_is_replayed_and_nothing_runs_twice() {
    in_time(async {
        let backend = Backend::memory();
        let shop = backend.shop().open().await;
        let line = CutLine::before(&shop, 2).await;
        let client = Client::over(&line.line(), patient(&backend));
        let answer = client.post("/charges").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(answer.headers()["idempotent-replayed"], "true");
        assert_eq!(client.attempts(), 3);
        assert_eq!(shop.work.runs(), 1, "a retry charged again");
        let key = client.only_key();
        let record = backend.record(&key).await.expect("the key is recorded");
        let RecordState::Completed(completion) = record.state else {
            panic!("the request is not recorded as completed");
        };
        let kept = completion.response.expect("the answer is kept");
        assert_eq!(answer.bytes().await.unwrap(), kept.body);
    })
    .await;
}

#[tokio::test]
async fn each_logical_request_has_a_key_of_its_own() {
    let backend = Backend::memory();
    let shop = backend.shop().in_memory();
    let client = Client::of(&shop, &backend);
    shop.store.next(Verb::Claim, Fault::DOWN);
    for run in 1..=3 {
        let answer = client.post("/charges").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(shop.work.runs(), run);
    }
    let mut keys = client.keys().concat();
    assert_eq!(keys.len(), 4, "one of the requests took two attempts");
    assert_eq!(keys[0], keys[1], "a retry came under another key");
    keys.dedup();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "two requests share a key");
}

#[tokio::test(start_paused = true)]
async fn a_request_in_progress_is_waited_for_as_its_retry_after_says() {
    within_a_day(async {
        let backend = Backend::on_tokio_time();
        let shop = backend.shop().in_memory();
        let handler = shop.work.hold();
        let client = Client::of(&shop, &backend);
        let key = Key::generate();
        let first = shop.post("/charges").key(key.as_str()).start();
        handler.reached().await;
        let repeat = {
            let client = client.clone();
            let request = client
                .post("/charges")
                .header("content-type", "application/json");
            tokio::spawn(request.with_extension(key).send())
        };
        while client.attempts() < 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        handler.open();
        let first = first.answer().await;
        first.expect_run(1);
        let repeat = repeat.await.unwrap().unwrap();
        assert_eq!(repeat.headers()["idempotent-replayed"], "true");
        assert_eq!(repeat.bytes().await.unwrap(), first.body);
        for wait in client.waits() {
            assert!(
                wait >= Duration::from_secs(1),
                "it came back after {wait:?}"
            );
        }
        assert_eq!(shop.work.runs(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_for_a_moment_costs_no_more_than_the_wait() {
    let backend = Backend::on_tokio_time();
    let shop = backend.shop().in_memory();
    let client = Client::of(&shop, &backend);
    shop.store.next(Verb::Claim, Fault::DOWN);
    shop.store.next(Verb::Claim, Fault::DOWN);
    let answer = client.request(Method::PATCH, "/charges/1").send().await;
    assert_eq!(answer.unwrap().status(), StatusCode::CREATED);
    assert_eq!((client.attempts(), shop.work.runs()), (3, 1));
    client.only_key();
}

#[tokio::test]
async fn a_key_of_another_request_is_an_answer_and_not_retried() {
    let backend = Backend::memory();
    let shop = backend.shop().in_memory();
    let client = Client::of(&shop, &backend);
    let key = Key::generate();
    let charge = client.post("/charges").with_extension(key.clone());
    charge.send().await.unwrap();
    let other = client.post("/charges").with_extension(key);
    let other = other.body(r#"{"amount":9900}"#).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: serde_json::Value =
        serde_json::from_slice(&other.bytes().await.unwrap()).expect("the document is whole");
    assert_eq!(problem["code"], "idempotency_key_reused");
    assert_eq!(client.attempts(), 2, "it was sent again");
}

#[tokio::test]
async fn a_recorded_failure_is_the_answer_and_not_asked_for_again() {
    for status in [408, 500, 503] {
        let backend = Backend::memory();
        let status = StatusCode::from_u16(status).expect("a status");
        let work = Work::answering(move |_| async move {
            axum::response::IntoResponse::into_response((status, "it failed"))
        });
        let shop = backend.shop().work(work).open().await;
        // The first answer to a 503 may be a passing one; its replay is not.
        let line = CutLine::before(&shop, 1).await;
        let client = Client::over(&line.line(), patient(&backend));
        let answer = client.post("/charges").send().await.unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers()["idempotent-replayed"], "true");
        assert_eq!(answer.text().await.unwrap(), "it failed");
        assert_eq!((client.attempts(), shop.work.runs()), (2, 1), "{status}");
    }
}

#[tokio::test]
async fn an_outage_ends_in_an_error_under_whose_key_the_request_goes_on_later() {
    in_time(async {
        let backend = Backend::memory();
        let shop = backend.shop().open().await;
        let line = CutLine::before(&shop, 3).await;
        let client = Client::over(&line.line(), patient(&backend).attempts(3));
        let error = client.post("/charges").send().await.unwrap_err();
        let exhausted = RetriesExhausted::from_error(&error).expect("the retries are spent");
        assert_eq!(exhausted.attempts, 3);
        assert_eq!(exhausted.reason, GaveUp::Attempts);
        assert_eq!(shop.work.runs(), 1, "a retry charged again");
        let later = client
            .post("/charges")
            .with_extension(exhausted.key.clone());
        let later = later.send().await.unwrap();
        assert_eq!(later.headers()["idempotent-replayed"], "true");
        assert_eq!(shop.work.runs(), 1, "the request was charged again later");
    })
    .await;
}
