//! A service that moves money: what to copy.
//!
//! ```text
//! cargo run --example charges --features sqlite
//! ```

use std::{process::ExitCode, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use axum_idempotency::{ArchiveLookup, Idempotency, Recording, ResourceId, Scope, Ttl};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[path = "../support/caller.rs"]
mod caller;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "console")]
mod ops;
#[path = "../support/mod.rs"]
mod support;
mod work;

use caller::Caller;
use support::{Backend, BoxError, Database, Settings, with_pool};
use work::{NotDone, with_tables};

#[tokio::main]
async fn main() -> ExitCode {
    support::log();
    support::exit(serve().await)
}

async fn serve() -> Result<ExitCode, BoxError> {
    let settings = Settings::from_env("charges")?;
    let backend = Backend::open(&settings).await?;
    let database = &backend.database;
    let schema = database.dialect(
        include_str!("schema.sqlite.sql"),
        include_str!("schema.postgres.sql"),
    );
    with_pool!(database, |pool| {
        sqlx::raw_sql(schema).execute(pool).await?;
    });

    // One layer, three policies: charges as the environment says, refunds with
    // keys of their own, payouts with a longer window and keys that tell their
    // age.
    let week = Duration::from_hours(168);
    let charges = backend.layer(caller::policy()?.build()?)?;
    let refunds = caller::policy()?.scope(Scope::PrincipalAndEndpoint);
    let payouts = caller::policy()?
        .ttl(Ttl::new(week)?)
        .archive_lookup(ArchiveLookup::RequireTimestamped);
    let refunds = charges.with_policy(refunds.build()?)?;
    let payouts = charges.with_policy(payouts.build()?)?;

    let router = Router::new()
        .route(
            "/v1/charges",
            post(create_charge).get(find_charges).layer(charges.clone()),
        )
        .route("/v1/charges/{id}", get(show_charge))
        .route("/v1/refunds", post(create_refund).layer(refunds))
        .route("/v1/payouts", post(create_payout).layer(payouts))
        .with_state(backend.database.clone());
    #[cfg(feature = "console")]
    let router = ops::mount(router, &backend);
    #[cfg(feature = "metrics")]
    let router = metrics::install(router)?;
    support::serve(&settings, &charges, router).await
}

#[derive(Deserialize)]
struct NewCharge {
    amount: i64,
    currency: String,
    client_reference: Option<String>,
}

#[derive(Serialize, sqlx::FromRow)]
struct Charge {
    id: String,
    amount: i64,
    currency: String,
    client_reference: Option<String>,
    created_at: String,
}

async fn create_charge(
    idempotency: Idempotency,
    State(database): State<Database>,
    Json(new): Json<NewCharge>,
) -> Result<Response, Problem> {
    if new.amount <= 0 || !is_currency(&new.currency) {
        return Err(Problem::Invalid(
            "amount must be positive, currency three letters",
        ));
    }
    with_tables!(&database, |tables| {
        let mut work = tables.begin(&idempotency).await?;
        // The unique index on (principal, client_reference) is the guarantee that
        // outlives every key: see the schema. A charge that it refuses is rolled
        // back, and the refusal is recorded like any other answer.
        let charge: Charge = sqlx::query_as(include_str!("insert_charge.sql"))
            .bind(new_id("ch_"))
            .bind(idempotency.principal().id())
            .bind(new.amount)
            .bind(new.currency)
            .bind(new.client_reference)
            .fetch_one(work.conn())
            .await?;
        let location = [(LOCATION, format!("/v1/charges/{}", charge.id))];
        let resource = ResourceId::new(&charge.id).expect("an id of ours is short and visible");
        let made = (StatusCode::CREATED, location, resource, Json(charge));
        Ok(work.commit(made).await?)
    })
}

async fn show_charge(
    Caller(principal): Caller,
    State(database): State<Database>,
    Path(id): Path<String>,
) -> Result<Json<Charge>, Problem> {
    let charge = with_pool!(&database, |pool| {
        sqlx::query_as(include_str!("show_charge.sql"))
            .bind(principal.id())
            .bind(id)
            .fetch_optional(pool)
            .await?
    });
    charge.map(Json).ok_or(Problem::NotFound)
}

#[derive(Deserialize)]
struct ByReference {
    client_reference: Option<String>,
}

