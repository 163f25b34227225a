//! Makes the tables, or brings them up to date.

use std::process::ExitCode;

use axum_idempotency::connect::Backend;
use clap::Args;
use serde_json::json;

use super::{
    Context,
    fault::Fault,
    partitions::{names, prepare, room_needed},
};

/// Makes the tables, or brings them up to date.
///
/// Those of the store and the archive, and the partitions of what expires next.
///
/// It may be repeated at any time, beside running services. No other command
/// changes tables. Redis has none.
#[derive(Args, Debug)]
#[command(after_help = "\
Example, before a deploy:
  STORE_URL=postgres://owner@db/shop idempotency migrate")]
pub(crate) struct Migrate {}

impl Migrate {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let as_it_is = context.open().await;
        let was_up_to_date = as_it_is.is_ok();
        if let Ok(connection) = as_it_is {
            connection.close().await;
        }
        let options = context.connect.options().migrate(true);
        let connection = context.open_with(&options).await?;
        let mut partitions = None;
        if connection.archive().is_some() {
            let until = room_needed(&connection, ROOM).await?;
            prepare(&connection, until).await?;
            partitions = names(&connection).await?;
        }
        let (store, archive) = (connection.store_backend(), connection.archive_backend());
        connection.close().await;
        let document = json!({
            "was_up_to_date": was_up_to_date,
            "store_backend": store.as_str(),
            "archive_backend": archive.map(Backend::as_str),
            "partitions": partitions,
        });
        context.output.show(&document, || {
            let done = if was_up_to_date {
                "was up to date"
            } else {
                "is up to date now"
            };
            let archive = match (archive, &partitions) {
                (None, _) => "archive: none\n".to_owned(),
                (Some(archive), None) => {
                    format!("archive in {}: needs no partitions\n", archive.as_str())
                }
                (Some(archive), Some(names)) => format!(
                    "archive in {}: {} partitions, {} through {}\n",
                    archive.as_str(),
                    names.len(),
                    names.first().map_or("-", String::as_str),
                    names.last().map_or("-", String::as_str),
                ),
            };
            format!("store in {}: {done}\n{archive}", store.as_str())
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// In months past the longest TTL, as a sweeper makes them.
const ROOM: u32 = 2;
