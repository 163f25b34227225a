//! Which store and archive, and how they are opened.

use std::{sync::Arc, time::Duration};

use axum_idempotency::{
    archive::Archive,
    connect::{ConnectOptions, Connection},
    inspect::{InspectArchive, InspectStore, Inspector},
};
use clap::Args;

use super::{Context, fault::Fault, time::duration};

/// What all commands take.
#[derive(Args)]
#[command(next_help_heading = "Store and archive")]
pub(crate) struct ConnectArgs {
    /// The live store: `sqlite:FILE`, `postgres://…`, `redis://…`. Prefer the
    /// environment variable: arguments stand in the list of processes.
    #[arg(
        long,
        value_name = "URL",
        env = "STORE_URL",
        hide_env_values = true,
        global = true
    )]
    store_url: Option<String>,

    /// The archive: `sqlite:FILE`, `postgres://…`, or `none`. Default: in the
    /// store's own database when that is SQLite or PostgreSQL, none for Redis.
    #[arg(
        long,
        value_name = "URL",
        env = "ARCHIVE_URL",
        hide_env_values = true,
        global = true
    )]
    archive_url: Option<String>,

    /// The schema of the tables in PostgreSQL. Default: the first of the search
    /// path.
    #[arg(long, value_name = "NAME", global = true)]
    schema: Option<String>,

    /// What precedes the names of all keys in Redis. Default: nothing.
    #[arg(long, value_name = "TEXT", global = true)]
    redis_prefix: Option<String>,
}

impl std::fmt::Debug for ConnectArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // URLs may hold a password.
        f.debug_struct("ConnectArgs")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// How long archived rows are kept.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RetentionArgs {
    /// How long archived rows are kept after they expired, such as `7years`;
    /// older ones are deleted by the sweep. Default: for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) retention: Option<Duration>,
}

impl ConnectArgs {
    pub(crate) fn store_url(&self) -> Result<&str, Fault> {
        let url = self.store_url.as_deref().filter(|url| !url.is_empty());
        url.ok_or_else(|| {
            Fault::new("no store is named: set STORE_URL, such as to sqlite:charges.db")
        })
    }

    pub(crate) fn archive_url(&self) -> Option<&str> {
        self.archive_url.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new().migrate(false);
        if let Some(schema) = &self.schema {
            options = options.schema(schema);
        }
        if let Some(prefix) = &self.redis_prefix {
            options = options.redis_prefix(prefix);
        }
        options
    }
}

impl Context {
    /// Opens both as they are: only `migrate` changes tables.
    pub(crate) async fn open(&self) -> Result<Connection, Fault> {
        self.open_with(&self.connect.options()).await
    }

    pub(crate) async fn open_with(&self, options: &ConnectOptions) -> Result<Connection, Fault> {
        let connect = &self.connect;
        let opened = Connection::open(connect.store_url()?, connect.archive_url(), options).await;
        opened.map_err(|error| {
            let hint = error.needs_migration();
            let fault = Fault::from(error);
            if hint {
                fault.hint("if it is new, or an older version made it: run `idempotency migrate`")
            } else {
                fault
            }
        })
    }
}

/// The archive, where a command is about nothing else.
pub(crate) fn archive_of(connection: &Connection) -> Result<Arc<dyn Archive>, Fault> {
    connection.archive().ok_or_else(no_archive)
}

pub(crate) fn no_archive() -> Fault {
    Fault::new("there is no archive: name one in ARCHIVE_URL, such as sqlite:archive.db")
}

/// Whether both can tell what the inspector asks them; else it would find
/// nothing, which is another answer.
pub(crate) fn can_tell(connection: &Connection) -> Result<Inspector, Fault> {
    let inspector = connection.inspector();
    inspected_store(&inspector)?;
    if connection.archive().is_some() {
        inspected_archive(&inspector)?;
    }
    Ok(inspector)
}

/// The store's own view.
pub(crate) fn inspected_store(inspector: &Inspector) -> Result<&dyn InspectStore, Fault> {
    let store = inspector.inspected_store();
    store.ok_or_else(|| Fault::new("this store cannot tell"))
}

/// The archive's own view.
pub(crate) fn inspected_archive(inspector: &Inspector) -> Result<&dyn InspectArchive, Fault> {
    let archive = inspector.inspected_archive();
    archive.ok_or_else(|| Fault::new("this archive cannot tell"))
}
