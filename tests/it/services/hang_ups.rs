//! Clients that hang up, and handlers that never end.

use super::{Site, settled, ulid};

on_every_store!(
    a_client_that_hangs_up_and_retries_gets_the_first_answer,
    a_client_that_hangs_up_in_mid_request_has_run_nothing,
    a_handler_that_never_ends_is_aborted_and_its_outcome_unknown,
);

async fn a_client_that_hangs_up_and_retries_gets_the_first_answer(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo?delay_ms=500").key(&key).body("charge");
    let first = request.begin().await;
    service.has_executed(&key, 1).await;
    drop(first);
    service.has_noticed_a_hang_up().await;

    let in_progress = request.send().await;
    in_progress.problem(409, "idempotency_request_in_progress");
    let retry = settled(&request).await;
    assert!(retry.is_replay(), "the first run's answer: {retry}");
    assert_eq!(retry.json()["attempt"], 1);
    assert_eq!(retry.json()["execution"], 1);
    assert_eq!(service.executions(&key).await, 1);
}

async fn a_client_that_hangs_up_in_mid_request_has_run_nothing(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo").key(&key).body("a whole body");
    for _ in 0..5 {
        request.break_off().await.expect("sent as far as it goes");
    }
    let whole = request.send().await;
    assert!(!whole.is_replay(), "{whole}");
    assert_eq!(whole.json()["execution"], 1);
    assert_eq!(whole.json()["attempt"], 1);
}

async fn a_handler_that_never_ends_is_aborted_and_its_outcome_unknown(site: Site) {
    let site = site
        .set("LEASE", "1s")
        .set("MAX_LEASE", "1s")
        .set("IN_FLIGHT", "wait:10s")
        .set("ABANDONED", "refuse");
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo?hang=1").key(&key);
    let first = request.begin().await;
    service.has_executed(&key, 1).await;

    // The one who waits is told the same, and so is the one who comes later.
    let (first, waiting) = tokio::join!(first.answer(), request.send());
    let first = first.expect("an answer at the end of the longest lease");
    let later = settled(&request).await;
    for answer in [&first, &waiting, &later] {
        let problem = answer.problem(409, "idempotency_outcome_unknown");
        assert_eq!(problem["retry"], "reconcile");
        assert!(super::is_time(&problem["created_at"]), "{answer}");
    }
    assert_eq!(service.executions(&key).await, 1);
}
