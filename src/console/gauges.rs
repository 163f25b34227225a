//! The six gauges of the runbook's checklist against their thresholds. Three of
//! them only the metrics of the processes know; of those the console shows what
//! it can ask itself, and says so.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    ask::{Answer, Unanswered},
    count::Counted,
    text,
};
use crate::inspect::ArchiveGauges;

/// One gauge, in words.
#[derive(Debug)]
pub(super) struct Gauge {
    pub name: &'static str,
    pub metric: &'static str,
    pub level: Level,
    pub value: String,
    pub unit: Option<&'static str>,
    pub threshold: &'static str,
    pub note: String,
}

/// What a gauge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Inside its threshold.
    Fine,
    /// Past it.
    Alert,
    /// Only the metrics tell.
    Elsewhere,
    /// There is no such thing here.
    NotHere,
    /// Nobody answered.
    Unknown,
}

impl Level {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Fine => "OK",
            Self::Alert => "Alert",
            Self::Elsewhere => "See the metric",
            Self::NotHere => "Not applicable",
            Self::Unknown => "No answer",
        }
    }

    pub(super) fn mark(self) -> &'static str {
        match self {
            Self::Fine => "✓",
            Self::Alert => "▲",
            Self::Elsewhere => "→",
            Self::NotHere => "–",
            Self::Unknown => "?",
        }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Alert => "alert",
            Self::Elsewhere | Self::NotHere => "plain",
            Self::Unknown => "unknown",
        }
    }
}

pub(super) fn gauges(counted: &Counted) -> [Gauge; 6] {
    [
        backlog(counted),
        archived(counted),
        newest_partition(counted),
        late_retries(),
        lookups(&counted.lookup),
        archive_bytes(&counted.gauges),
    ]
}

fn backlog(counted: &Counted) -> Gauge {
    let gauge = Gauge {
        name: "Expired backlog",
        metric: "idempotency_expired_backlog",
        level: Level::Fine,
        value: String::new(),
        unit: Some("rows"),
        threshold: "Alert above 100,000",
        note: String::new(),
    };
    match counted.backlog {
        Ok(rows) => Gauge {
            level: if rows > MOST_BACKLOG {
                Level::Alert
            } else {
                Level::Fine
            },
            value: text::number(rows),
            note: oldest_expired(counted).map_or_else(String::new, |waits| {
                format!("The oldest waits for {}.", text::span(waits))
            }),
            ..gauge
        },
        Err(why) => unanswered(&gauge, why),
    }
}

fn archived(counted: &Counted) -> Gauge {
    let gauge = Gauge {
        name: "Archived",
        metric: "idempotency_archived_total",
        level: Level::Elsewhere,
        value: String::new(),
        unit: Some("in the last day"),
        threshold: "Alert when flat while the backlog grows",
        note: "Rows that expired in the last 24 h and are archived.".to_owned(),
    };
    let waits = oldest_expired(counted).filter(|waits| *waits > LONGEST_WAIT);
    match (counted.archived_in_a_day, waits) {
        (Err(Unanswered::CannotTell), _) => without_archive(&gauge, &counted.lookup),
        (Err(why), _) => unanswered(&gauge, why),
        (Ok(rows), None) => Gauge {
            value: text::number(rows),
            ..gauge
        },
        (Ok(rows), Some(waits)) => Gauge {
            level: Level::Alert,
            value: text::number(rows),
            note: format!(
                "An expired row waits for {}: does a sweeper run?",
                text::span(waits)
            ),
            ..gauge
        },
    }
}

fn newest_partition(counted: &Counted) -> Gauge {
    let gauge = Gauge {
        name: "Newest partition",
        metric: "idempotency_archive_newest_partition_days",
        level: Level::Fine,
        value: String::new(),
        unit: Some("days ahead"),
        threshold: "Page below 30 days",
        note: String::new(),
    };
    let has_none = matches!(&counted.archive, Ok(archive) if archive.is_partitioned && archive.months.is_empty());
    match (counted.gauges, counted.now) {
        (Err(Unanswered::CannotTell), _) => without_archive(&gauge, &counted.lookup),
        (Err(why), _) | (_, Err(why)) => unanswered(&gauge, why),
        (Ok(_), Ok(_)) if has_none => Gauge {
            level: Level::Alert,
            value: "None".to_owned(),
            unit: None,
            note: "No row can be archived.".to_owned(),
            ..gauge
        },
        (Ok(gauges), Ok(now)) => match gauges.newest_partition_until {
            None => Gauge {
                level: Level::NotHere,
                value: "–".to_owned(),
                unit: None,
                note: "The archive has no partitions: there is room for any row.".to_owned(),
                ..gauge
            },
            Some(until) => days_left(&gauge, now, until),
        },
    }
}

