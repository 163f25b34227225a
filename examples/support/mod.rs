//! What the example services share: settings from the environment, the store
//! and the archive they name, and serving until SIGTERM.

use std::{
    env, error::Error, fmt::Display, io::IsTerminal as _, process::ExitCode, time::Duration,
};

use axum::Router;
use axum_idempotency::{
    Abandoned, ArchiveLookup, IdempotencyLayer, InFlight, Policy, PolicyBuilder, Scope, StoreDown,
    Ttl,
    connect::{ConnectOptions, Connection, without_password},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::Instant,
};

pub(crate) mod database;

pub(crate) use database::{Database, Tables, with_pool};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// What the environment says. It cannot be printed: a URL may hold a password.
pub(crate) struct Settings {
    bind: String,
    store_url: String,
    archive_url: Option<String>,
    sweep_every: Duration,
    drain: Duration,
}

impl Settings {
    /// Reads `BIND`, `STORE_URL` and the rest; `name` is that of the example's
    /// default database.
    pub(crate) fn from_env(name: &str) -> Result<Self, BoxError> {
        Ok(Self {
            bind: text("BIND").unwrap_or_else(|| "127.0.0.1:8080".to_owned()),
            store_url: text("STORE_URL").unwrap_or_else(|| format!("sqlite:{name}.db")),
            archive_url: text("ARCHIVE_URL"),
            sweep_every: duration("SWEEP_EVERY")?.unwrap_or(Duration::from_mins(1)),
            drain: duration("DRAIN")?.unwrap_or(Duration::from_secs(30)),
        })
    }

    /// Where the service's own tables are, and the variable that says so: with
    /// the store; beside a store in Redis with its archive, or else in memory.
    fn database(&self) -> (&'static str, &str) {
        if !self.store_url.starts_with("redis") {
            return ("STORE_URL", &self.store_url);
        }
        let archive = self.archive_url.as_deref().filter(|url| *url != "none");
        ("ARCHIVE_URL", archive.unwrap_or("memory:"))
    }
}

/// The policy with what the environment asks for.
pub(crate) fn policy_from_env(mut policy: PolicyBuilder) -> Result<PolicyBuilder, BoxError> {
    if let Some(ttl) = duration("TTL")? {
        policy = policy.ttl(Ttl::new(ttl).map_err(|error| wrong("TTL", error))?);
    }
    if let Some(lease) = duration("LEASE")? {
        policy = policy.lease(lease);
    }
    if let Some(max_lease) = duration("MAX_LEASE")? {
        policy = policy.max_lease(max_lease);
    }
    policy = match text("SCOPE").as_deref() {
        None => policy,
        Some("principal") => policy.scope(Scope::Principal),
        Some("endpoint") => policy.scope(Scope::PrincipalAndEndpoint),
        Some(other) => return Err(unknown("SCOPE", other, "principal, endpoint")),
    };
    policy = match text("IN_FLIGHT").as_deref() {
        None => policy,
        Some("reject") => policy.in_flight(InFlight::Reject),
        Some(other) => match other.strip_prefix("wait:") {
            Some(longest) => {
                let longest = humantime::parse_duration(longest);
                let longest = longest.map_err(|error| wrong("IN_FLIGHT", error))?;
                policy.in_flight(InFlight::Wait(longest))
            }
            None => return Err(unknown("IN_FLIGHT", other, "reject, wait:5s")),
        },
    };
    policy = match text("ABANDONED").as_deref() {
        None => policy,
        Some("takeover") => policy.abandoned(Abandoned::TakeOver),
        Some("refuse") => policy.abandoned(Abandoned::Refuse),
        Some(other) => return Err(unknown("ABANDONED", other, "takeover, refuse")),
    };
    policy = match text("ARCHIVE_LOOKUP").as_deref() {
        None => policy,
        Some("timestamped") => policy.archive_lookup(ArchiveLookup::TimestampedKeys),
        Some("all") => policy.archive_lookup(ArchiveLookup::AllKeys),
        Some("require") => policy.archive_lookup(ArchiveLookup::RequireTimestamped),
        Some(other) => {
            return Err(unknown(
                "ARCHIVE_LOOKUP",
                other,
                "timestamped, all, require",
            ));
        }
    };
    policy = match text("STORE_DOWN").as_deref() {
        None => policy,
        Some("closed") => policy.store_down(StoreDown::Closed),
        Some("open") => policy.store_down(StoreDown::Open),
        Some(other) => return Err(unknown("STORE_DOWN", other, "closed, open")),
    };
    Ok(policy)
}

