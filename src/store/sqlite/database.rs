//! One SQLite database: a connection that writes, and others that read beside
//! it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions as _, Connection as _,
    sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions},
};

use super::{
    error::store_error,
    options::{self, BUSY_TIMEOUT, Medium},
    schema,
    writer::{Operation, Writer},
};
use crate::{
    clock::Clock,
    store::{StoreError, StoreIdentity},
};

/// What a store, or an archive of its own, is a handle to.
pub(crate) struct Database {
    identity: StoreIdentity,
    pub(super) clock: Arc<dyn Clock>,
    options: SqliteConnectOptions,
    medium: Medium,
    writer: Writer,
    /// None for an in-memory database, which has one connection.
    readers: Option<SqlitePool>,
}

/// Most rows that one transaction moves or deletes, since claims wait for it.
pub(super) const ROWS_AT_ONCE: usize = 1_000;

/// How long an operator's question may take.
const LONGEST_QUESTION: Duration = Duration::from_secs(50);

/// How many steps of SQLite's machine go by between two looks at the clock:
/// a small part of a second.
const STEPS: i32 = 100_000;

/// How a database is opened.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) url: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) readers: u32,
    pub(crate) migrate: bool,
}

impl Database {
    pub(crate) async fn open(settings: Settings) -> Result<Arc<Self>, StoreError> {
        let options = options::parse(&settings.url)?;
        let (mut conn, medium) = options::connect(&options).await?;
        if settings.migrate {
            schema::migrate(&mut conn).await?;
        } else {
            schema::verify(&mut conn).await?;
        }
        let on_file = medium == Medium::File;
        let reopen = on_file.then(|| options::further(&options));
        let readers = (on_file && settings.readers > 0).then(|| {
            SqlitePoolOptions::new()
                .max_connections(settings.readers)
                .acquire_timeout(BUSY_TIMEOUT)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                .connect_lazy_with(options::reader(&options))
        });
        Ok(Arc::new(Self {
            identity: StoreIdentity::new(),
            writer: Writer::spawn(conn, reopen, Arc::clone(&settings.clock)),
            clock: settings.clock,
            options,
            medium,
            readers,
        }))
    }

    pub(crate) fn identity(&self) -> StoreIdentity {
        self.identity
    }

    /// Runs `operation` on the writing connection; it is committed when this
    /// returns.
    pub(crate) async fn write<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        self.writer.run(operation).await
    }

    /// Writes what `step` makes, which handles so many rows or fewer, until
    /// `limit` rows are done or none is left. How many were done.
    pub(crate) async fn write_in_steps<O: Operation<Answer = u64>>(
        &self,
        limit: u32,
        step: impl Fn(u32) -> O + Send + Sync,
    ) -> Result<u64, StoreError> {
        let (limit, mut done) = (u64::from(limit), 0);
        while done < limit {
            let rows = (limit - done).min(ROWS_AT_ONCE as u64);
            let step = step(u32::try_from(rows).unwrap_or(u32::MAX));
            match self.write(step).await? {
                0 => break,
                rows => done += rows,
            }
        }
        Ok(done)
    }

    /// Runs `operation`, a single query, on what has been committed by now.
    pub(crate) async fn read<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        let Some(readers) = &self.readers else {
            return self.write(operation).await;
        };
        self.check_open(O::WHAT)?;
        let conn = readers.acquire().await;
        let mut conn = conn.map_err(|error| store_error(O::WHAT, error.into()))?;
        let answer = operation.run(&mut conn, self.clock.now()).await;
        answer.map_err(|failure| failure.into_store_error(O::WHAT))
    }

    /// Runs an operator's question, which only reads, on a connection of its
    /// own, and gives up when that takes longer than [`LONGEST_QUESTION`]. In
    /// memory it waits in line with the writes.
    pub(crate) async fn inspect<O: Operation>(
        &self,
        operation: O,
    ) -> Result<O::Answer, StoreError> {
        self.inspect_within(LONGEST_QUESTION, operation).await
    }

    pub(super) async fn inspect_within<O: Operation>(
        &self,
        patience: Duration,
        operation: O,
    ) -> Result<O::Answer, StoreError> {
        if self.medium == Medium::Memory {
            return self.write(operation).await;
        }
        self.check_open(O::WHAT)?;
        let failed = |error: sqlx::Error| store_error(O::WHAT, error.into());
        let mut conn = options::reader(&self.options)
            .connect()
            .await
            .map_err(failed)?;
        let deadline = Instant::now() + patience;
        conn.lock_handle()
            .await
            .map_err(failed)?
            .set_progress_handler(STEPS, move || Instant::now() < deadline);
        let answer = operation.run(&mut conn, self.clock.now()).await;
        let closed = conn.close().await;
        let answer = answer.map_err(|failure| failure.into_store_error(O::WHAT))?;
        closed.map_err(failed)?;
        Ok(answer)
    }

    pub(crate) fn check_open(&self, what: &'static str) -> Result<(), StoreError> {
        if self.writer.is_closed() {
            return Err(StoreError::unavailable(what, "the store is closed"));
        }
        Ok(())
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        self.check_open("migrating")?;
        match self.medium {
            Medium::File => {
                let further = options::further(&self.options);
                let (mut conn, _) = options::connect(&further).await?;
                schema::migrate(&mut conn).await
            }
            // It was new when it was opened, and migrated then.
            Medium::Memory => Ok(()),
        }
    }

    pub(crate) async fn close(&self) {
        // The last connection to close takes the log with it.
        let readers = async {
            if let Some(readers) = &self.readers {
                readers.close().await;
            }
        };
        tokio::join!(readers, self.writer.close());
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("identity", &self.identity)
            .field("file", &self.options.get_filename())
            .field(
                "readers",
                &self.readers.as_ref().map_or(0, SqlitePool::size),
            )
            .finish_non_exhaustive()
    }
}
