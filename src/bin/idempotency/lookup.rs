//! What happened to a key.

use std::process::ExitCode;

use axum_idempotency::{
    ResourceId, ScopedKey, Tombstone,
    inspect::{KeyHistory, LiveRecord, LiveState},
};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Context,
    connect::can_tell,
    fault::Fault,
    key::KeyArgs,
    output::{bytes, line, moment, table, time},
};

/// What happened to a key.
///
/// Its live record and every archived one, in one list by time.
///
/// Exits with 1 when the key is unknown to the store and the archive.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  idempotency lookup --principal acct_42 --key 01JDZ7Q3M8N0T5V6W7X8Y9Z0A1
  TOKEN=… idempotency lookup --bearer-env TOKEN --key order-1234
  idempotency lookup --constant stripe --key evt_1Q2W3E
  idempotency lookup --bearer-env TOKEN --key k --scope endpoint --path /v1/refunds
  idempotency lookup --scoped-key idem:v1:AAAAAAAAAAAAAAAAAAAAAA")]
pub(crate) struct Lookup {
    #[command(flatten)]
    key: KeyArgs,
}

/// Prints the scoped key: the name of a record in tables, archive and logs.
///
/// It needs no store. It is the value for the `scoped_key` of a probe row.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  idempotency scoped-key --principal acct_42 --key probe")]
pub(crate) struct PrintScopedKey {
    #[command(flatten)]
    key: KeyArgs,
}

impl PrintScopedKey {
    pub(crate) fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let key = self.key.scoped()?;
        let document = json!({ "scoped_key": key.to_string() });
        context.output.show(&document, || format!("{key}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Lookup {
    pub(crate) async fn run(&self, context: &Context) -> Result<ExitCode, Fault> {
        let key = self.key.scoped()?;
        let connection = context.open().await?;
        let history = can_tell(&connection)?.key(key).await?;
        connection.close().await;
        let is_known = history.live.is_some() || !history.archived.is_empty();
        let events = events(&history);
        let document = json!({
            "scoped_key": key.to_string(),
            "now": history.now.to_string(),
            "known": is_known,
            "has_archive": connection.archive().is_some(),
            "live": history.live.as_ref().map(|live| live_json(live, history.now)),
            "archived": history.archived.iter().map(archived_json).collect::<Vec<_>>(),
            "events": events.iter().map(Event::json).collect::<Vec<_>>(),
        });
        context.output.show(&document, || {
            if is_known {
                told(key, &events)
            } else if connection.archive().is_some() {
                format!("{key} is known neither to the store nor to the archive\n")
            } else {
                format!("{key} is unknown to the store, and there is no archive\n")
            }
        })?;
        Ok(if is_known {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }
}

/// A moment in the life of a key.
struct Event {
    /// `None` where it is not known when.
    at: Option<Timestamp>,
    /// Where it stands in the list.
    order: Timestamp,
    name: &'static str,
    source: &'static str,
    detail: String,
}

impl Event {
    fn json(&self) -> Value {
        json!({
            "at": time(self.at),
            "event": self.name,
            "source": self.source,
            "detail": self.detail,
        })
    }
}

fn events(history: &KeyHistory) -> Vec<Event> {
    let mut events = Vec::new();
    for row in &history.archived {
        let at = |at, name, detail| Event {
            at: Some(at),
            order: at,
            name,
            source: "archived",
            detail,
        };
        events.push(at(row.created_at, "claimed", String::new()));
        events.push(at(row.expired_at, "expired", outcome_of(row)));
    }
    if let Some(live) = &history.live {
        live_events(live, history.now, &mut events);
    }
    // Stable: what happened in one moment stays in its order.
    events.sort_by_key(|event| event.order);
    events
}

fn live_events(live: &LiveRecord, now: Timestamp, events: &mut Vec<Event>) {
    let mut push = |at: Option<Timestamp>, order, name, detail| {
        events.push(Event {
            at,
            order,
            name,
            source: "live",
            detail,
        });
    };
    let claimed = Some(live.created_at);
    push(claimed, live.created_at, "claimed", String::new());
    match &live.state {
        LiveState::InProgress {
            lease_until,
            speculative,
        } => {
            let mut detail = format!("attempt {}, no outcome", live.attempt);
            if *speculative {
                detail.push_str("; the archive has not been asked yet, so nothing ran");
            }
            let event = if live.has_live_lease(now) {
                "lease_ends"
            } else {
                "lease_lapsed"
            };
            push(Some(*lease_until), *lease_until, event, detail);
        }
        LiveState::Completed {
            completed_at,
            status,
            resource_id,
            kept_bytes,
        } => {
            let mut detail = vec![
                format!("status {status}"),
                format!("attempt {}", live.attempt),
            ];
            detail.extend(
                resource_id
                    .as_ref()
                    .map(|id| format!("resource {}", id.as_str())),
            );
            detail.push(match kept_bytes {
                Some(kept) => format!("{} to replay", bytes(*kept)),
                None => "no answer kept".to_owned(),
            });
            let order = completed_at.unwrap_or(live.created_at);
            push(*completed_at, order, "completed", detail.join(", "));
        }
        _ => {}
    }
    let event = if live.is_expired(now) {
        "expired"
    } else {
        "expires"
    };
    let detail = match event {
        "expired" => "waits for the sweep".to_owned(),
        _ => String::new(),
    };
    push(Some(live.expires_at), live.expires_at, event, detail);
}

fn outcome_of(row: &Tombstone) -> String {
    if !row.has_outcome() {
        return "no outcome was recorded: its effect may have happened".to_owned();
    }
    match &row.resource_id {
        Some(id) => format!("status {}, resource {}", row.status, id.as_str()),
        None => format!("status {}", row.status),
    }
}

fn live_json(live: &LiveRecord, now: Timestamp) -> Value {
    let mut document = json!({
        "attempt": live.attempt,
        "created_at": live.created_at.to_string(),
        "expires_at": live.expires_at.to_string(),
        "is_expired": live.is_expired(now),
    });
    match &live.state {
        LiveState::InProgress {
            lease_until,
            speculative,
        } => {
            document["state"] = json!("in_progress");
            document["lease_until"] = json!(lease_until.to_string());
            document["has_live_lease"] = json!(live.has_live_lease(now));
            document["speculative"] = json!(speculative);
        }
        LiveState::Completed {
            completed_at,
            status,
            resource_id,
            kept_bytes,
        } => {
            document["state"] = json!("completed");
            document["completed_at"] = time(*completed_at);
            document["status"] = json!(status);
            document["resource_id"] = json!(resource_id.as_ref().map(ResourceId::as_str));
            document["kept_bytes"] = json!(kept_bytes);
        }
        _ => document["state"] = json!("unknown"),
    }
    document
}

fn archived_json(row: &Tombstone) -> Value {
    json!({
        "created_at": row.created_at.to_string(),
        "expired_at": row.expired_at.to_string(),
        "outcome": if row.has_outcome() { "completed" } else { "unknown" },
        "status": row.has_outcome().then_some(row.status),
        "resource_id": row.resource_id.as_ref().map(ResourceId::as_str),
    })
}

fn told(key: ScopedKey, events: &[Event]) -> String {
    let mut lines = vec![line(["TIME", "EVENT", "WHERE", ""])];
    for event in events {
        let at = event.at.map_or("time not known".to_owned(), moment);
        let name = event.name.replace('_', " ");
        lines.push(vec![
            at,
            name,
            event.source.to_owned(),
            event.detail.clone(),
        ]);
    }
    format!("{key}\n\n{}", table(&lines))
}
