//! Retries that come after the window.

use serde_json::Value;

use super::{
    Service, Site,
    http::{Answer, Request},
    settled, ulid, until,
};

on_every_store!(
    a_late_retry_is_told_what_became_of_the_first_request,
    a_late_retry_is_told_the_same_after_the_sweep,
    of_an_attempt_without_an_outcome_the_late_retry_learns_that_it_is_unknown,
    a_swept_key_without_a_timestamp_runs_again,
    where_all_keys_are_looked_up_no_swept_key_runs_again,
    where_timestamps_are_required_other_keys_are_refused,
    without_an_archive_an_expired_key_is_unknown,
    an_archive_of_its_own_outlives_the_store,
);

on_redis_beside_postgres!(
    a_late_retry_is_told_what_became_of_the_first_request,
    a_late_retry_is_told_the_same_after_the_sweep,
    of_an_attempt_without_an_outcome_the_late_retry_learns_that_it_is_unknown,
    where_all_keys_are_looked_up_no_swept_key_runs_again,
);

/// Expires soon, and is swept when `SWEEP_EVERY` says.
pub(super) fn short(site: Site, sweep_every: &str) -> Site {
    site.set("TTL", "1s").set("SWEEP_EVERY", sweep_every)
}

/// Repeats a request until its record has expired.
async fn expired(request: &Request, first: &Answer) -> Answer {
    let expired = async || {
        let answer = request.send().await;
        if answer.is_replay() {
            answer.must_replay(first);
            return None;
        }
        Some(answer)
    };
    until("the record has expired", expired).await
}

/// Waits until what was completed has left the live store: Redis drops it by
/// itself.
pub(super) async fn is_swept(service: &Service) {
    #[cfg(feature = "redis")]
    if let Some(redis) = &service.place.redis {
        return super::redis::has_dropped_one(redis).await;
    }
    has_swept(service).await;
}

async fn has_swept(service: &Service) {
    service.has_logged("swept archived=").await;
}

#[track_caller]
fn expired_key(answer: &Answer) -> Value {
    let problem = answer.problem(409, "idempotency_key_expired");
    assert_eq!(problem["retry"], "reconcile");
    problem
}

/// Expects a late retry's answer to tell all about the first request.
#[track_caller]
pub(super) fn tells_of(answer: &Answer, first: &Answer, same_request: bool) {
    let problem = expired_key(answer);
    assert_eq!(problem["original_status"], 201);
    assert_eq!(problem["resource_id"], first.json()["id"]);
    assert_eq!(problem["outcome"], "completed");
    assert_eq!(problem["same_request"], same_request);
    let time = |name: &str| {
        let time = problem[name].as_str().and_then(|time| time.parse().ok());
        time.unwrap_or_else(|| panic!("{name}: {answer}"))
    };
    let (created_at, expired_at): (jiff::Timestamp, jiff::Timestamp) =
        (time("created_at"), time("expired_at"));
    assert_eq!(
        expired_at.duration_since(created_at).as_secs(),
        1,
        "the TTL: {answer}"
    );
}

async fn a_late_retry_is_told_what_became_of_the_first_request(site: Site) {
    let site = short(site, "1h");
    let service = site.testbed().await;
    let key = ulid();
    let request = service.post("/echo?status=201").key(&key).body("charge");
    let first = request.send().await;
    let late = expired(&request, &first).await;
    tells_of(&late, &first, true);
    tells_of(
        &request.clone().body("another charge").send().await,
        &first,
        false,
    );
    let opaque = service
        .post("/echo?status=201")
        .key("opaque")
        .body("charge");
    let first_opaque = opaque.send().await;
    tells_of(&expired(&opaque, &first_opaque).await, &first_opaque, true);
    assert_eq!(service.executions(&key).await, 1);
    assert_eq!(service.executions("opaque").await, 1);

    if site.is_durable() {
        service.stop().await;
        let service = site.testbed().await;
        // The first process may have swept one of them.
        is_swept(&service).await;
        let request = service.post("/echo?status=201").key(&key).body("charge");
        let swept = request.send().await;
        assert_eq!(
            swept.json(),
            late.json(),
            "the archive tells what the record told"
        );
    }
}

async fn a_late_retry_is_told_the_same_after_the_sweep(site: Site) {
    let service = short(site, "100ms").testbed().await;
    let key = ulid();
    let request = service.post("/echo?status=201").key(&key).body("charge");
    let first = request.send().await;
    is_swept(&service).await;
    let late = request.send().await;
    tells_of(&late, &first, true);
    tells_of(
        &request.clone().body("another charge").send().await,
        &first,
        false,
    );
    // The claim that asked the archive left nothing behind.
    assert_eq!(request.send().await.json(), late.json());
    let other_tenant = request.clone().tenant("acct_2").send().await;
    assert_eq!(other_tenant.json()["execution"], 1, "{other_tenant}");
    assert_eq!(service.executions(&key).await, 1);
}

