//! A service that receives webhooks, and processes each event once.
//!
//! ```text
//! cargo run --example webhooks --features sqlite
//! ```
//!
//! It verifies no signatures, so that it can be tried with curl. A real one does,
//! in a layer outside: see the documentation of `axum_idempotency::webhook`.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use axum_idempotency::{
    ArchiveLookup, Found, FoundState, Idempotency, IdempotencyKey, IdempotencyLayer,
    webhook::Webhook,
};
use serde_json::{Value, json};

#[path = "../support/mod.rs"]
mod support;
#[path = "../charges/work.rs"]
mod work;

use support::{Backend, BoxError, Database, Settings, with_pool};
use work::{NotDone, with_tables};

#[tokio::main]
async fn main() -> ExitCode {
    support::log();
    support::exit(serve().await)
}

/// Where a provider delivers, and how it is asked about afterwards.
struct Endpoint {
    path: &'static str,
    webhook: Webhook,
    layer: IdempotencyLayer,
}

type Endpoints = Arc<BTreeMap<&'static str, Endpoint>>;

async fn serve() -> Result<ExitCode, BoxError> {
    let settings = Settings::from_env("webhooks")?;
    let backend = Backend::open(&settings).await?;
    let database = &backend.database;
    let schema = database.dialect(
        include_str!("schema.sqlite.sql"),
        include_str!("schema.postgres.sql"),
    );
    with_pool!(database, |pool| {
        sqlx::raw_sql(schema).execute(pool).await?;
    });

    let providers = [
        ("stripe", "/webhooks/stripe", Webhook::stripe()),
        ("github", "/webhooks/github", Webhook::github()),
        ("standard", "/webhooks/standard", Webhook::standard()),
    ];
    let mut endpoints = BTreeMap::new();
    for (provider, path, webhook) in providers {
        // Without an archive there is nobody to ask about a late delivery.
        let webhook = match backend.connection.archive() {
            Some(_) => webhook,
            None => webhook.archive_lookup(ArchiveLookup::TimestampedKeys),
        };
        let policy = support::policy_from_env(webhook.policy())?.build()?;
        let layer = backend.layer(policy)?;
        endpoints.insert(
            provider,
            Endpoint {
                path,
                webhook,
                layer,
            },
        );
    }
    let mut router = Router::new();
    for (provider, endpoint) in &endpoints {
        let provider = *provider;
        let database = backend.database.clone();
        let receive = move |idempotency, headers: HeaderMap, body: Bytes| async move {
            receive(provider, database, idempotency, &headers, &body).await
        };
        router = router.route(endpoint.path, post(receive).layer(endpoint.layer.clone()));
    }
    let layer = endpoints["stripe"].layer.clone();
    let router = router.route(
        "/events/{provider}/{id}",
        get(find_event).with_state(Arc::new(endpoints)),
    );
    support::serve(&settings, &layer, router).await
}

/// Processes an event. Anything but a 2xx has the provider deliver it again,
/// and this run again.
async fn receive(
    provider: &'static str,
    database: Database,
    idempotency: Option<Idempotency>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Problem> {
    let event: Value = serde_json::from_slice(body).map_err(|_| Problem::NotJson)?;
    let in_header = headers
        .get("x-github-event")
        .and_then(|kind| kind.to_str().ok());
    let kind = in_header
        .or_else(|| event["type"].as_str())
        .unwrap_or("unknown");
    let received = Json(json!({"received": true}));
    // The effect of this service: it takes note of the event.
    let Some(attempt) = idempotency else {
        // It has no id, and a duplicate cannot be told.
        with_pool!(&database, |pool| {
            let note = sqlx::query(include_str!("insert_event.sql"));
            let note = note.bind(provider).bind(None::<String>).bind(kind);
            note.execute(pool).await?;
        });
        return Ok(received.into_response());
    };
    with_tables!(&database, |tables| {
        let mut work = tables.begin(&attempt).await?;
        let note = sqlx::query(include_str!("insert_event.sql"));
        let note = note.bind(provider).bind(attempt.key().as_str()).bind(kind);
        note.execute(work.conn()).await?;
        Ok(work.commit(received).await?)
    })
}

/// Did we process it, and when?
async fn find_event(
    State(endpoints): State<Endpoints>,
    Path((provider, id)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let endpoint = endpoints.get(&*provider).ok_or(Problem::NotFound)?;
    let id = IdempotencyKey::from_id(&id).map_err(|_| Problem::NotFound)?;
    let principal = endpoint.webhook.principal();
    let key = endpoint
        .layer
        .scoped_key(&principal, (&Method::POST, endpoint.path), &id);
    let found = endpoint.layer.find(key).await;
    let found = found.map_err(|error| Problem::Unavailable(error.into()))?;
    let Found {
        state,
        created_at,
        expires_at,
        attempt,
        ..
    } = found.ok_or(Problem::NotFound)?;
    let (state, status) = match state {
        FoundState::InProgress => ("in_progress", None),
        FoundState::Completed { status, .. } => ("completed", Some(status)),
        _ => ("outcome_unknown", None),
    };
    Ok(Json(json!({
        "provider": provider,
        "id": id.as_str(),
        "processed": status.is_some(),
        "state": state,
        "status": status,
        "first_delivered_at": created_at.to_string(),
        "remembered_until": expires_at.to_string(),
        "archived": attempt.is_none(),
    })))
}

enum Problem {
    NotJson,
    NotFound,
    Unavailable(BoxError),
}

impl From<NotDone> for Problem {
    fn from(not_done: NotDone) -> Self {
        Self::Unavailable(match not_done {
            NotDone::Nothing(error) => error,
            NotDone::Perhaps(error) => error.into(),
        })
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        NotDone::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code) = match self {
            Self::NotJson => (StatusCode::BAD_REQUEST, "not_json"),
            Self::NotFound => (StatusCode::NOT_FOUND, "never_seen"),
            Self::Unavailable(error) => {
                tracing::error!(%error, "not processed");
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
        };
        (status, Json(json!({"code": code}))).into_response()
    }
}
