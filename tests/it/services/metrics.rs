//! `GET /metrics` of the service to copy: what a Prometheus scrapes.

use serde_json::json;

use super::{Service, Site, eventually, ulid};

on_every_store!(
    a_charge_and_its_replay_are_counted_and_neither_key_nor_token_is_told,
    what_is_measured_in_the_background_is_served_too,
);

/// The values of a scrape, each behind its series.
async fn scraped(service: &Service) -> String {
    let answer = service.get("/metrics").anonymous().send().await;
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8"),
        "a Prometheus reads no other text"
    );
    String::from_utf8(answer.body).expect("text")
}

fn value(scrape: &str, series: &str) -> Option<f64> {
    let mut lines = scrape.lines();
    let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map(|value| value.parse().expect("a number"))
}

async fn a_charge_and_its_replay_are_counted_and_neither_key_nor_token_is_told(site: Site) {
    let service = site.start("charges").await;
    let before = scraped(&service).await;
    for counter in [
        "idempotency_expired_replay_total",
        "idempotency_fenced_completions_total",
    ] {
        assert_eq!(value(&before, counter), Some(0.0), "{counter} begins at 0");
    }

    let key = ulid();
    let token = "sk_live_8YbQ";
    let charge = service.post("/v1/charges").tenant(token).key(&key);
    let charge = charge.json(&json!({"amount": 4500, "currency": "gbp"}));
    let first = charge.send().await;
    assert_eq!(first.status, 201, "{first}");
    charge.send().await.must_replay(&first);

    let scrape = scraped(&service).await;
    for (outcome, requests) in [("executed", 1.0), ("replayed", 1.0)] {
        let series = format!("idempotency_requests_total{{outcome=\"{outcome}\"}}");
        assert_eq!(value(&scrape, &series), Some(requests), "{series}");
    }
    assert_eq!(value(&scrape, "idempotency_in_flight"), Some(0.0));
    assert!(
        scrape.contains(
            "idempotency_store_call_duration_ms_bucket{call=\"claim\",result=\"ok\",le=\"5\"}"
        ),
        "no buckets, so no percentile over all processes: {scrape}"
    );
    for secret in [token, &key, "idem:v1:"] {
        assert!(!scrape.contains(secret), "{secret} is told: {scrape}");
    }
}

async fn what_is_measured_in_the_background_is_served_too(site: Site) {
    let service = site.start("charges").await;
    eventually("the archive is measured", async || {
        let scrape = scraped(&service).await;
        value(&scrape, "idempotency_archive_rows").is_some()
    })
    .await;
}