async fn of_an_attempt_without_an_outcome_the_late_retry_learns_that_it_is_unknown(site: Site) {
    let site = site
        .set("TTL", "2s")
        .set("LEASE", "1s")
        .set("MAX_LEASE", "1s")
        .set("ABANDONED", "refuse")
        .set("SWEEP_EVERY", "100ms");
    let mut service = site.testbed().await;
    let key = ulid();
    let hanging = service.post("/echo?hang=1").key(&key).begin().await;
    service.has_executed(&key, 1).await;
    if site.is_durable() {
        service.kill().await;
        service = site.testbed().await;
    }
    let request = service.post("/echo?hang=1").key(&key);
    let late = async || {
        let answer = settled(&request).await;
        (answer.code().as_deref() != Some("idempotency_outcome_unknown")).then_some(answer)
    };
    let late = until("the record has expired", late).await;
    has_swept(&service).await;
    for answer in [late, request.send().await] {
        let problem = expired_key(&answer);
        assert_eq!(problem["outcome"], "unknown");
        assert_eq!(problem["same_request"], true);
        for unknown in ["original_status", "resource_id"] {
            assert_eq!(
                problem.get(unknown),
                Some(&Value::Null),
                "{unknown}: {answer}"
            );
        }
        assert!(super::is_time(&problem["created_at"]), "{answer}");
        assert!(super::is_time(&problem["expired_at"]), "{answer}");
    }
    assert_eq!(service.executions(&key).await, 1);
    drop(hanging);
}

async fn a_swept_key_without_a_timestamp_runs_again(site: Site) {
    let service = short(site, "100ms").testbed().await;
    let request = service.post("/echo?status=201").key("k").body("charge");
    request.send().await;
    is_swept(&service).await;
    let again = request.send().await;
    assert_eq!(again.json()["execution"], 2, "as documented: {again}");
}

async fn where_all_keys_are_looked_up_no_swept_key_runs_again(site: Site) {
    let site = short(site, "100ms").set("ARCHIVE_LOOKUP", "all");
    let service = site.testbed().await;
    let request = service.post("/echo?status=201").key("k").body("charge");
    let first = request.send().await;
    is_swept(&service).await;
    tells_of(&request.send().await, &first, true);
    assert_eq!(service.executions("k").await, 1);
}

async fn where_timestamps_are_required_other_keys_are_refused(site: Site) {
    let service = site.set("ARCHIVE_LOOKUP", "require").testbed().await;
    let opaque = service.post("/echo").key("opaque").send().await;
    let problem = opaque.problem(400, "idempotency_key_invalid");
    assert_eq!(problem["reason"], "timestamp_missing");
    assert_eq!(service.total().await, 0);
    for key in [ulid(), uuid_v7()] {
        let request = service.post("/echo").key(&key);
        let first = request.send().await;
        assert_eq!(first.status, 200, "{first}");
        request.send().await.must_replay(&first);
    }
}

/// A UUID of version 7, of just now.
fn uuid_v7() -> String {
    let time = format!("{:012x}", ulid::Ulid::generate().timestamp_ms());
    format!("{}-{}-7000-8000-000000000000", &time[..8], &time[8..])
}

async fn without_an_archive_an_expired_key_is_unknown(site: Site) {
    let site = short(site, "100ms").set("ARCHIVE_URL", "none");
    let service = site.testbed().await;
    let request = service.post("/echo?status=201").key("k").body("charge");
    let first = request.send().await;
    let again = expired(&request, &first).await;
    assert_eq!(again.json()["execution"], 2, "{again}");
    assert_eq!(again.json()["attempt"], 1, "{again}");
    request.send().await.must_replay(&again);
}

async fn an_archive_of_its_own_outlives_the_store(site: Site) {
    let site = short(site, "100ms").set("ARCHIVE_URL", "sqlite:archive.db");
    let service = site.testbed().await;
    let key = ulid();
    let first = service.post("/echo?status=201").key(&key).send().await;
    is_swept(&service).await;
    service.stop().await;
    // As after the loss of the live store.
    let site = site.set("STORE_URL", "memory:");
    let service = site.testbed().await;
    let late = service.post("/echo?status=201").key(&key).send().await;
    tells_of(&late, &first, true);
    assert_eq!(service.executions(&key).await, 0);
}