async fn find_charges(
    Caller(principal): Caller,
    State(database): State<Database>,
    Query(by): Query<ByReference>,
) -> Result<Json<Vec<Charge>>, Problem> {
    let charges = with_pool!(&database, |pool| {
        sqlx::query_as(include_str!("find_charges.sql"))
            .bind(principal.id())
            .bind(by.client_reference)
            .fetch_all(pool)
            .await?
    });
    Ok(Json(charges))
}

#[derive(Deserialize)]
struct NewRefund {
    charge: String,
    amount: i64,
}

async fn create_refund(
    idempotency: Idempotency,
    State(database): State<Database>,
    Json(new): Json<NewRefund>,
) -> Result<Response, Problem> {
    if new.amount <= 0 {
        return Err(Problem::Invalid("amount must be positive"));
    }
    let id = new_id("re_");
    let principal = idempotency.principal().id();
    with_tables!(&database, |tables| {
        let mut work = tables.begin(&idempotency).await?;
        // Judged and written in one statement: refunds of one charge wait for
        // each other, and each sees what those before it have left.
        let taken = sqlx::query(include_str!("take_refund.sql"))
            .bind(principal)
            .bind(&new.charge)
            .bind(new.amount)
            .execute(work.conn())
            .await?;
        if taken.rows_affected() == 0 {
            return Err(Problem::NotFound);
        }
        sqlx::query(include_str!("insert_refund.sql"))
            .bind(&id)
            .bind(principal)
            .bind(&new.charge)
            .bind(new.amount)
            .execute(work.conn())
            .await?;
        let refund = json!({"id": id, "charge": new.charge, "amount": new.amount});
        Ok(work.commit((StatusCode::CREATED, Json(refund))).await?)
    })
}

#[derive(Deserialize)]
struct NewPayout {
    amount: i64,
    currency: String,
}

async fn create_payout(
    idempotency: Idempotency,
    State(database): State<Database>,
    Json(new): Json<NewPayout>,
) -> Result<Response, Problem> {
    if new.amount <= 0 || !is_currency(&new.currency) {
        return Err(Problem::Invalid(
            "amount must be positive, currency three letters",
        ));
    }
    let id = new_id("po_");
    with_tables!(&database, |tables| {
        let mut work = tables.begin(&idempotency).await?;
        sqlx::query(include_str!("insert_payout.sql"))
            .bind(&id)
            .bind(idempotency.principal().id())
            .bind(new.amount)
            .bind(&new.currency)
            .execute(work.conn())
            .await?;
        let payout = json!({"id": id, "amount": new.amount, "currency": new.currency});
        Ok(work.commit((StatusCode::CREATED, Json(payout))).await?)
    })
}

fn is_currency(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn new_id(prefix: &str) -> String {
    format!("{prefix}{}", ulid::Ulid::generate()).to_lowercase()
}

enum Problem {
    Invalid(&'static str),
    NotFound,
    DuplicateReference,
    NotDone(NotDone),
}

impl From<NotDone> for Problem {
    fn from(not_done: NotDone) -> Self {
        Self::NotDone(not_done)
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error() {
            Some(database) if database.is_unique_violation() => Self::DuplicateReference,
            // PostgreSQL on texts that it cannot keep or index.
            Some(database) if matches!(database.code().as_deref(), Some("22021" | "54000")) => {
                Self::Invalid("a text is too long, or has a NUL in it")
            }
            _ => Self::NotDone(error.into()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, detail) = match self {
            Self::Invalid(detail) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not_found",
                "no such charge of yours, or not so much left to refund",
            ),
            Self::DuplicateReference => (
                StatusCode::CONFLICT,
                "duplicate_reference",
                "there is a charge with this client_reference: look it up",
            ),
            // A retry runs again.
            Self::NotDone(NotDone::Nothing(error)) => {
                tracing::error!(%error, "nothing happened");
                let body = json!({"code": "unavailable", "detail": "nothing happened: try again"});
                let unavailable = StatusCode::SERVICE_UNAVAILABLE;
                return (unavailable, Recording::Forget, Json(body)).into_response();
            }
            Self::NotDone(NotDone::Perhaps(error)) => {
                tracing::error!(%error, "it may have happened");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "see the log")
            }
        };
        (status, Json(json!({"code": code, "detail": detail}))).into_response()
    }
}
