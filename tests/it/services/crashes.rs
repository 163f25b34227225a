//! `kill -9` in mid-handler, and what is left of it.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    Service, Site, eventually,
    http::{Answer, Request},
    ulid,
};

on_every_durable_store!(
    after_a_crash_the_key_is_in_progress_until_its_lease_is_over_then_taken_over,
    after_a_crash_nobody_runs_again_where_takeover_is_refused,
    what_was_answered_under_load_survives_every_crash,
);

/// Runs a request until its effect has happened, and kills the process then.
async fn killed_in_mid_handler(site: &Site, key: &str) -> Instant {
    let service = site.testbed().await;
    let running = slow(&service, key).begin().await;
    service.has_executed(key, 1).await;
    service.kill().await;
    let killed = Instant::now();
    running
        .answer()
        .await
        .expect_err("killed before it answered");
    killed
}

fn slow(service: &Service, key: &str) -> Request {
    service.post("/echo?delay_ms=1000").key(key).body("charge")
}

async fn after_a_crash_the_key_is_in_progress_until_its_lease_is_over_then_taken_over(site: Site) {
    let site = site.set("LEASE", "2s");
    let mut starts = 0;
    // The restart has to be faster than the lease: it is renewed when a third
    // of it is over.
    let (service, key, early) = loop {
        let key = ulid();
        let killed = killed_in_mid_handler(&site, &key).await;
        let service = site.testbed().await;
        let early = slow(&service, &key).send().await;
        if killed.elapsed() < Duration::from_millis(1_300) {
            break (service, key, early);
        }
        starts += 1;
        assert!(starts < 5, "every restart takes longer than the lease");
    };
    let request = slow(&service, &key);
    early.problem(409, "idempotency_request_in_progress");
    let retry_after = early.header("retry-after").expect("when to retry");
    assert!(
        ["1", "2"].contains(&retry_after),
        "within the lease: {retry_after}"
    );
    let other = slow(&service, &key).body("another charge").send().await;
    other.problem(422, "idempotency_key_reused");
    assert_eq!(service.executions(&key).await, 1);

    let taken_over = super::settled(&request).await;
    assert!(!taken_over.is_replay(), "{taken_over}");
    assert_eq!(taken_over.json()["attempt"], 2);
    assert_eq!(taken_over.json()["execution"], 2);
    assert_eq!(service.executions(&key).await, 2);
    request.send().await.must_replay(&taken_over);
}

async fn after_a_crash_nobody_runs_again_where_takeover_is_refused(site: Site) {
    let site = site.set("LEASE", "1s").set("ABANDONED", "refuse");
    let key = ulid();
    killed_in_mid_handler(&site, &key).await;
    let service = site.testbed().await;
    let retry = super::settled(&slow(&service, &key)).await;
    let problem = retry.problem(409, "idempotency_outcome_unknown");
    assert_eq!(problem["retry"], "reconcile");
    assert!(super::is_time(&problem["created_at"]), "{retry}");
    assert_eq!(service.executions(&key).await, 1);
}

/// One key under load, and what its clients saw.
struct Watched {
    key: String,
    first_sent: Instant,
    answer: Option<Answer>,
}

impl Watched {
    fn request(&self, service: &Service) -> Request {
        service
            .post("/echo?delay_ms=30")
            .key(&self.key)
            .body(&*self.key)
    }
}

async fn what_was_answered_under_load_survives_every_crash(site: Site) {
    let site = site.set("LEASE", &format!("{LEASE:?}"));
    let mut watched: Vec<Watched> = Vec::new();
    let mut service = site.testbed().await;
    for round in 0..CRASHES {
        let load = (0..AT_ONCE)
            .map(|_| tokio::spawn(one_after_another(service.post("/echo?delay_ms=30"))));
        let load: Vec<_> = load.collect();
        let enough = (round + 1) * ANSWERS_A_ROUND;
        let what = format!("{enough} requests executed");
        eventually(&what, async || service.total().await >= enough).await;
        service.kill().await;
        for client in join_all(load).await {
            watched.extend(client.expect("no panic"));
        }
        service = site.testbed().await;
        // All that was answered, again and at once.
        let repeats = watched
            .iter()
            .filter_map(|seen| Some((seen, seen.answer.as_ref()?)));
        let repeats = repeats.map(|(seen, first)| {
            let request = seen.request(&service);
            async move { request.send().await.must_replay(first) }
        });
        join_all(repeats).await;
    }

    let (answered, lost): (Vec<_>, Vec<_>) = watched.iter().partition(|seen| seen.answer.is_some());
    for seen in answered {
        let count = service.executions(&seen.key).await;
        assert_eq!(count, 1, "{} was answered at once", seen.key);
    }
    assert!(!lost.is_empty(), "every crash met a request in flight");
    join_all(lost.iter().map(|seen| recovers(&service, seen))).await;
}

/// A request that met one crash runs again, but not inside its lease. Where
/// outcomes are archived first, the crash may have come after that: then it never
/// runs again.
async fn recovers(service: &Service, seen: &Watched) {
    let retry = super::settled(&seen.request(service)).await;
    let waited = seen.first_sent.elapsed();
    if retry.status == 409 {
        let told = retry.problem(409, "idempotency_response_not_kept");
        assert_eq!(told["original_status"], 200, "{retry}");
        assert_eq!(service.executions(&seen.key).await, 1);
        return;
    }
    let json = retry.json();
    let number = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{retry}"));
    let (attempt, execution) = (number("attempt"), number("execution"));
    assert!(attempt <= 2, "more attempts than crashes allow: {retry}");
    // The crash may have come before the effect.
    assert!(execution <= attempt, "two effects in one attempt: {retry}");
    let lapsed = attempt == 1 || waited >= LEASE;
    assert!(
        lapsed,
        "ran again inside the lease, after {waited:?}: {retry}"
    );
    assert_eq!(service.executions(&seen.key).await, execution);
}

/// Sends one request after another, each under a key of its own, until the
/// service dies.
async fn one_after_another(template: Request) -> Vec<Watched> {
    let mut watched = Vec::new();
    loop {
        let key = ulid();
        let first_sent = Instant::now();
        let answer = template.clone().key(&key).body(&*key).try_send().await.ok();
        let died = answer.is_none();
        watched.push(Watched {
            key,
            first_sent,
            answer,
        });
        if died {
            return watched;
        }
    }
}

const LEASE: Duration = Duration::from_secs(1);
const CRASHES: u64 = 4;
const AT_ONCE: usize = 12;
const ANSWERS_A_ROUND: u64 = 60;
