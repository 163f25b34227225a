//! Every awkward handler in one service, for tests and torture.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{
        HeaderName, StatusCode,
        header::{CONTENT_TYPE, ETAG, LINK, LOCATION, SET_COOKIE},
    },
    response::{AppendHeaders, IntoResponse, Response},
    routing::{get, post},
};
use axum_idempotency::Idempotency;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

#[path = "../support/caller.rs"]
mod caller;
#[path = "../support/mod.rs"]
mod support;
mod work;

use caller::Caller;
use support::{Backend, BoxError, Database, Settings, with_pool};

#[tokio::main]
async fn main() -> ExitCode {
    support::log();
    support::exit(serve().await)
}

async fn serve() -> Result<ExitCode, BoxError> {
    let settings = Settings::from_env("testbed")?;
    let backend = Backend::open(&settings).await?;
    let database = &backend.database;
    let schema = database.dialect(
        include_str!("schema.sqlite.sql"),
        include_str!("schema.postgres.sql"),
    );
    with_pool!(database, |pool| {
        sqlx::raw_sql(schema).execute(pool).await?;
    });

    let layer = backend.layer(caller::policy()?.build()?)?;
    let secret = layer.with_policy(caller::policy()?.keep_no_bodies().build()?)?;
    let version = || {
        Router::new()
            .route("/echo", post(echo))
            .layer(layer.clone())
    };
    let router = Router::new()
        .route("/echo", post(echo))
        .route("/cookies", post(cookies))
        .route("/binary", post(binary))
        .route("/empty", post(empty))
        .route("/work", post(work::work))
        .layer(layer.clone())
        .route("/secret", post(reveal).layer(secret))
        .route("/executions", get(executions))
        .nest("/v1", version())
        .nest("/v2", version())
        .with_state(Effects(backend.database.clone()));
    support::serve(&settings, &layer, router).await
}

/// What the handlers do to the world: a row for every execution.
#[derive(Clone)]
struct Effects(Database);

