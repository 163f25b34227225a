//! From a client's key to what happened to it.

use axum::{Router, body::Body, http::Request, routing::post};
use axum_idempotency::{IdempotencyLayer, Policy, PrincipalSource, Scope, ScopeSecret};
use http::StatusCode;
use serde_json::Value;
use tower::ServiceExt as _;

use super::{
    Place,
    place::HOUR,
    records::{Filled, PRINCIPAL, scoped},
};

on_every_place!(
    a_live_record_is_told_from_its_claim_to_its_expiry,
    an_archived_record_is_told_with_its_outcome,
    a_key_that_nobody_used_is_unknown,
    neither_the_key_nor_the_principal_is_printed,
);

async fn lookup(place: &Place, key: &str) -> Value {
    place
        .json(&["lookup", "--principal", PRINCIPAL, "--key", key])
        .await
}

fn names(document: &Value) -> Vec<&str> {
    let events = document["events"].as_array().expect("events");
    let names = events.iter().map(|event| event["event"].as_str());
    names.map(|name| name.expect("a name")).collect()
}

async fn a_live_record_is_told_from_its_claim_to_its_expiry(place: Place) {
    let filled = Filled::at(&place).await;
    let done = lookup(&place, "done").await;
    assert_eq!(
        names(&done),
        ["claimed", "completed", "expires"],
        "{done:#}"
    );
    let live = &done["live"];
    assert_eq!(live["state"], "completed", "{done:#}");
    assert_eq!(live["status"], 201, "{done:#}");
    assert_eq!(live["resource_id"], "ch_done", "{done:#}");
    assert_eq!(live["created_at"], filled.ago(HOUR).to_string().as_str());
    let running = lookup(&place, "running").await;
    assert_eq!(running["live"]["has_live_lease"], true, "{running:#}");
    assert_eq!(names(&running), ["claimed", "lease_ends", "expires"]);
    let lapsed = lookup(&place, "lapsed").await;
    assert_eq!(names(&lapsed), ["claimed", "lease_lapsed", "expires"]);
    let lost = lookup(&place, "lost").await;
    assert_eq!(
        names(&lost),
        ["claimed", "lease_lapsed", "expired"],
        "{lost:#}"
    );
}

async fn an_archived_record_is_told_with_its_outcome(place: Place) {
    Filled::at(&place).await;
    place.json(&["sweep"]).await;
    let old = lookup(&place, "old").await;
    assert!(old["live"].is_null(), "{old:#}");
    assert_eq!(old["archived"][0]["status"], 201, "{old:#}");
    assert_eq!(old["archived"][0]["resource_id"], "ch_old", "{old:#}");
    let lost = lookup(&place, "lost").await;
    assert!(lost["live"].is_null(), "{lost:#}");
    assert_eq!(lost["archived"][0]["outcome"], "unknown", "{lost:#}");
    assert!(lost["archived"][0]["status"].is_null(), "{lost:#}");
    assert_eq!(names(&lost), ["claimed", "expired"], "{lost:#}");
}

async fn a_key_that_nobody_used_is_unknown(place: Place) {
    let place = place.migrated().await;
    let arguments = ["lookup", "--principal", PRINCIPAL, "--key", "nobody"];
    place
        .run(&arguments)
        .await
        .exits(1)
        .says("known neither to the store nor to the archive");
    let ran = place.run(&[&arguments[..], &["--json"]].concat()).await;
    assert_eq!(ran.exits(1).json()["known"], false);
}

async fn neither_the_key_nor_the_principal_is_printed(place: Place) {
    Filled::at(&place).await;
    for command in ["lookup", "scoped-key", "forget"] {
        for json in [&[][..], &["--json"]] {
            let asked = [command, "--principal", PRINCIPAL, "--key", "lapsed"];
            let ran = place.run(&[&asked[..], json].concat()).await;
            ran.never_tells(PRINCIPAL);
            // The scoped key is a digest, and the word is none of ours here.
            assert!(ran.stdout.contains("idem:v1:"), "{ran:#?}");
            assert!(!ran.stdout.contains("\"lapsed\""), "{ran:#?}");
        }
    }
}

