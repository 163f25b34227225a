//! Two processes on one database.

use super::{Service, Site, races::storm, settled, ulid};

on_every_durable_store!(
    a_key_sent_to_both_at_once_runs_once,
    a_key_sent_to_both_at_once_waits_for_one_answer,
    another_request_under_the_key_is_seen_by_the_other_process,
    who_waits_for_a_process_that_dies_takes_over_when_the_lease_is_over,
    a_process_that_slept_through_its_lease_has_no_second_truth,
    a_process_that_wakes_too_early_for_the_outcome_is_told_that_it_is_unknown,
    a_handler_that_outlasts_its_lease_keeps_it,
);

async fn two(site: &Site) -> (Service, Service) {
    tokio::join!(site.testbed(), site.testbed())
}

async fn a_key_sent_to_both_at_once_runs_once(site: Site) {
    let (one, other) = two(&site).await;
    for _ in 0..10 {
        let key = ulid();
        let requests = [&one, &other].map(|service| {
            let request = service.post("/echo?delay_ms=30").key(&key).body("once");
            vec![request; 5]
        });
        let [request, _] = requests.each_ref().map(|requests| requests[0].clone());
        for answer in storm(requests.concat()).await {
            match answer.status {
                200 => assert_eq!(answer.json()["execution"], 1),
                _ => drop(answer.problem(409, "idempotency_request_in_progress")),
            }
        }
        let replay = request.send().await;
        assert!(replay.is_replay(), "{replay}");
        assert_eq!(other.executions(&key).await, 1);
    }
}

async fn a_key_sent_to_both_at_once_waits_for_one_answer(site: Site) {
    let site = site.set("IN_FLIGHT", "wait:10s");
    let (one, other) = two(&site).await;
    let key = ulid();
    let requests = [&one, &other].map(|service| {
        let request = service.post("/echo?delay_ms=300").key(&key).body("once");
        vec![request; 20]
    });
    let answers = storm(requests.concat()).await;
    let ran: Vec<_> = answers
        .iter()
        .filter(|answer| !answer.is_replay())
        .collect();
    assert_eq!(
        ran.len(),
        1,
        "one runs, all others get its answer: {answers:#?}"
    );
    for answer in answers.iter().filter(|answer| answer.is_replay()) {
        answer.must_replay(ran[0]);
    }
    assert_eq!(one.executions(&key).await, 1);
}

async fn another_request_under_the_key_is_seen_by_the_other_process(site: Site) {
    let (one, other) = two(&site).await;
    let key = ulid();
    let request = |service: &Service, body| service.post("/echo?delay_ms=300").key(&key).body(body);
    let first = request(&one, "a").begin().await;
    one.has_executed(&key, 1).await;
    // In flight, then completed.
    let mismatch = request(&other, "b").send().await;
    mismatch.problem(422, "idempotency_key_reused");
    let same = request(&other, "a").send().await;
    same.problem(409, "idempotency_request_in_progress");
    let first = first.answer().await.expect("an answer");
    let mismatch = request(&other, "b").send().await;
    mismatch.problem(422, "idempotency_key_reused");
    request(&other, "a").send().await.must_replay(&first);
    assert_eq!(other.executions(&key).await, 1);
}

async fn who_waits_for_a_process_that_dies_takes_over_when_the_lease_is_over(site: Site) {
    let site = site.set("IN_FLIGHT", "wait:20s").set("LEASE", "1s");
    let (one, other) = two(&site).await;
    let key = ulid();
    let request = |service: &Service| service.post("/echo?delay_ms=700").key(&key).body("once");
    let first = request(&one).begin().await;
    one.has_executed(&key, 1).await;
    let waiting = request(&other).begin().await;
    one.kill().await;
    first.answer().await.expect_err("killed before it answered");
    let taken_over = waiting.answer().await.expect("an answer");
    assert!(!taken_over.is_replay(), "{taken_over}");
    assert_eq!(taken_over.json()["attempt"], 2);
    assert_eq!(other.executions(&key).await, 2);
}

/// The first process sleeps through its lease: the second takes over, and what
/// the first does when it wakes is fenced.
async fn a_process_that_slept_through_its_lease_has_no_second_truth(site: Site) {
    let site = site.set("LEASE", "1s");
    let (one, other) = two(&site).await;
    let key = ulid();
    let request = |service: &Service| service.post("/echo?delay_ms=600").key(&key).body("once");
    let first = request(&one).begin().await;
    one.has_executed(&key, 1).await;
    one.signal("STOP").await;
    let winner = settled(&request(&other)).await;
    assert_eq!(winner.json()["attempt"], 2, "{winner}");
    one.signal("CONT").await;
    let fenced = first.answer().await.expect("an answer");
    fenced.must_replay(&winner);
    request(&one).send().await.must_replay(&winner);
    assert_eq!(one.executions(&key).await, 2);
}

/// As before, but the first process wakes while the second is still at work.
async fn a_process_that_wakes_too_early_for_the_outcome_is_told_that_it_is_unknown(site: Site) {
    let site = site.set("LEASE", "1s").set("IN_FLIGHT", "wait:20s");
    let (one, other) = two(&site).await;
    let key = ulid();
    let request = |service: &Service| service.post("/echo?delay_ms=800").key(&key).body("once");
    let first = request(&one).begin().await;
    one.has_executed(&key, 1).await;
    one.signal("STOP").await;
    let second = request(&other).begin().await;
    other.has_executed(&key, 2).await;
    one.signal("CONT").await;
    let fenced = first.answer().await.expect("an answer");
    fenced.problem(409, "idempotency_outcome_unknown");
    let winner = second.answer().await.expect("an answer");
    assert_eq!(winner.json()["attempt"], 2, "{winner}");
    request(&one).send().await.must_replay(&winner);
    assert_eq!(one.executions(&key).await, 2);
}

async fn a_handler_that_outlasts_its_lease_keeps_it(site: Site) {
    let site = site.set("LEASE", "1s");
    let (one, other) = two(&site).await;
    let key = ulid();
    let request = |service: &Service| service.post("/echo?delay_ms=2500").key(&key).body("once");
    let first = request(&one).begin().await;
    one.has_executed(&key, 1).await;
    let retry = settled(&request(&other)).await;
    retry.must_replay(&first.answer().await.expect("an answer"));
    assert_eq!(retry.json()["attempt"], 1, "{retry}");
    assert_eq!(other.executions(&key).await, 1);
}
