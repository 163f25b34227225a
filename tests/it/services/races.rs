//! Many requests with one key in the same instant.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Barrier;

use super::{
    Site,
    http::{Answer, Request},
    ulid,
};

on_every_store!(
    of_two_hundred_parallel_requests_one_runs,
    two_hundred_parallel_requests_that_wait_get_one_answer,
    of_parallel_requests_with_two_bodies_one_body_runs,
);

/// Sends all requests in the same instant.
pub(super) async fn storm(requests: Vec<Request>) -> Vec<Answer> {
    let barrier = Arc::new(Barrier::new(requests.len()));
    let sent = requests.into_iter().map(|request| {
        let barrier = Arc::clone(&barrier);
        tokio::spawn(async move {
            let connected = request.connect().await.expect("a connection");
            barrier.wait().await;
            let waiting = connected.begin().await.expect("the request is taken");
            waiting.answer().await.expect("an answer")
        })
    });
    let answers = join_all(sent).await;
    answers
        .into_iter()
        .map(|answer| answer.expect("no panic"))
        .collect()
}

async fn of_two_hundred_parallel_requests_one_runs(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo?delay_ms=100").key(&key).body("once");
    let answers = storm(vec![request.clone(); 200]).await;

    let (ran, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    let first = ran
        .iter()
        .find(|answer| !answer.is_replay())
        .expect("the first answer");
    for answer in &ran {
        assert_eq!(answer.body, first.body, "one answer for all");
    }
    for answer in refused {
        let problem = answer.problem(409, "idempotency_request_in_progress");
        assert_eq!(problem["retry"], "same-key-later");
        let retry_after: u64 = answer
            .header("retry-after")
            .expect("when to retry")
            .parse()
            .expect("seconds");
        assert!(
            (1..=30).contains(&retry_after),
            "within the lease: {retry_after}"
        );
    }
    assert_eq!(service.executions(&key).await, 1);
    request.send().await.must_replay(first);
}

async fn two_hundred_parallel_requests_that_wait_get_one_answer(site: Site) {
    let service = site.set("IN_FLIGHT", "wait:10s").testbed().await;
    let key = ulid();
    let request = service
        .post("/echo?delay_ms=300&size=2000")
        .key(&key)
        .body("once");
    let answers = storm(vec![request; 200]).await;

    let first = answers
        .iter()
        .find(|answer| !answer.is_replay())
        .expect("the first answer");
    assert_eq!(first.status, 200, "{first}");
    for answer in answers.iter().filter(|answer| *answer != first) {
        answer.must_replay(first);
    }
    assert_eq!(
        answers.iter().filter(|answer| answer.is_replay()).count(),
        199
    );
    assert_eq!(service.executions(&key).await, 1);
}

async fn of_parallel_requests_with_two_bodies_one_body_runs(site: Site) {
    let service = site.set("IN_FLIGHT", "wait:10s").testbed().await;
    for _ in 0..10 {
        let key = ulid();
        let [a, b] = ["a", "b"].map(|body| service.post("/echo?delay_ms=20").key(&key).body(body));
        let answers = storm([vec![a; 10], vec![b; 10]].concat()).await;
        let (a, b) = answers.split_at(10);
        let (won, lost) = if a[0].status == 200 { (a, b) } else { (b, a) };
        for answer in won {
            assert_eq!(
                (answer.status, &answer.body),
                (200, &won[0].body),
                "{answer}"
            );
        }
        for answer in lost {
            answer.problem(422, "idempotency_key_reused");
        }
        assert_eq!(service.executions(&key).await, 1);
    }
}