#[tokio::test]
async fn a_scoped_key_is_that_of_the_library_and_needs_no_store() {
    let place = Place::at(tempfile::TempDir::new().unwrap(), String::new());
    let arguments = ["scoped-key", "--principal", PRINCIPAL, "--key"];
    for key in ["k", "\"k\""] {
        let ran = place.run(&[&arguments[..], &[key]].concat()).await.exits(0);
        assert_eq!(ran.stdout.trim_end(), scoped("k").to_string());
    }
    let by_name = place.command(&["scoped-key", "--principal-env", "P", "--key-env", "K"]);
    let mut by_name = by_name;
    let output = by_name
        .env("P", PRINCIPAL)
        .env("K", "k")
        .output()
        .await
        .unwrap();
    let ran = super::Ran::of(output).exits(0);
    assert_eq!(ran.stdout.trim_end(), scoped("k").to_string());
    let itself = scoped("k").to_string();
    let json = place.json(&["scoped-key", "--scoped-key", &itself]).await;
    assert_eq!(json["scoped_key"], itself.as_str());
}

/// The principals of the example services are bearer tokens.
#[tokio::test]
async fn a_request_through_the_layer_is_found_by_its_token_endpoint_and_secret() {
    let place = Place::sqlite().migrated().await;
    let store = axum_idempotency::store::sqlite::SqliteStore::open(&place.store_url);
    let policy = Policy::builder(PrincipalSource::bearer()).scope(Scope::PrincipalAndEndpoint);
    let layer = IdempotencyLayer::builder(store.await.unwrap())
        .policy(policy.build().unwrap())
        .scope_secret(ScopeSecret::new("pepper"))
        .build()
        .unwrap();
    let handler = post(|| async { StatusCode::CREATED });
    let app = Router::new()
        .route("/v1/refunds", handler)
        .layer(layer.clone());
    let request = Request::post("/v1/refunds?dry=1")
        .header("authorization", "Bearer t0ken")
        .header("idempotency-key", "order-1")
        .body(Body::empty());
    let answer = app.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    layer.shutdown(HOUR).await.unwrap();

    let arguments = [
        "lookup",
        "--bearer-env",
        "TOKEN",
        "--key",
        "order-1",
        "--scope",
        "endpoint",
        "--path",
        "/v1/refunds",
        "--secret-env",
        "PEPPER",
        "--json",
    ];
    let ask = async |pepper: &str| {
        let mut command = place.command(&arguments);
        let output = command
            .env("TOKEN", "t0ken")
            .env("PEPPER", pepper)
            .output()
            .await;
        super::Ran::of(output.unwrap())
    };
    let found = ask("pepper").await.exits(0);
    assert_eq!(found.json()["live"]["status"], 201, "{found:#?}");
    found.never_tells("t0ken");
    ask("salt").await.exits(1);
}

#[tokio::test]
async fn what_names_no_key_is_refused() {
    let place = Place::sqlite().migrated().await;
    for arguments in [
        &["--key", "k"][..],
        &["--principal", "p"],
        &["--principal", "p", "--queue", "q", "--key", "k"],
        &["--principal", "p", "--key", "k", "--scope", "endpoint"],
    ] {
        place.run(&[&["lookup"], arguments].concat()).await.exits(2);
    }
    for (arguments, why) in [
        (&["--principal", "p", "--key", "a,b"][..], "bad_character"),
        (&["--scoped-key", "order-1"], "not a scoped key"),
        (&["--bearer-env", "NOT_SET", "--key", "k"], "NOT_SET"),
    ] {
        let ran = place.run(&[&["lookup"], arguments].concat()).await.exits(2);
        ran.complains_of(why);
        ran.never_tells("order-1");
        ran.never_tells("a,b");
    }
}
