//! What months leave: rows in every partition, and a day with a peak.

use std::time::Duration;

use axum_idempotency::{ResourceId, Tombstone, archive::Archive as _};
use jiff::Timestamp;

use super::stage::{Stage, night};
use crate::support::attempt::{fingerprint, key};

pub(super) async fn goes_through(stage: &Stage) {
    let mut rows = Vec::new();
    let begin = night() - 150 * DAY;
    let prepared = stage.archive.prepare(begin, night() + 60 * DAY).await;
    prepared.expect("there is room");
    // Growing months before the last day.
    for day in 2..140_u32 {
        for at in 0..60 - day / 4 {
            let claimed = night() - day * DAY + at * Duration::from_mins(20);
            rows.push(row(rows.len(), claimed, 24));
        }
    }
    for minute in 0..24 * 60 {
        for at in 0..keys_in(minute) {
            let claimed = night() - DAY + minute * Duration::from_mins(1);
            rows.push(row(
                rows.len(),
                claimed + at * Duration::from_millis(100),
                1,
            ));
        }
    }
    for some in rows.chunks(2_000) {
        stage.archive.insert(some).await.expect("it answers");
    }
}

/// Quiet at night, busy by day, with a peak at 20:10 and an outage at 14:00.
fn keys_in(minute: u32) -> u32 {
    let of_day = (minute + 134) % (24 * 60);
    let hour = of_day / 60;
    let base = match hour {
        0..6 => 2,
        6..9 => 5 + (hour - 6) * 2,
        9..18 => 14,
        18..23 => 11,
        _ => 5,
    };
    let noise = (minute * 2_654_435).rotate_left(minute % 31) % 6;
    match of_day {
        840..852 => 0,
        1_200..1_230 => base + 40 - (of_day % 30) + noise,
        _ => base + noise,
    }
}

fn row(number: usize, claimed: Timestamp, hours: u64) -> Tombstone {
    let status = match number % 97 {
        0 => Tombstone::UNKNOWN_OUTCOME,
        1..4 => 402,
        _ => 201,
    };
    Tombstone {
        key: key(number),
        fingerprint: fingerprint(1),
        status,
        resource_id: ResourceId::new(&format!("ch_{number:012x}"))
            .filter(|_| status != Tombstone::UNKNOWN_OUTCOME),
        created_at: claimed,
        expired_at: claimed + Duration::from_hours(hours),
    }
}

const DAY: Duration = Duration::from_hours(24);
