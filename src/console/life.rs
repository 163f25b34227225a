//! The life of a key, in words and as moments.

use jiff::Timestamp;

use super::text;
use crate::{
    inspect::{KeyHistory, LiveRecord, LiveState},
    record::Tombstone,
};

/// How a key stands.
#[derive(Debug)]
pub(super) struct Verdict {
    pub state: &'static str,
    pub meaning: String,
    /// What a repeat of the request is answered.
    pub repeat: String,
    pub class: &'static str,
}

/// One window in which a key was used.
#[derive(Debug)]
pub(super) struct Window {
    pub name: String,
    pub stops: Vec<Stop>,
    pub facts: Vec<(&'static str, String)>,
}

/// A moment in the life of a key.
#[derive(Debug)]
pub(super) struct Stop {
    pub kind: Kind,
    pub name: String,
    /// `None` where no store keeps it.
    pub at: Option<Timestamp>,
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Claimed,
    Attempt,
    /// The end of a lease under which an attempt runs.
    LeaseUntil,
    /// The end of a lease under which the archive is asked.
    AskedUntil,
    Completed,
    Expires,
    Now,
}

pub(super) fn verdict(history: &KeyHistory) -> Verdict {
    match (&history.live, history.archived.last()) {
        (Some(live), _) => of_live(live, history.now),
        (None, Some(row)) => of_archived(row),
        (None, None) => Verdict {
            state: "Unknown key",
            meaning: "There is neither a live record nor an archived row. Either no request with this key \
                      reached the service; or its claim was given back, since nothing ran or its status \
                      is not kept; or it expired and was swept without an archive, or is past the \
                      archive’s retention; or another caller, secret or scope was meant."
                .to_owned(),
            repeat: "it would run, as a first request.".to_owned(),
            class: "plain",
        },
    }
}

fn of_live(live: &LiveRecord, now: Timestamp) -> Verdict {
    let is_expired = live.is_expired(now);
    let is_leased = live.has_live_lease(now);
    match &live.state {
        LiveState::InProgress {
            speculative: true, ..
        } => of_speculative(is_leased, is_expired),
        LiveState::InProgress { .. } if is_leased => Verdict {
            state: "Running",
            meaning: format!("Attempt {} runs under a live lease.", live.attempt),
            repeat: "409 idempotency_request_in_progress; or it waits for the first, as the policy says."
                .to_owned(),
            class: "busy",
        },
        LiveState::InProgress { .. } if is_expired => Verdict {
            state: "Expired without an outcome, waits for a sweep",
            meaning: "An attempt ran and recorded no outcome. Its effect may have happened: reconcile it."
                .to_owned(),
            repeat: LATE.to_owned(),
            class: "alert",
        },
        LiveState::InProgress { .. } => Verdict {
            state: "Lapsed",
            meaning: format!(
                "Attempt {} ended without an outcome: its process was cut off, or is about to renew its \
                 lease. Its effect may have happened.",
                live.attempt
            ),
            repeat: format!(
                "it takes over and runs again as attempt {}; or 409 idempotency_outcome_unknown where the \
                 policy refuses.",
                live.attempt.saturating_add(1)
            ),
            class: "alert",
        },
        LiveState::Completed { status, .. } if is_expired => Verdict {
            state: "Expired, waits for a sweep",
            meaning: format!("It was completed with status {status}, and its window is over."),
            repeat: LATE.to_owned(),
            class: "plain",
        },
        LiveState::Completed {
            status,
            kept_bytes: Some(_),
            ..
        } => Verdict {
            state: "Completed",
            meaning: format!("The outcome is recorded: status {status}. Its response is kept."),
            repeat: "the recorded response, with Idempotent-Replayed: true.".to_owned(),
            class: "fine",
        },
        LiveState::Completed { status, .. } => Verdict {
            state: "Completed, response not kept",
            meaning: format!(
                "The outcome is recorded: status {status}. Its response was not kept, or has been erased."
            ),
            repeat: "409 idempotency_response_not_kept.".to_owned(),
            class: "fine",
        },
    }
}

/// A claim whose key is old enough that the archive has to be asked first.
fn of_speculative(is_leased: bool, is_expired: bool) -> Verdict {
    let (state, meaning, repeat) = if is_leased {
        (
            "Being looked up in the archive",
            "The key may be a late retry, so the archive is asked first. Nothing has run under this record.",
            "409 idempotency_request_in_progress.",
        )
    } else if is_expired {
        (
            "Expired before the archive had answered",
            "Nothing has run under this record. A sweep removes it and leaves no row.",
            LATE,
        )
    } else {
        (
            "Cut off while the archive was asked",
            "Nothing has run under this record.",
            "it takes over, and the archive is asked again.",
        )
    };
    Verdict {
        state,
        meaning: meaning.to_owned(),
        repeat: repeat.to_owned(),
        class: "busy",
    }
}

fn of_archived(row: &Tombstone) -> Verdict {
    let repeat = "where the policy asks the archive, 409 idempotency_key_expired with what is shown here. \
                  Under the default that is a key that tells its age, a ULID or a UUIDv7; others run again."
        .to_owned();
    if row.has_outcome() {
        Verdict {
            state: "Archived",
            meaning: format!(
                "Its window is over. It was completed with status {}.",
                row.status
            ),
            repeat,
            class: "plain",
        }
    } else {
        Verdict {
            state: "Archived without an outcome",
            meaning: "Its record expired while no outcome was known. Its effect may have happened: reconcile it."
                .to_owned(),
            repeat,
            class: "alert",
        }
    }
}

/// The oldest first.
pub(super) fn windows(history: &KeyHistory) -> Vec<Window> {
    let archived = history.archived.iter();
    let archived = archived.map(|row| archived_window(row, history.now));
    let live = history
        .live
        .iter()
        .map(|live| live_window(live, history.now));
    archived.chain(live).collect()
}

fn archived_window(row: &Tombstone, now: Timestamp) -> Window {
    let outcome = if row.has_outcome() {
        format!(
            "Completed with status {} at a time that is not kept.",
            row.status
        )
    } else {
        "No outcome was recorded.".to_owned()
    };
    let mut stops = vec![
        Stop {
            kind: Kind::Claimed,
            name: "Claimed".to_owned(),
            at: Some(row.created_at),
            note: "The first request with this key.".to_owned(),
        },
        Stop {
            kind: Kind::Expires,
            name: expiry(row.expired_at, now).to_owned(),
            at: Some(row.expired_at),
            note: outcome,
        },
    ];
    add_now(&mut stops, now);
    let status = if row.has_outcome() {
        row.status.to_string()
    } else {
        "none".to_owned()
    };
    Window {
        name: format!("Archived window of {}", text::date(row.created_at)),
        stops,
        facts: vec![
            ("Status", status),
            ("Resource", resource(row.resource_id.as_ref())),
        ],
    }
}

fn live_window(live: &LiveRecord, now: Timestamp) -> Window {
    let mut stops = vec![Stop {
        kind: Kind::Claimed,
        name: "Claimed".to_owned(),
        at: Some(live.created_at),
        note: "The first request with this key.".to_owned(),
    }];
    if live.attempt > 1 {
        stops.push(Stop {
            kind: Kind::Attempt,
            name: format!("Attempt {}", live.attempt),
            at: None,
            note: "Took over from one that had ended without an outcome.".to_owned(),
        });
    }
    let mut facts = vec![("Attempts", live.attempt.to_string())];
    match &live.state {
        LiveState::InProgress {
            lease_until,
            speculative,
        } => stops.push(lease(*lease_until, *speculative, now)),
        LiveState::Completed {
            completed_at,
            status,
            resource_id,
            kept_bytes,
        } => {
            stops.push(Stop {
                kind: Kind::Completed,
                name: "Completed".to_owned(),
                at: *completed_at,
                note: format!("Status {status} was recorded."),
            });
            facts.push(("Status", status.to_string()));
            facts.push(("Resource", resource(resource_id.as_ref())));
            let kept = kept_bytes.map_or_else(
                || "not kept, or erased".to_owned(),
                |bytes| format!("{} kept; never shown here", text::bytes(bytes)),
            );
            facts.push(("Response", kept));
        }
    }
    let expires = Stop {
        kind: Kind::Expires,
        name: expiry(live.expires_at, now).to_owned(),
        at: Some(live.expires_at),
        note: (if live.expires_at <= now {
            "The window of replays is over; a sweep moves the record."
        } else {
            "The window of replays ends; then a sweep moves the record."
        })
        .to_owned(),
    };
    stops.push(expires);
    stops_in_order(&mut stops);
    add_now(&mut stops, now);
    Window {
        name: "Live record".to_owned(),
        stops,
        facts,
    }
}

fn lease(until: Timestamp, is_speculative: bool, now: Timestamp) -> Stop {
    let is_over = until <= now;
    let note = match (is_speculative, is_over) {
        (true, _) => "Nothing runs before the archive has answered.",
        (false, true) => "Nobody renewed it. No outcome was recorded.",
        (false, false) => "Renewed for as long as the attempt runs, up to the policy’s max_lease.",
    };
    Stop {
        kind: if is_speculative {
            Kind::AskedUntil
        } else {
            Kind::LeaseUntil
        },
        name: (if is_over {
            "Lease lapsed"
        } else {
            "Lease until"
        })
        .to_owned(),
        at: Some(until),
        note: note.to_owned(),
    }
}

/// A lease may outlast the expiry. What has no time stays behind its neighbour.
fn stops_in_order(stops: &mut Vec<Stop>) {
    let mut at = None;
    let mut timed: Vec<_> = stops
        .drain(..)
        .map(|stop| {
            at = stop.at.or(at);
            (at, stop)
        })
        .collect();
    timed.sort_by_key(|(at, _)| *at);
    stops.extend(timed.into_iter().map(|(_, stop)| stop));
}

/// Puts the present behind all that is over.
fn add_now(stops: &mut Vec<Stop>, now: Timestamp) {
    let first_ahead = stops
        .iter()
        .position(|stop| stop.at.is_some_and(|at| at > now));
    let mut place = first_ahead.unwrap_or(stops.len());
    // A stop without a time happened before now, or it would not be known.
    while place < stops.len() && stops.get(place).is_some_and(|stop| stop.at.is_none()) {
        place += 1;
    }
    let stop = Stop {
        kind: Kind::Now,
        name: "Now".to_owned(),
        at: Some(now),
        note: "As the store was asked.".to_owned(),
    };
    stops.insert(place, stop);
}

fn expiry(at: Timestamp, now: Timestamp) -> &'static str {
    if at <= now { "Expired" } else { "Expires" }
}

fn resource(id: Option<&crate::record::ResourceId>) -> String {
    id.map_or_else(|| "none known".to_owned(), |id| id.as_str().to_owned())
}

const LATE: &str =
    "409 idempotency_key_expired, where the service has an archive; else it runs again.";