impl Effects {
    /// Has the effect and says how often it has now happened under this key.
    async fn happen(&self, idempotency: &Idempotency) -> Result<i64, Failure> {
        let count = with_pool!(&self.0, |pool| {
            sqlx::query_scalar(include_str!("execute.sql"))
                .bind(idempotency.principal().id())
                .bind(idempotency.key().as_str())
                .fetch_one(pool)
                .await?
        });
        Ok(count)
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Awkward {
    delay_ms: u64,
    status: u16,
    size: usize,
    stream: u8,
    panic: u8,
    hang: u8,
}

impl Default for Awkward {
    fn default() -> Self {
        Self {
            delay_ms: 0,
            status: 200,
            size: 0,
            stream: 0,
            panic: 0,
            hang: 0,
        }
    }
}

async fn echo(
    idempotency: Idempotency,
    State(effects): State<Effects>,
    Query(how): Query<Awkward>,
    body: Bytes,
) -> Result<Response, Failure> {
    let status = StatusCode::from_u16(how.status).map_err(|_| Failure::NoStatus)?;
    let execution = effects.happen(&idempotency).await?;
    tokio::time::sleep(Duration::from_millis(how.delay_ms)).await;
    if how.hang == 1 {
        std::future::pending::<()>().await;
    }
    assert!(how.panic != 1, "as the request asked");
    let id = format!("echo_{}", ulid::Ulid::generate()).to_lowercase();
    let location = [(LOCATION, format!("/echo/{id}"))];
    let answer = json!({
        "id": id,
        "execution": execution,
        "attempt": idempotency.attempt(),
        "body_sha256": hex(&Sha256::digest(&body)),
    });
    let answer = padded(answer, how.size);
    let json = [(CONTENT_TYPE, "application/json")];
    let body = if how.stream == 1 {
        let chunks: Vec<_> = answer
            .as_bytes()
            .chunks(CHUNK)
            .map(Bytes::copy_from_slice)
            .collect();
        Body::from_stream(stream::iter(chunks.into_iter().map(Ok::<_, Failure>)))
    } else {
        Body::from(answer)
    };
    Ok((status, location, json, body).into_response())
}

/// The answer as text of exactly `size` bytes, where that is more.
fn padded(mut answer: Value, size: usize) -> String {
    let bare = answer.to_string();
    let member = r#","padding":"""#.len();
    if size < bare.len() + member {
        return bare;
    }
    answer["padding"] = Value::from("x".repeat(size - bare.len() - member));
    answer.to_string()
}

async fn cookies(
    idempotency: Idempotency,
    State(effects): State<Effects>,
) -> Result<impl IntoResponse, Failure> {
    let execution = effects.happen(&idempotency).await?;
    let headers: [(HeaderName, &str); 5] = [
        (SET_COOKIE, "session=1; HttpOnly"),
        (SET_COOKIE, "csrf=2"),
        (LINK, "</a>; rel=\"next\""),
        (LINK, "</b>; rel=\"prev\""),
        (ETAG, "\"v1\""),
    ];
    Ok((
        AppendHeaders(headers),
        Json(json!({"execution": execution})),
    ))
}

async fn binary(
    idempotency: Idempotency,
    State(effects): State<Effects>,
) -> Result<impl IntoResponse, Failure> {
    effects.happen(&idempotency).await?;
    let bytes: Vec<u8> = (0..=255).collect();
    Ok(([(CONTENT_TYPE, "application/octet-stream")], bytes))
}

async fn empty(
    idempotency: Idempotency,
    State(effects): State<Effects>,
) -> Result<StatusCode, Failure> {
    effects.happen(&idempotency).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows a secret once.
async fn reveal(
    idempotency: Idempotency,
    State(effects): State<Effects>,
) -> Result<impl IntoResponse, Failure> {
    let execution = effects.happen(&idempotency).await?;
    let id = format!("key_{}", ulid::Ulid::generate()).to_lowercase();
    let secret = format!("sk_{}", ulid::Ulid::generate());
    let answer = json!({"id": id, "execution": execution, "secret": secret});
    Ok((StatusCode::CREATED, Json(answer)))
}

#[derive(Deserialize)]
struct Which {
    key: Option<String>,
}

/// How often the effect has happened: for a key of the caller's, or in all.
async fn executions(
    caller: Result<Caller, StatusCode>,
    State(effects): State<Effects>,
    Query(which): Query<Which>,
) -> Result<Json<Value>, Failure> {
    let Some(key) = which.key else {
        let total: i64 = with_pool!(&effects.0, |pool| {
            sqlx::query_scalar(include_str!("total.sql"))
                .fetch_one(pool)
                .await?
        });
        return Ok(Json(json!({"total": total})));
    };
    let Caller(principal) = caller.map_err(|_| Failure::NoCaller)?;
    let count: i64 = with_pool!(&effects.0, |pool| {
        sqlx::query_scalar(include_str!("count.sql"))
            .bind(principal.id())
            .bind(key)
            .fetch_one(pool)
            .await?
    });
    Ok(Json(json!({"count": count})))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[derive(Debug)]
enum Failure {
    NoCaller,
    NoStatus,
    /// The effect cannot commit with its record here.
    NoWork,
    Database(sqlx::Error),
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    Work(axum_idempotency::store::WorkError),
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl From<axum_idempotency::store::WorkError> for Failure {
    fn from(error: axum_idempotency::store::WorkError) -> Self {
        Self::Work(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCaller => f.write_str("whose key is it?"),
            Self::NoStatus => f.write_str("no such status"),
            Self::NoWork => f.write_str("the store is in another database, or in none"),
            Self::Database(error) => error.fmt(f),
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            Self::Work(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NoCaller => StatusCode::UNAUTHORIZED,
            Self::NoStatus => StatusCode::BAD_REQUEST,
            Self::NoWork => StatusCode::NOT_IMPLEMENTED,
            Self::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
            // Nothing happened; or else the layer tells what did.
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            Self::Work(_) => {
                let unavailable = StatusCode::SERVICE_UNAVAILABLE;
                let forget = axum_idempotency::Recording::Forget;
                return (unavailable, forget, self.to_string()).into_response();
            }
        };
        (status, self.to_string()).into_response()
    }
}

const CHUNK: usize = 16 * 1024;