fn days_left(gauge: &Gauge, now: Timestamp, until: Timestamp) -> Gauge {
    let left = until.duration_since(now);
    let tenths = left.as_secs().div_euclid(SECONDS_OF_A_DAY / 10);
    let sign = if tenths < 0 { "−" } else { "" };
    let size = tenths.unsigned_abs();
    Gauge {
        level: if left < FEWEST_DAYS {
            Level::Alert
        } else {
            Level::Fine
        },
        value: format!("{sign}{}.{}", text::number(size / 10), size % 10),
        note: format!(
            "There is room for what expires before {}.",
            text::date(until)
        ),
        ..*gauge
    }
}

fn late_retries() -> Gauge {
    Gauge {
        name: "Late retries refused",
        metric: "idempotency_expired_replay_total",
        level: Level::Elsewhere,
        value: "–".to_owned(),
        unit: None,
        threshold: "Non-zero: clients retry past their window",
        note: "No store counts them: each process does.".to_owned(),
    }
}

fn lookups(lookup: &Answer<Option<Duration>>) -> Gauge {
    let gauge = Gauge {
        name: "Archive lookup, p99",
        metric: "idempotency_archive_lookup_duration_ms",
        level: Level::Elsewhere,
        value: String::new(),
        unit: Some("one lookup just now"),
        threshold: "Alert when the p99 exceeds 5 ms",
        note: "One lookup is no p99: each process has those.".to_owned(),
    };
    match lookup {
        Ok(Some(took)) => Gauge {
            value: milliseconds(*took),
            ..gauge
        },
        Ok(None) => not_here(&gauge),
        Err(why) => unanswered(&gauge, *why),
    }
}

fn archive_bytes(gauges: &Answer<ArchiveGauges>) -> Gauge {
    let gauge = Gauge {
        name: "Archive size",
        metric: "idempotency_archive_bytes",
        level: Level::NotHere,
        value: "–".to_owned(),
        unit: None,
        threshold: "About 210 bytes a row with its key; alert above 420",
        note: String::new(),
    };
    let gauges = match gauges {
        Ok(gauges) => gauges,
        Err(Unanswered::CannotTell) => return not_here(&gauge),
        Err(why) => return unanswered(&gauge, *why),
    };
    let Some(bytes) = gauges.bytes else {
        return Gauge {
            note: "The archive cannot tell its size.".to_owned(),
            ..gauge
        };
    };
    let value = text::bytes(bytes);
    if gauges.rows < FEWEST_ROWS {
        return Gauge {
            value,
            note: format!(
                "{} rows: too few to tell the bytes of one.",
                text::number(gauges.rows)
            ),
            ..gauge
        };
    }
    let a_row = bytes / gauges.rows;
    Gauge {
        level: if a_row > MOST_BYTES_A_ROW {
            Level::Alert
        } else {
            Level::Fine
        },
        value,
        note: format!(
            "{} bytes a row in {} rows.",
            text::number(a_row),
            text::number(gauges.rows)
        ),
        ..gauge
    }
}

fn oldest_expired(counted: &Counted) -> Option<Duration> {
    let census = counted.store.as_ref().ok()?;
    let waits = census.now.duration_since(census.oldest_expired?);
    Duration::try_from(waits).ok()
}

fn milliseconds(took: Duration) -> String {
    let hundredths = took.as_micros() / 10;
    format!("{}.{:02} ms", hundredths / 100, hundredths % 100)
}

/// Without an archive, or with one that has no view for operators.
fn without_archive(gauge: &Gauge, lookup: &Answer<Option<Duration>>) -> Gauge {
    match lookup {
        Ok(None) => not_here(gauge),
        _ => unanswered(gauge, Unanswered::CannotTell),
    }
}

fn not_here(gauge: &Gauge) -> Gauge {
    Gauge {
        level: Level::NotHere,
        value: "–".to_owned(),
        unit: None,
        note: "There is no archive that tells it.".to_owned(),
        ..*gauge
    }
}

fn unanswered(gauge: &Gauge, why: Unanswered) -> Gauge {
    Gauge {
        level: match why {
            Unanswered::CannotTell => Level::NotHere,
            Unanswered::TooSlow(_) | Unanswered::Failed(_) => Level::Unknown,
        },
        value: "–".to_owned(),
        unit: None,
        note: why.to_string(),
        ..*gauge
    }
}

// The thresholds of the runbook's checklist.
const MOST_BACKLOG: u64 = 100_000;
const FEWEST_DAYS: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Twice what a row was measured to take up with its primary key, as the alert has
/// it.
const MOST_BYTES_A_ROW: u64 = 420;
/// Below that, empty pages and not rows make the size.
const FEWEST_ROWS: u64 = 10_000;
/// A sweeper that is well moves a row minutes after its expiry.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
const SECONDS_OF_A_DAY: i64 = 86_400;
