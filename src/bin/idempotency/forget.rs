//! Erases what was answered under a key.

use std::process::ExitCode;

use axum_idempotency::inspect::{KeyHistory, LiveState};
use clap::Args;
use serde_json::json;

use super::{
    Context,
    connect::{can_tell, inspected_store},
    fault::Fault,
    key::KeyArgs,
    output::bytes,
};

/// Erases the stored answer of a key, and keeps its record.
///
/// Its headers and body go. A repeat still does not run again, and is told that
/// the answer was not kept.
///
/// Without --yes it only says what would be erased. The archive holds no answer
/// at all. Exits with 1 when the key is unknown, or still running so that its
/// answer is yet to come.
#[derive(Args, Debug)]
#[command(after_help = "\
Backups, replicas and the database's own logs keep the answer until they are \
rotated.

Example:
  idempotency forget --principal acct_42 --key order-1234 --yes")]
pub(crate) struct Forget {
    #[command(flatten)]
    key: KeyArgs,

    /// Erases. Without it nothing is changed.
    #[arg(long)]
    yes: bool,
}

impl Forget {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let key = self.key.scoped()?;
        let connection = context.open().await?;
        let inspector = can_tell(&connection)?;
        let found = Found::of(&inspector.key(key).await?);
        let mut erased = false;
        if let (Found::Kept(_), true) = (found, self.yes) {
            erased = inspected_store(&inspector)?.erase_response(key).await?;
        }
        connection.close().await;
        let document = json!({
            "scoped_key": key.to_string(),
            "state": found.state(),
            "dry_run": !self.yes,
            "erased": erased,
            "kept_bytes": match found {
                Found::Kept(kept) => Some(kept),
                _ => None,
            },
        });
        context.output.show(&document, || match found {
            Found::Kept(kept) if erased => format!(
                "erased headers and body ({}) of {key} from the live store; the record stays. \
                 Backups, replicas and the database's logs keep them until they are rotated.\n",
                bytes(kept)
            ),
            Found::Kept(_) if self.yes => {
                format!("{key} was swept or erased meanwhile: no answer is left\n")
            }
            Found::Kept(kept) => format!(
                "would erase headers and body ({}) of {key}, and keep the record; nothing was \
                 changed: repeat it with --yes\n",
                bytes(kept)
            ),
            Found::NotKept => format!("no answer of {key} is stored: nothing to erase\n"),
            Found::Archived => {
                format!("{key} is archived, and the archive holds no answer: nothing to erase\n")
            }
            Found::Running => {
                format!("{key} has no outcome yet: its answer may still come, so ask again later\n")
            }
            Found::Nothing => format!("{key} is unknown to the store\n"),
        })?;
        Ok(match found {
            Found::Running | Found::Nothing => ExitCode::from(1),
            Found::Kept(_) | Found::NotKept | Found::Archived => ExitCode::SUCCESS,
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Found {
    /// So many bytes.
    Kept(u64),
    NotKept,
    Running,
    Archived,
    Nothing,
}

impl Found {
    fn of(history: &KeyHistory) -> Self {
        let live = history.live.as_ref().map(|live| &live.state);
        match live {
            Some(LiveState::Completed {
                kept_bytes: Some(kept),
                ..
            }) => Self::Kept(*kept),
            Some(LiveState::Completed { .. }) => Self::NotKept,
            Some(_) => Self::Running,
            None if history.archived.is_empty() => Self::Nothing,
            None => Self::Archived,
        }
    }

    fn state(self) -> &'static str {
        match self {
            Self::Kept(_) | Self::NotKept => "completed",
            Self::Running => "in_progress",
            Self::Archived => "archived",
            Self::Nothing => "unknown",
        }
    }
}
