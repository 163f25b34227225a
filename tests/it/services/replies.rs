//! What a repeat of every kind of response gets.

#[cfg(feature = "postgres")]
use sqlx::Connection as _;

use super::{Site, http::Answer, ulid};

on_every_store!(
    any_bytes_replay_as_they_were,
    headers_replay_in_order_and_cookies_do_not,
    an_empty_response_replays,
    a_secret_is_shown_once,
    a_response_over_the_limit_is_sent_whole_and_not_kept,
    a_streamed_response_replays_whole,
    every_status_replays_but_those_that_ask_to_come_again,
    a_panic_is_an_answer,
);

async fn any_bytes_replay_as_they_were(site: Site) {
    let service = site.testbed().await;
    let request = service.post("/binary").key("k");
    let first = request.send().await;
    assert_eq!(first.body, (0..=255).collect::<Vec<u8>>());
    let replay = request.send().await;
    replay.must_replay(&first);
    assert_eq!(
        replay.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(service.executions("k").await, 1);
}

async fn headers_replay_in_order_and_cookies_do_not(site: Site) {
    let service = site.testbed().await;
    let request = service.post("/cookies").key("k");
    let first = request.send().await;
    assert_eq!(first.all("set-cookie"), ["session=1; HttpOnly", "csrf=2"]);
    let replay = request.send().await;
    replay.must_replay(&first);
    assert_eq!(
        replay.all("link"),
        ["</a>; rel=\"next\"", "</b>; rel=\"prev\""]
    );
    assert_eq!(replay.header("etag"), Some("\"v1\""));
    assert!(replay.all("set-cookie").is_empty(), "{replay}");
    assert_eq!(replay.all("date").len(), 1, "{replay}");
    assert_eq!(service.executions("k").await, 1);
}

async fn an_empty_response_replays(site: Site) {
    let service = site.testbed().await;
    let request = service.post("/empty").key("k");
    let first = request.send().await;
    assert_eq!((first.status, first.body.as_slice()), (204, &b""[..]));
    request.send().await.must_replay(&first);
    assert_eq!(service.executions("k").await, 1);
}

async fn a_secret_is_shown_once(site: Site) {
    let service = site.testbed().await;
    let request = service.post("/secret").key("k");
    let first = request.send().await;
    assert_eq!(first.status, 201, "{first}");
    let secret = first.json()["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let retry = request.send().await;
    let problem = not_kept(&retry, 201);
    assert_eq!(problem["resource_id"], first.json()["id"]);
    assert!(!problem.to_string().contains(&secret), "{retry}");
    assert_eq!(service.executions("k").await, 1);
    #[cfg(feature = "postgres")]
    if site.store_url.starts_with("postgres:") {
        let id = first.json()["id"].as_str().expect("an id").to_owned();
        assert!(is_on_record(&site, &id).await, "the id is kept");
        assert!(!is_on_record(&site, &secret).await, "the secret is kept");
    }
    #[cfg(feature = "redis")]
    if let Some(redis) = &site.place.redis {
        let id = first.json()["id"].as_str().expect("an id").to_owned();
        assert!(super::redis::holds(redis, &id).await, "the id is kept");
        assert!(
            !super::redis::holds(redis, &secret).await,
            "the secret is kept"
        );
    }
    if site.is_durable() {
        service.stop().await;
        let files = std::fs::read_dir(site.dir()).expect("the directory");
        for file in files {
            let path = file.expect("a file").path();
            let bytes = std::fs::read(&path).expect("its bytes");
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "the secret is in {}", path.display());
        }
    }
}

/// Whether any column of a record in PostgreSQL holds the text.
#[cfg(feature = "postgres")]
async fn is_on_record(site: &Site, text: &str) -> bool {
    let connected = sqlx::PgConnection::connect(&site.store_url).await;
    let mut connection = connected.expect("a connection");
    let asked = sqlx::query_scalar(
        "SELECT EXISTS (
             SELECT FROM idempotency_keys k
             WHERE position($1 IN k::text) > 0
                OR position(convert_to($1, 'UTF8') IN coalesce(body, '')) > 0
                OR position(convert_to($1, 'UTF8') IN coalesce(headers, '')) > 0)",
    );
    let found = asked.bind(text).fetch_one(&mut connection).await;
    found.expect("an answer")
}

async fn a_response_over_the_limit_is_sent_whole_and_not_kept(site: Site) {
    let service = site.testbed().await;
    for stream in ["0", "1"] {
        let key = ulid();
        let target = format!("/echo?status=201&size=3145728&stream={stream}");
        let request = service.post(&target).key(&key).body("charge");
        let first = request.send().await;
        assert_eq!((first.status, first.body.len()), (201, 3 * 1024 * 1024));
        let retry = request.send().await;
        let problem = not_kept(&retry, 201);
        let location = first.header("location").expect("a location");
        let id = problem["resource_id"].as_str().expect("a resource id");
        assert_eq!(format!("/echo/{id}"), location);
        let other = request.body("another charge").send().await;
        other.problem(422, "idempotency_key_reused");
        assert_eq!(service.executions(&key).await, 1);
    }
}

async fn a_streamed_response_replays_whole(site: Site) {
    let service = site.testbed().await;
    let request = service.post("/echo?stream=1&size=200000").key("k");
    let first = request.send().await;
    assert_eq!(first.body.len(), 200_000);
    request.send().await.must_replay(&first);
    assert_eq!(service.executions("k").await, 1);
}

async fn every_status_replays_but_those_that_ask_to_come_again(site: Site) {
    let service = site.testbed().await;
    for status in [200, 201, 202, 303, 400, 404, 408, 409, 422, 500, 502, 503] {
        let key = ulid();
        let request = service.post(&format!("/echo?status={status}")).key(&key);
        let first = request.send().await;
        assert_eq!(first.status, status, "{first}");
        request.send().await.must_replay(&first);
        assert_eq!(service.executions(&key).await, 1);
    }
    for status in [425, 429] {
        let key = ulid();
        let request = service.post(&format!("/echo?status={status}")).key(&key);
        for execution in 1..=3 {
            let answer = request.send().await;
            assert!(!answer.is_replay(), "{answer}");
            assert_eq!(answer.json()["execution"], execution, "{answer}");
            assert_eq!(answer.json()["attempt"], 1, "{answer}");
        }
    }
}

async fn a_panic_is_an_answer(site: Site) {
    let service = site.testbed().await;
    let request = service.post("/echo?panic=1").key("k");
    let first = request.send().await;
    assert_eq!(first.status, 500, "{first}");
    request.send().await.must_replay(&first);
    assert_eq!(service.executions("k").await, 1);
}

#[track_caller]
fn not_kept(answer: &Answer, original_status: u16) -> serde_json::Value {
    let problem = answer.problem(409, "idempotency_response_not_kept");
    assert_eq!(problem["retry"], "reconcile");
    assert_eq!(problem["original_status"], original_status);
    assert!(super::is_time(&problem["created_at"]), "{answer}");
    problem
}
