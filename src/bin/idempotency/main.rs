//! The command `idempotency`: what happened to this key, what was in flight at
//! 02:14, is all as it should be, and the chores around it.

mod connect;
mod fault;
mod forget;
mod in_flight;
mod key;
mod lookup;
mod migrate;
mod output;
mod partitions;
mod probe;
mod progress;
mod retire;
mod stats;
mod sweep;
mod time;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::{connect::ConnectArgs, fault::Fault, output::Output};

/// Looks after the idempotency keys of axum-idempotency: records, archive,
/// partitions.
///
/// It never prints a client's key, a principal, a body or a password.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    /// Prints one JSON document on standard output; `sweep --watch` prints one
    /// JSON object a line. Times are RFC 3339 in UTC.
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    connect: ConnectArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Migrate(migrate::Migrate),
    Stats(stats::Stats),
    Sweep(sweep::Sweep),
    /// The partitions of the archive, one a calendar month (UTC).
    #[command(subcommand)]
    Partitions(partitions::Partitions),
    Lookup(lookup::Lookup),
    ScopedKey(lookup::PrintScopedKey),
    InFlight(in_flight::InFlight),
    Forget(forget::Forget),
    Verify(verify::Verify),
}

/// What a command goes by.
#[derive(Debug)]
struct Context {
    connect: ConnectArgs,
    output: Output,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let watches = matches!(&cli.command, Command::Sweep(sweep) if sweep.watch);
    output::log(if watches { "info" } else { "error" });
    let context = Context {
        connect: cli.connect,
        output: Output { json: cli.json },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let ran = match runtime {
        Ok(runtime) => runtime.block_on(run(cli.command, &context)),
        Err(error) => Err(Fault::caused_by("no runtime could be started", error)),
    };
    ran.unwrap_or_else(Fault::exit)
}

async fn run(command: Command, context: &Context) -> Result<ExitCode, Fault> {
    match command {
        Command::Migrate(migrate) => migrate.run(context).await,
        Command::Stats(stats) => stats.run(context).await,
        Command::Sweep(sweep) => sweep.run(context).await,
        Command::Partitions(partitions) => partitions.run(context).await,
        Command::Lookup(lookup) => lookup.run(context).await,
        Command::ScopedKey(print) => print.run(context),
        Command::InFlight(in_flight) => in_flight.run(context).await,
        Command::Forget(forget) => forget.run(context).await,
        Command::Verify(verify) => verify.run(context).await,
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 when all is well; 1 when `verify` finds a fault, `lookup` knows \
no such key, or `forget` could not erase; 2 on an error, which is told on \
standard error.

Examples:
  export STORE_URL=postgres://shop:secret@db/shop
  idempotency migrate
  idempotency stats
  idempotency in-flight --at 2026-12-01T02:14:00Z
  idempotency lookup --principal acct_42 --key 01JDZ7Q3M8N0T5V6W7X8Y9Z0A1
  STORE_URL=redis://cache ARCHIVE_URL=postgres://db/audit idempotency verify";
