//! An effect that commits with the record of its outcome, and a process that
//! dies on the way.

#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    expect(unused, reason = "no store of this build commits with the work")
)]

use std::{process, time::Duration};

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use axum_idempotency::Idempotency;
use serde::Deserialize;

use super::{Effects, Failure};

#[derive(Deserialize)]
#[serde(default)]
pub(super) struct How {
    /// Where the process ends at once, in the first attempt.
    abort: Option<Step>,
    /// Between effect and commit.
    delay_ms: u64,
    /// After the commit.
    panic: u8,
    status: u16,
}

impl Default for How {
    fn default() -> Self {
        Self {
            abort: None,
            delay_ms: 0,
            panic: 0,
            status: 201,
        }
    }
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// The transaction has begun.
    Begun,
    /// The record is locked.
    Locked,
    /// The effect is written.
    Written,
    /// The record is written too, and the commit has begun. In SQLite only.
    Committing,
    Committed,
}

impl How {
    fn at(&self, step: Step, attempt: u32) {
        if self.aborts_at(step, attempt) {
            process::abort();
        }
    }

    fn aborts_at(&self, step: Step, attempt: u32) -> bool {
        self.abort == Some(step) && attempt == 1
    }
}

pub(super) async fn work(
    idempotency: Idempotency,
    State(effects): State<Effects>,
    Query(how): Query<How>,
) -> Result<Response, Failure> {
    let status = StatusCode::from_u16(how.status).map_err(|_| Failure::NoStatus)?;
    effects.happen_with_record(&idempotency, &how, status).await
}

/// The way of an effect over either database. `$hook` prepares the connection
/// for the commit.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
macro_rules! in_steps {
    ($tables:expr, $begin:expr, $idempotency:expr, $how:expr, $status:expr, |$work:ident| $hook:expr) => {{
        let Some(store) = &$tables.store else {
            return Err(Failure::NoWork);
        };
        let attempt = $idempotency.attempt();
        let transaction = $tables.pool.begin_with($begin).await?;
        $how.at(Step::Begun, attempt);
        let mut $work = store.enlist($idempotency, transaction).await?;
        $how.at(Step::Locked, attempt);
        let execution: i64 = sqlx::query_scalar(include_str!("execute.sql"))
            .bind($idempotency.principal().id())
            .bind($idempotency.key().as_str())
            .fetch_one(&mut *$work)
            .await?;
        $how.at(Step::Written, attempt);
        tokio::time::sleep(Duration::from_millis($how.delay_ms)).await;
        $hook;
        let id = format!("work_{}", ulid::Ulid::generate()).to_lowercase();
        let answer = serde_json::json!({"id": id, "execution": execution, "attempt": attempt});
        let response = $work.commit(($status, Json(answer))).await?;
        $how.at(Step::Committed, attempt);
        assert!($how.panic != 1, "as the request asked");
        Ok(response)
    }};
}

impl Effects {
    async fn happen_with_record(
        &self,
        idempotency: &Idempotency,
        how: &How,
        status: StatusCode,
    ) -> Result<Response, Failure> {
        match &self.0 {
            #[cfg(feature = "sqlite")]
            super::Database::Sqlite(tables) => {
                in_steps!(
                    tables,
                    "BEGIN IMMEDIATE",
                    idempotency,
                    how,
                    status,
                    |work| {
                        if how.aborts_at(Step::Committing, idempotency.attempt()) {
                            let mut connection = work.lock_handle().await?;
                            connection.set_commit_hook(|| process::abort());
                        }
                    }
                )
            }
            #[cfg(feature = "postgres")]
            super::Database::Postgres(tables) => {
                in_steps!(tables, "BEGIN", idempotency, how, status, |work| {})
            }
            #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
            _ => {
                let _unused = (idempotency, how, status);
                Err(Failure::NoWork)
            }
        }
    }
}
