//! The look-up of a key, in every state it can have.

use std::time::Duration;

use axum_idempotency::{
    IdempotencyKey, Principal, Scope, ScopeSecret, ScopedKey, archive::Archive as _,
    console::Callers, inspect::OpenQuery, store::Store as _,
};
use http::Method;

use super::{
    http::Site,
    stage::{Stage, derive_form, derived, page_of},
};
use crate::support::{Backend, attempt::key, on_every_backend};

async fn the_page_of_a_key_tells_its_state_in_words(backend: Backend) {
    let is_swept = !backend.archives_first();
    let stage = Stage::set(backend).await;
    let site = Site::open(stage.console()).await;
    let mut expected = vec![
        ("running", "Running Attempt 1 runs under a live lease."),
        ("lapsed", "Lapsed Attempt 1 ended without an outcome"),
        ("taken over", "Running Attempt 2 runs under a live lease."),
        (
            "completed",
            "Completed The outcome is recorded: status 201. Its response is kept.",
        ),
        (
            "not kept",
            "Completed, response not kept The outcome is recorded: status 200.",
        ),
        ("speculative", "Being looked up in the archive"),
        (
            "expired without outcome",
            "Expired without an outcome, waits for a sweep",
        ),
        ("archived without outcome", "Archived without an outcome"),
        (
            "never seen",
            "Unknown key There is neither a live record nor an archived row.",
        ),
    ];
    if is_swept {
        expected.push((
            "archived",
            "Archived Its window is over. It was completed with status 201.",
        ));
        expected.push((
            "expired",
            "Expired, waits for a sweep It was completed with status 201",
        ));
        expected.push(("used in two windows", "Archived window of 2026-11-29"));
    }
    for (name, words) in expected {
        let seen = site.get(&page_of(name)).await;
        seen.is(200).says(words).says(&key(name).to_string());
    }
}

/// As beside Redis, where an outcome is archived as it is recorded.
async fn what_is_archived_ahead_is_still_told_as_a_live_record(backend: Backend) {
    let stage = Stage::empty(backend);
    stage.completes("ahead", 201, "ch_ahead").await;
    let record = stage.store.get(key("ahead")).await.expect("it answers");
    let row = record.expect("it is there").tombstone();
    stage
        .archive
        .prepare(row.expired_at, row.expired_at)
        .await
        .expect("there is room");
    stage.archive.insert(&[row]).await.expect("it answers");

    let site = Site::open(stage.console()).await;
    let seen = site.get(&page_of("ahead")).await;
    seen.is(200)
        .says("Completed The outcome is recorded: status 201. Its response is kept.");
    assert!(
        !seen.words().contains("Archived window"),
        "{}",
        seen.words()
    );
}

/// As above: the archived row does not tell when, and the live record does.
async fn what_is_archived_ahead_was_in_flight_only_until_it_was_recorded(backend: Backend) {
    let stage = Stage::empty(backend);
    stage.completes("ahead", 201, "ch_ahead").await;
    let record = stage.store.get(key("ahead")).await.expect("it answers");
    let row = record.expect("it is there").tombstone();
    let (claimed, expires) = (row.created_at, row.expired_at);
    let prepared = stage.archive.prepare(expires, expires).await;
    prepared.expect("there is room");
    stage.archive.insert(&[row]).await.expect("it answers");

    let inspector = stage.inspector();
    let then = |at| OpenQuery {
        at,
        within: OpenQuery::DEFAULT_WITHIN,
        limit: 10,
    };
    let early = inspector.in_flight(&then(claimed)).await.expect("told");
    assert_eq!(early.records.len(), 1, "it ran then: {early:?}");
    assert_eq!(early.records[0].certainty(), "surely", "{early:?}");
    let late = claimed + Duration::from_mins(5);
    let late = inspector.in_flight(&then(late)).await.expect("told");
    assert!(late.records.is_empty(), "it was over by then: {late:?}");
    let a_day = inspector.expired_within(Duration::from_hours(24)).await;
    assert_eq!(a_day.expect("told"), Some(0), "its window is open");
}

on_every_backend!(
    what_is_archived_ahead_was_in_flight_only_until_it_was_recorded,
    the_page_of_a_key_tells_its_state_in_words,
    what_is_archived_ahead_is_still_told_as_a_live_record,
);

#[tokio::test]
async fn a_life_is_told_as_moments_with_their_times() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;

    let completed = site.get(&page_of("completed")).await;
    completed
        .says("Claimed 2026-12-01 02:02:00 UTC, 12 min ago.")
        .says("Completed 2026-12-01 02:02:01 UTC, 11 min 58 s ago. Status 201 was recorded.")
        .says("Now 2026-12-01 02:14:00 UTC.")
        .says("Expires 2026-12-02 02:02:00 UTC, in 23 h 48 min.")
        .says("Resource ch_completed")
        .says("kept; never shown here");

    let second = site.get(&page_of("taken over")).await;
    second
        .says("Attempt 2 at a time that is not kept. Took over")
        .says("Lease until 2026-12-01 02:14:25 UTC, in 25 s.");

    let lapsed = site.get(&page_of("lapsed")).await;
    lapsed
        .says("Lease lapsed 2026-12-01 02:02:30 UTC, 11 min 30 s ago.")
        .says("it takes over and runs again as attempt 2");

    let asked = site.get(&page_of("speculative")).await;
    asked.says("Nothing runs before the archive has answered.");

    let twice = site.get(&page_of("used in two windows")).await;
    twice
        .says("Resource ch_first")
        .says("Resource ch_second")
        .says("Live record");
}

