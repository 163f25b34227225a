//! From settings to connections.

use std::{fmt, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use super::{
    error::{WRONG_URL, is_refused, store_error},
    sql::Schema,
};
use crate::{clock::Clock, store::StoreError};

/// How a database is opened.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    pub(crate) schema: Option<String>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) max_connections: u32,
    pub(crate) acquire_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) named_statements: bool,
    pub(crate) migrate: bool,
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Source {
    Url(String),
    /// Shared with the user, who closes it.
    Pool(PgPool),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            source: Source::Url(String::new()),
            schema: None,
            clock: None,
            max_connections: Self::MAX_CONNECTIONS,
            acquire_timeout: Self::ACQUIRE_TIMEOUT,
            statement_timeout: Self::STATEMENT_TIMEOUT,
            named_statements: true,
            migrate: true,
        }
    }
}

impl Settings {
    pub(crate) const MAX_CONNECTIONS: u32 = 12;
    /// Both together come to less than the 5 s that the layer allows a store.
    pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
    pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_millis(2_500);

    pub(super) fn checked_schema(&self) -> Result<Option<Schema>, StoreError> {
        let Some(name) = &self.schema else {
            return Ok(None);
        };
        let schema = Schema::new(name).ok_or_else(|| {
            let why = format!("{name:?} is none");
            StoreError::setup("the schema's name has to have 1 to 63 bytes", why)
        })?;
        Ok(Some(schema))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A URL may hold a password.
        f.debug_struct("Settings")
            .field("schema", &self.schema)
            .field("max_connections", &self.max_connections)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("named_statements", &self.named_statements)
            .field("migrate", &self.migrate)
            .finish_non_exhaustive()
    }
}

/// How statements are run on the connections of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// They are our own: what statements rely on is set when one is opened, so
    /// that one round trip is enough for a statement.
    Own,
    /// They belong to others too: what statements rely on is set in a
    /// transaction around each.
    Shared {
        /// Whether a statement that was prepared is still there for the next.
        named_statements: bool,
    },
}

impl Session {
    /// Whether a prepared statement is still there when it is run again.
    pub(super) fn keeps_statements(self) -> bool {
        match self {
            Self::Own => true,
            Self::Shared { named_statements } => named_statements,
        }
    }
}

/// What statements rely on. Each reads few rows by an index: a plan that was
/// made while a table was empty must not read all of it once it is large, and no
/// compilation pays for itself.
const RELIED_ON: [(&str, &str); 2] = [("enable_seqscan", "off"), ("jit", "off")];

/// For statements that are kept: one plan serves all sizes. Where they are not,
/// a lookup in the archive would be planned for all partitions each time, and
/// not for those that its bound leaves over.
const ONE_PLAN: (&str, &str) = ("plan_cache_mode", "force_generic_plan");

/// The start of a transaction on a connection that is not ours alone.
pub(super) fn begin(session: Session, statement_timeout: Duration) -> String {
    let one_plan = session.keeps_statements().then_some(ONE_PLAN);
    let settings = RELIED_ON.into_iter().chain(one_plan);
    let settings = settings.map(|(name, value)| format!("SET LOCAL {name} = '{value}'"));
    let timeout = format!(
        "SET LOCAL statement_timeout = {}",
        millis(statement_timeout)
    );
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
    let statements: Vec<_> = [begin, timeout].into_iter().chain(settings).collect();
    statements.join("; ")
}

/// The settings of a connection that is ours alone.
fn own(options: PgConnectOptions, statement_timeout: Duration) -> PgConnectOptions {
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("axum-idempotency"),
    };
    options
        .options(RELIED_ON)
        .options([ONE_PLAN])
        .options([("default_transaction_isolation", "read committed")])
        .options([("statement_timeout", millis(statement_timeout).to_string())])
}

/// A timeout as the server takes it, where zero means none.
pub(super) fn millis(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis())
        .unwrap_or(i32::MAX.unsigned_abs())
        .clamp(1, i32::MAX.unsigned_abs())
}

/// A pool, how to use it, and a first connection of its kind, which says what
/// is wrong better than a pool does.
pub(super) async fn connect(
    settings: &Settings,
) -> Result<(PgPool, Session, PgConnection), StoreError> {
    let (options, session, pool) = match &settings.source {
        Source::Pool(pool) => {
            let session = Session::Shared {
                named_statements: settings.named_statements,
            };
            (
                (*pool.connect_options()).clone(),
                session,
                Some(pool.clone()),
            )
        }
        Source::Url(url) => {
            let options = parse(url)?;
            if settings.named_statements {
                let options = own(options, settings.statement_timeout);
                (options, Session::Own, None)
            } else {
                let session = Session::Shared {
                    named_statements: false,
                };
                // Proxies refuse parameters at the start that they do not know.
                (options.extra_float_digits(None), session, None)
            }
        }
    };
    // Of a pool of the user's, what that says.
    let patience = pool.as_ref().map_or(settings.acquire_timeout, |pool| {
        pool.options().get_acquire_timeout()
    });
    let conn = first(&options, patience).await?;
    let pool = pool.unwrap_or_else(|| {
        PgPoolOptions::new()
            .max_connections(settings.max_connections)
            .acquire_timeout(settings.acquire_timeout)
            // A round trip for every statement; a broken connection is noticed
            // when it is used, and the statement run on another.
            .test_before_acquire(false)
            .connect_lazy_with(options)
    });
    Ok((pool, session, conn))
}

fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
        return Err(StoreError::setup(WRONG_URL, "its scheme is not postgres"));
    }
    url.parse()
        .map_err(|error| StoreError::setup(WRONG_URL, error))
}

async fn first(options: &PgConnectOptions, patience: Duration) -> Result<PgConnection, StoreError> {
    const REACHING: &str = "connecting to PostgreSQL: does it run, and are host and port of the \
                            URL right?";
    match timeout(patience, options.connect()).await {
        Ok(Ok(conn)) => Ok(conn),
        Ok(Err(error)) if is_refused(&error) => Err(StoreError::unavailable(REACHING, error)),
        Ok(Err(error)) => Err(store_error(REACHING, error.into())),
        Err(elapsed) => Err(StoreError::unavailable(REACHING, elapsed)),
    }
}