/// The store with its archive, and the database for the service's own tables.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) connection: Connection,
    pub(crate) database: Database,
}

impl Backend {
    pub(crate) async fn open(settings: &Settings) -> Result<Self, BoxError> {
        let archive_url = settings.archive_url.as_deref();
        let options = ConnectOptions::new();
        let connection = Connection::open(&settings.store_url, archive_url, &options).await?;
        let (name, url) = settings.database();
        let database = Database::open(url, &connection).await;
        Ok(Self {
            connection,
            database: database.map_err(|error| wrong_url(name, url, error))?,
        })
    }

    /// A layer over the store and the archive.
    pub(crate) fn layer(&self, policy: Policy) -> Result<IdempotencyLayer, BoxError> {
        // A storm of some hundred repeats waits for its one answer.
        let mut layer = IdempotencyLayer::builder_dyn(self.connection.store())
            .policy(policy)
            .waiter_caps(256, 1_024);
        if let Some(archive) = self.connection.archive() {
            layer = layer.archive_dyn(archive);
        }
        Ok(layer.build()?)
    }
}

/// Sweeps and serves until SIGTERM, then finishes what runs. Past `DRAIN` it
/// gives up and exits with 1.
pub(crate) async fn serve(
    settings: &Settings,
    layer: &IdempotencyLayer,
    router: Router,
) -> Result<ExitCode, BoxError> {
    let listener = TcpListener::bind(&settings.bind).await;
    let listener = listener.map_err(|error| wrong("BIND", error))?;
    let sweeper = layer.sweeper().every(settings.sweep_every).start();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stopping, stop) = tokio::sync::watch::channel(None::<Instant>);
    let drain = settings.drain;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stopping.send_replace(Some(Instant::now() + drain));
    });
    println!("listening on http://{}", listener.local_addr()?);
    let mut signalled = stop.clone();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        let _ = signalled.wait_for(Option::is_some).await;
    });
    let mut deadline = stop.clone();
    let out_of_time = async move {
        if let Ok(deadline) = deadline
            .wait_for(Option::is_some)
            .await
            .map(|deadline| *deadline)
        {
            tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)).await;
        }
    };
    let mut clean = tokio::select! {
        ended = server.into_future() => ended.map(|()| true)?,
        () = out_of_time => false,
    };
    let left = stop.borrow().map_or(Duration::ZERO, |deadline| {
        deadline.saturating_duration_since(Instant::now())
    });
    sweeper.stop().await;
    clean &= layer.shutdown(left).await.is_ok();
    if clean {
        tracing::info!("stopped");
        return Ok(ExitCode::SUCCESS);
    }
    tracing::error!("stopped with requests still running");
    // Handlers that hang would hold the runtime up.
    std::process::exit(1);
}

/// The exit status of a service; an error is told on standard error.
pub(crate) fn exit(served: Result<ExitCode, BoxError>) -> ExitCode {
    served.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Logs to standard error, as `RUST_LOG` says; by default what matters. What
/// sqlx says of a URL's parameters could be a password.
pub(crate) fn log() {
    let filter = text("RUST_LOG")
        .unwrap_or_else(|| "info,sqlx=warn,sqlx_postgres::options=error".to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn duration(name: &str) -> Result<Option<Duration>, BoxError> {
    let parse =
        |value: String| humantime::parse_duration(&value).map_err(|error| wrong(name, error));
    text(name).map(parse).transpose()
}

/// Names the variable whose value cannot be used.
fn wrong(name: &str, error: impl Display) -> BoxError {
    let value = text(name).unwrap_or_default();
    format!("{name}={value}: {error}").into()
}

fn unknown(name: &str, value: &str, known: &str) -> BoxError {
    format!("{name}={value}: not known; one of {known}").into()
}

/// Names the variable and its URL, without what may be a password in it.
fn wrong_url(name: &str, url: &str, error: impl Display) -> BoxError {
    format!("{name}={}: {error}", without_password(url)).into()
}
