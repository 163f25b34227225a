//! A worker on a table as its queue: pays each message out once, however often
//! it is delivered and whenever the process dies.
//!
//! ```text
//! STORE_URL=postgres://… cargo run --example worker --features postgres
//! ```
//!
//! Reads `STORE_URL` (`postgres://…`), `TTL`, `LEASE` (durations such as `30s`),
//! `WORKERS` (how many messages at once, default 4) and `SWEEP_EVERY`.

use std::{env, error::Error, fmt::Display, process::ExitCode, str::FromStr, time::Duration};

use axum_idempotency::{
    ResourceId, Ttl,
    store::postgres::PostgresStore,
    worker::{Delivery, Job, Worker},
};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), BoxError> {
    let filter = env::var("RUST_LOG").unwrap_or_else(|_| "info,sqlx=warn".to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();

    let url = env::var("STORE_URL").map_err(|_| "STORE_URL is not set")?;
    let store = PostgresStore::open(&url).await;
    let store = store.map_err(|error| format!("STORE_URL: {error}"))?;
    let pool = PgPoolOptions::new()
        .max_connections(8)
        .connect(&url)
        .await?;
    sqlx::raw_sql(include_str!("sql/schema.sql"))
        .execute(&pool)
        .await?;

    let lease = duration("LEASE", Duration::from_secs(30))?;
    let worker = Worker::builder("payouts", store.clone())
        .archive(store.archive())
        .ttl(Ttl::new(duration("TTL", Ttl::DEFAULT.get())?)?)
        .lease(lease)
        .build()?;
    let sweep_every = duration("SWEEP_EVERY", Duration::from_mins(1))?;
    let sweeper = worker.layer().sweeper().every(sweep_every).start();

    let (stopping, stop) = watch::channel(false);
    let payouts = Payouts {
        worker,
        store,
        pool,
        lease,
    };
    let mut tasks = JoinSet::new();
    for _ in 0..number("WORKERS", 4)? {
        tasks.spawn(payouts.clone().work(stop.clone()));
    }
    println!("working");
    let mut terminate = signal(SignalKind::terminate())?;
    terminate.recv().await;
    stopping.send_replace(true);
    tasks.join_all().await;
    sweeper.stop().await;
    payouts
        .worker
        .layer()
        .shutdown(Duration::from_secs(30))
        .await?;
    Ok(())
}

#[derive(Clone)]
struct Payouts {
    worker: Worker,
    store: PostgresStore,
    pool: PgPool,
    lease: Duration,
}

/// One delivery of a message. The queue's own number of it is another at every
/// time that its producer sent it; the message's id is not.
#[derive(sqlx::FromRow)]
struct Message {
    delivery: i64,
    #[sqlx(rename = "message_id")]
    id: String,
    amount: i64,
}

impl Payouts {
    async fn work(self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let idle = match self.step().await {
                Ok(true) => continue,
                Ok(false) => Duration::from_millis(50),
                Err(error) => {
                    tracing::error!(%error, "a message was not handled: it is delivered again");
                    Duration::from_millis(500)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(idle) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Handles one message; false when none is waiting.
    async fn step(&self) -> Result<bool, BoxError> {
        let Some(message) = self.receive().await? else {
            return Ok(false);
        };
        match self.worker.claim(&message.id).await? {
            Delivery::Claimed(job) => {
                self.pay(job, &message).await?;
                self.delete(&message).await?;
            }
            Delivery::Done(_) => self.delete(&message).await?,
            Delivery::InFlight { retry_after } => self.hide(&message, retry_after).await?,
            Delivery::Unknown { created_at } => {
                tracing::error!(
                    delivery = message.delivery,
                    ?created_at,
                    "outcome unknown: look it up, and settle it"
                );
                self.hide(&message, Duration::from_hours(24)).await?;
            }
        }
        Ok(true)
    }

    /// The payout and the record of its outcome commit together, or not at all.
    async fn pay(&self, job: Job, message: &Message) -> Result<(), BoxError> {
        let transaction = self.pool.begin().await?;
        let mut work = self.store.enlist(job.idempotency(), transaction).await?;
        let (payout,): (i64,) = sqlx::query_as(include_str!("sql/pay.sql"))
            .bind(&message.id)
            .bind(message.amount)
            .fetch_one(&mut *work)
            .await?;
        let made = ResourceId::new(&format!("po_{payout}")).ok_or("an id of ours is short")?;
        work.commit((made, ())).await?;
        job.complete(None).await?;
        Ok(())
    }

    /// Takes a message and hides it from other workers for a while. Not taken
    /// off the queue by then, it is delivered again.
    async fn receive(&self) -> Result<Option<Message>, sqlx::Error> {
        sqlx::query_as(include_str!("sql/receive.sql"))
            .bind(self.lease.as_secs_f64())
            .fetch_optional(&self.pool)
            .await
    }

    async fn hide(&self, message: &Message, span: Duration) -> Result<(), sqlx::Error> {
        let hide = sqlx::query(include_str!("sql/hide.sql"))
            .bind(message.delivery)
            .bind(span.as_secs_f64());
        hide.execute(&self.pool).await.map(drop)
    }

    async fn delete(&self, message: &Message) -> Result<(), sqlx::Error> {
        let delete = sqlx::query(include_str!("sql/delete.sql")).bind(message.delivery);
        delete.execute(&self.pool).await.map(drop)
    }
}

fn duration(name: &str, default: Duration) -> Result<Duration, BoxError> {
    setting(name, default, humantime::parse_duration)
}

fn number(name: &str, default: usize) -> Result<usize, BoxError> {
    setting(name, default, usize::from_str)
}

fn setting<T, E: Display>(
    name: &str,
    default: T,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, BoxError> {
    match env::var(name) {
        Ok(value) => parse(&value).map_err(|error| format!("{name}={value}: {error}").into()),
        Err(_) => Ok(default),
    }
}
