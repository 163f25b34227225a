//! Moves expired records into the archive.

use std::{io, process::ExitCode, time::Duration};

use axum_idempotency::{Sweeper, Swept, connect::Connection};
use clap::Args;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context,
    connect::RetentionArgs,
    fault::Fault,
    output::{count, moment},
    partitions::longest_ttl,
    progress,
    time::{DAY, duration},
};

/// Moves expired records into the archive, until none is left.
///
/// With --retention it deletes archived rows that are past it, too.
///
/// Any number of sweepers may run over one store. Where no archive goes with
/// the store, expired records would be deleted, and with them all evidence:
/// `ARCHIVE_URL` has to be `none` to say that this is meant.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  idempotency sweep
  idempotency sweep --watch --every 30s --retention 7years")]
pub(crate) struct Sweep {
    /// Goes on until SIGINT or SIGTERM, sweeping again and again.
    #[arg(long)]
    pub(crate) watch: bool,

    /// Sweeps once: the default.
    #[arg(long, conflicts_with = "watch")]
    once: bool,

    /// The most records that are moved in one transaction.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// How long to rest between two sweeps, with --watch.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    every: Duration,

    #[command(flatten)]
    retention: RetentionArgs,
}

impl Sweep {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let mut options = context.connect.options();
        if let Some(retention) = self.retention.retention {
            options = options.retention(retention);
        }
        let connection = context.open_with(&options).await?;
        if connection.archive().is_none() && context.connect.archive_url() != Some("none") {
            return Err(Fault::new(
                "no archive goes with this store, and expired records would be deleted: name one \
                 in ARCHIVE_URL, or set it to none",
            ));
        }
        if self.watch {
            self.watch(context, &connection).await?;
        } else {
            self.sweep_once(context, &connection).await?;
        }
        connection.close().await;
        Ok(ExitCode::SUCCESS)
    }

    async fn sweep_once(&self, context: &Context, connection: &Connection) -> Result<(), Fault> {
        let sweeper = self.sweeper(connection).await?;
        let inspector = connection.inspector();
        let store = inspector.inspected_store();
        let swept = progress::until_swept("sweeping", store, sweeper.sweep_once()).await?;
        let document = document(connection, swept);
        context
            .output
            .show(&document, || told(connection, swept) + "\n")?;
        Ok(())
    }

    async fn watch(&self, context: &Context, connection: &Connection) -> Result<(), Fault> {
        let mut stop = std::pin::pin!(stop_signal()?);
        tracing::info!(every = ?self.every, "sweeping");
        let mut sweeper = None;
        let mut since = Instant::now();
        loop {
            // A batch under way is finished by the store or left undone.
            let rest = tokio::select! {
                () = &mut stop => break,
                swept = self.sweep_again(connection, &mut sweeper, &mut since) => match swept {
                    Ok(swept) => {
                        let mut line = document(connection, swept);
                        let now = connection.store().now().await;
                        if let Ok(now) = &now {
                            line["at"] = json!(now.to_string());
                        }
                        context.output.show_line(&line, || {
                            let at = now.map_or("-".to_owned(), moment);
                            format!("{at}  {}", told(connection, swept))
                        })?;
                        self.every
                    }
                    Err(fault) => {
                        tracing::error!(error = %fault, "sweep failed: it is tried again");
                        self.every.min(LONGEST_REST_AFTER_ERROR)
                    }
                },
            };
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(rest.max(SHORTEST_REST)) => {}
            }
        }
        tracing::info!("stopped");
        Ok(())
    }

    /// A TTL may be raised while this runs, and partitions have to be there for
    /// it.
    async fn sweep_again(
        &self,
        connection: &Connection,
        sweeper: &mut Option<Sweeper>,
        since: &mut Instant,
    ) -> Result<Swept, Fault> {
        if sweeper.is_none() || since.elapsed() >= DAY {
            *sweeper = Some(self.sweeper(connection).await?);
            *since = Instant::now();
        }
        match sweeper {
            Some(sweeper) => Ok(sweeper.sweep_once().await?),
            None => Ok(Swept::default()),
        }
    }

    async fn sweeper(&self, connection: &Connection) -> Result<Sweeper, Fault> {
        let sweeper = Sweeper::new_dyn(connection.store())
            .batch(self.batch)
            .longest_ttl(longest_ttl(connection).await?);
        Ok(match connection.archive() {
            Some(archive) => sweeper.archive_dyn(archive),
            None => sweeper,
        })
    }
}

fn document(connection: &Connection, swept: Swept) -> Value {
    let has_archive = connection.archive().is_some();
    json!({
        "archived": if has_archive { swept.archived } else { 0 },
        "deleted": if has_archive { 0 } else { swept.archived },
        "pruned": swept.pruned,
    })
}

fn told(connection: &Connection, swept: Swept) -> String {
    let moved = count(swept.archived);
    let text = match connection.archive() {
        Some(_) => format!("swept: archived {moved} records"),
        None => format!("swept: deleted {moved} records, without an archive"),
    };
    if swept.pruned == 0 {
        return text;
    }
    let pruned = count(swept.pruned);
    format!("{text}, deleted {pruned} archived rows past the retention")
}

/// Resolves when the process is asked to stop.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Resolves when the process is asked to stop.
#[cfg(not(unix))]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a handler the process ends at once, which is safe too.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

const SHORTEST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST_AFTER_ERROR: Duration = Duration::from_secs(10);