#[tokio::test]
async fn a_scoped_key_leads_to_its_page() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let form = site.get("/keys").await;
    form.is(200)
        .says("By its scoped key")
        .says("By the caller and the client’s key");

    let key = key("completed");
    let pasted = format!("/keys?scoped-key=+{key}%20");
    let seen = site.get(&pasted).await;
    assert_eq!(seen.is(303).header("location"), format!("./keys/{key}"));

    let seen = site.get("/keys?scoped-key=idem:v1:short").await;
    seen.is(422).says("Error: Not a scoped key");
    assert!(
        seen.text
            .contains(r#"aria-describedby="scoped-key-error scoped-key-hint""#)
    );
    assert!(
        seen.text.contains(r#"value="idem:v1:short""#),
        "what was typed stays"
    );
    site.get("/keys/nonsense")
        .await
        .is(404)
        .says("The address names no scoped key.");
}

#[tokio::test]
async fn a_caller_and_a_key_lead_to_the_page_of_their_scoped_key() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let seen = site.post("/keys", &derive_form("alice", "completed")).await;
    let expected = format!("./keys/{}", key("completed"));
    assert_eq!(seen.is(303).header("location"), expected);

    // As the header may have it.
    let seen = site
        .post("/keys", "kind=account&caller=alice&key=%22completed%22")
        .await;
    assert_eq!(seen.is(303).header("location"), expected);
}

#[tokio::test]
async fn each_kind_of_caller_scope_and_secret_is_derived_as_the_layer_does() {
    let stage = Stage::empty(Backend::memory());
    let secret = ScopeSecret::new("a secret of the layer");
    let console = stage
        .console()
        .secret(secret.clone())
        .callers(Callers::BearerTokens);
    let site = Site::open(console).await;
    let key = IdempotencyKey::new("order 42").expect("a key");
    let callers = [
        ("account", Principal::new("acct_1")),
        ("bearer", Principal::bearer("acct_1")),
        ("constant", Principal::constant("acct_1")),
        ("queue", Principal::queue("acct_1")),
    ];
    for (kind, principal) in callers {
        let endpoints = [
            (Scope::Principal, ""),
            (Scope::PrincipalAndEndpoint, "&method=post&path=/v1/refunds"),
        ];
        for (scope, endpoint) in endpoints {
            let path = (&Method::POST, "/v1/refunds");
            let expected = ScopedKey::derive(Some(&secret), scope, &principal, path, &key);
            let form = format!("kind={kind}&caller=acct_1&key=order+42{endpoint}");
            let seen = site.post("/keys", &form).await;
            assert_eq!(
                seen.is(303).header("location"),
                format!("./keys/{expected}"),
                "{kind}, {scope:?}"
            );
        }
    }
    // What the console was told is what the form begins with.
    let form = site.get("/keys").await;
    assert!(
        form.text.contains(r#"<option value="bearer" selected>"#),
        "{}",
        form.text
    );
}

#[tokio::test]
async fn what_is_wrong_in_the_form_is_told_at_its_field() {
    let stage = Stage::empty(Backend::memory());
    let site = Site::open(stage.console()).await;
    let wrong = [
        ("key=k", "caller", "Who is the caller?"),
        ("caller=a", "key", "Error: "),
        ("caller=a&key=%22open", "key", "Error: "),
        (
            "caller=a&key=k&method=POST",
            "path",
            "An endpoint is a method and a path.",
        ),
        (
            "caller=a&key=k&path=/x",
            "method",
            "An endpoint is a method and a path.",
        ),
        (
            "caller=a&key=k&method=P%20&path=x",
            "path",
            "A path begins with /",
        ),
        (
            "caller=a&key=k&method=P%20T&path=/x",
            "method",
            "Not a method",
        ),
    ];
    for (form, field, message) in wrong {
        let seen = site.post("/keys", form).await;
        seen.is(422).says(message);
        let is_tied = seen.text.contains(&format!(r#"id="{field}-error""#))
            && seen
                .text
                .contains(&format!(r#"aria-describedby="{field}-error {field}-hint""#));
        assert!(is_tied, "{form} blames {field}: {}", seen.text);
        assert!(
            seen.text.contains("<title>Error: "),
            "the title tells it too"
        );
    }
    let long = format!("caller=a&key={}", "k".repeat(20_000));
    site.post("/keys", &long)
        .await
        .is(413)
        .says("The form is too long.");
}

#[tokio::test]
async fn a_bearer_token_is_not_sent_back() {
    let stage = Stage::empty(Backend::memory());
    let site = Site::open(stage.console()).await;
    let seen = site
        .post("/keys", "kind=bearer&caller=tok_secret&key=")
        .await;
    seen.is(422);
    assert!(!seen.text.contains("tok_secret"), "{}", seen.text);
    let seen = site
        .post("/keys", "kind=account&caller=acct_typed&key=")
        .await;
    assert!(seen.text.contains("acct_typed"), "what was typed stays");
}

#[tokio::test]
async fn no_url_and_no_log_has_what_was_typed() {
    let logs = crate::support::Logs::capture();
    let stage = Stage::empty(Backend::memory());
    let site = Site::open(stage.console()).await;
    let seen = site
        .post("/keys", &derive_form("acct_private", "key_private"))
        .await;
    let page = derived("acct_private", "key_private");
    assert_eq!(seen.header("location"), format!("./keys/{page}"));
    let result = site.get(&format!("/keys/{page}")).await;
    for text in [logs.text(), seen.text, result.text] {
        assert!(!text.contains("_private"), "{text}");
    }
}
