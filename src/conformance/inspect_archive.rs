//! What an archive tells an operator.

use std::time::Duration;

use jiff::Timestamp;

use super::{Fixture, inspect::by_the_minute, support::*};
use crate::{
    archive::Archive,
    inspect::{InspectArchive, OpenOutcome, OpenQuery, OpenRecord},
    record::Tombstone,
    scope::ScopedKey,
};

const UNKNOWN: u16 = Tombstone::UNKNOWN_OUTCOME;

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time of the suite")
}

/// A tombstone of this window.
fn row(name: &str, status: u16, created_at: Timestamp, expired_at: Timestamp) -> Tombstone {
    Tombstone {
        created_at,
        ..tombstone(name, status, expired_at)
    }
}

async fn open(inspect: &dyn InspectArchive, query: &OpenQuery) -> Vec<OpenRecord> {
    ok(inspect.open_at(query).await, "what was open")
}

async fn keys(inspect: &dyn InspectArchive, query: &OpenQuery) -> Vec<ScopedKey> {
    let records = open(inspect, query).await;
    records.iter().map(|record| record.key).collect()
}

pub(super) async fn an_empty_archive_counts_nothing(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let gauges = ok(inspect.gauges().await, "the gauges");
    same(&gauges.rows, &0, "the rows of the gauges");
    let census = ok(inspect.census().await, "a census");
    same(&census.rows, &0, "the rows");
    let of_months: u64 = census.months.iter().map(|month| month.rows).sum();
    same(&of_months, &0, "the rows of all months");
    let newest = ok(inspect.newest().await, "the newest row");
    same(&newest, &None, "the newest row");
    let history = ok(inspect.history(key("k")).await, "a history");
    same(&history, &Vec::new(), "the rows of an unknown key");
    let since = ok(
        inspect.expired_since(Timestamp::UNIX_EPOCH).await,
        "a count",
    );
    same(&since, &0, "the rows since 1970");
}

pub(super) async fn rows_are_counted_by_month(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let rows = [
        tombstone("last of June", 201, time("2026-06-30T23:59:59.999999Z")),
        tombstone("first of July", UNKNOWN, time("2026-07-01T00:00:00Z")),
        tombstone("in July", 500, time("2026-07-20T12:00:00Z")),
        tombstone("last of the year", 201, time("2026-12-31T23:59:59.999999Z")),
    ];
    insert(&*archive, &rows).await;
    same(
        &ok(inspect.gauges().await, "the gauges").rows,
        &4,
        "the rows of the gauges",
    );
    let census = ok(inspect.census().await, "a census");
    same(&census.rows, &4, "the rows");
    let months: Vec<_> = census
        .months
        .iter()
        .filter(|month| month.rows > 0)
        .map(|month| (month.from, month.until, month.rows))
        .collect();
    let june = time("2026-06-01T00:00:00Z");
    let july = time("2026-07-01T00:00:00Z");
    let august = time("2026-08-01T00:00:00Z");
    let december = time("2026-12-01T00:00:00Z");
    let january = time("2027-01-01T00:00:00Z");
    let expected = [(june, july, 1), (july, august, 2), (december, january, 1)];
    same(&months, &expected.to_vec(), "the rows by month");
}

pub(super) async fn no_column_can_hold_a_payload(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let census = ok(inspect.census().await, "a census");
    let names: Vec<&str> = census
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let expected = vec![
        "scoped_key",
        "fingerprint",
        "status_code",
        "resource_id",
        "created_at",
        "expired_at",
    ];
    if !names.is_empty() {
        same(&names, &expected, "the columns of the archive");
        for column in &census.columns {
            assert!(
                !column.type_name.is_empty(),
                "expected a type, got {column:?}"
            );
        }
    }
}

pub(super) async fn a_key_used_in_two_windows_has_two_rows(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let first = tombstone("k", UNKNOWN, before(now, 40 * DAY));
    let second = tombstone("k", 201, now);
    let other = tombstone("other", 201, before(now, DAY));
    insert(&*archive, &[second.clone(), other, first.clone()]).await;
    let history = ok(inspect.history(first.key).await, "a history");
    same(&history, &vec![first, second], "the rows of the key");
}

pub(super) async fn the_newest_row_is_the_one_that_expired_last(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let now = now(&*fixture.store()).await;
    let newest = row("newest", 201, before(now, 90 * DAY), now);
    let rows = [
        tombstone("middle", 201, before(now, DAY)),
        newest.clone(),
        tombstone("oldest", 201, before(now, 40 * DAY)),
    ];
    insert(&*archive, &rows).await;
    let found = ok(inspect.newest().await, "the newest row");
    same(&found, &Some(newest), "the newest row");
}

pub(super) async fn rows_are_counted_from_a_moment_on(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let from = now(&*fixture.store()).await;
    let a_moment = Duration::from_micros(1);
    let rows = [
        tombstone("before", 201, before(from, a_moment)),
        tombstone("at", 201, from),
        tombstone("after", UNKNOWN, later(from, 40 * DAY)),
    ];
    insert(&*archive, &rows).await;
    let since = ok(inspect.expired_since(from).await, "a count");
    same(&since, &2, "the rows from that moment on");
}

pub(super) async fn archived_rows_were_open_within_their_window(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let at = now(&*fixture.store()).await;
    let a_moment = Duration::from_micros(1);
    let unknown = row(
        "unknown",
        UNKNOWN,
        before(at, 40 * DAY),
        later(at, a_moment),
    );
    let rows = [
        unknown.clone(),
        row("claimed then", UNKNOWN, at, later(at, DAY)),
        row("later", UNKNOWN, later(at, a_moment), later(at, DAY)),
        row("expired by then", UNKNOWN, before(at, DAY), at),
        row(
            "long expired",
            201,
            before(at, 3 * DAY),
            before(at, 2 * DAY),
        ),
    ];
    insert(&*archive, &rows).await;
    let query = OpenQuery {
        at,
        within: MINUTE,
        limit: 100,
    };
    let found = open(inspect, &query).await;
    let expected = OpenRecord {
        key: unknown.key,
        attempt: None,
        created_at: unknown.created_at,
        expires_at: unknown.expired_at,
        status: None,
        resource_id: None,
        outcome: OpenOutcome::Unknown,
    };
    same(&found.first(), &Some(&expected), "the oldest that was open");
    let found: Vec<_> = found.iter().map(|record| record.key).collect();
    let expected = vec![unknown.key, key("claimed then")];
    same(&found, &expected, "what was open");
}

pub(super) async fn an_archived_outcome_may_have_been_open_for_as_long_as_a_request_runs(
    fixture: &dyn Fixture,
) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let at = now(&*fixture.store()).await;
    let (a_moment, expires) = (Duration::from_micros(1), later(at, HOUR));
    let first = row("first", 201, before(at, MINUTE), expires);
    let too_old = before(before(at, MINUTE), a_moment);
    let rows = [
        first.clone(),
        row("last", 500, at, expires),
        row("too old", 201, too_old, expires),
        row("too young", 201, later(at, a_moment), expires),
    ];
    insert(&*archive, &rows).await;
    let query = OpenQuery {
        at,
        within: MINUTE,
        limit: 100,
    };
    let found = open(inspect, &query).await;
    let expected = OpenRecord {
        key: first.key,
        attempt: None,
        created_at: first.created_at,
        expires_at: first.expired_at,
        status: Some(201),
        resource_id: first.resource_id,
        outcome: OpenOutcome::RecordedSometime,
    };
    same(&found.first(), &Some(&expected), "the oldest that was open");
    let found: Vec<_> = found.iter().map(|record| record.key).collect();
    same(&found, &vec![first.key, key("last")], "what was open");
}

pub(super) async fn the_oldest_archived_are_told_first_and_no_more_than_asked(
    fixture: &dyn Fixture,
) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let at = now(&*fixture.store()).await;
    let (mut rows, mut expected) = (Vec::new(), Vec::new());
    for n in 0..6 {
        // What was not open is no part of the number.
        let long_ago = before(at, DAY + n * MINUTE);
        let done = format!("done {n}");
        rows.push(row(&done, 201, long_ago, later(at, n * HOUR + SECOND)));
        let open = format!("open {n}");
        // The younger they are the earlier they expire.
        let (claimed, expires) = (
            before(at, 60 * SECOND - n * SECOND),
            later(at, (9 - n) * DAY),
        );
        rows.push(row(
            &open,
            if n % 2 == 0 { UNKNOWN } else { 201 },
            claimed,
            expires,
        ));
        expected.push(key(&open));
    }
    insert(&*archive, &rows).await;
    let query = OpenQuery {
        at,
        within: MINUTE,
        limit: 100,
    };
    same(&keys(inspect, &query).await, &expected, "what was open");
    let four = OpenQuery { limit: 4, ..query };
    same(
        &keys(inspect, &four).await,
        &expected[..4].to_vec(),
        "the four oldest of it",
    );
}

pub(super) async fn archived_claims_are_counted_by_the_minute(fixture: &dyn Fixture) {
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let Some(inspect) = inspected_archive(fixture, &*archive) else {
        return;
    };
    let from = now(&*fixture.store()).await;
    let at = |seconds| later(from, seconds * SECOND);
    let claims = [at(0), at(59), at(60), at(185), at(186)];
    let mut rows: Vec<_> = (0..)
        .zip(claims)
        .map(|(n, claim)| row(&format!("{n}"), 201, claim, later(claim, (n + 1) * DAY)))
        .collect();
    // A key that was used again counts again, in its own minute.
    rows.push(row("0", UNKNOWN, at(190), later(from, 40 * DAY)));
    rows.push(row("too old", 201, before(from, SECOND), later(from, DAY)));
    rows.push(row("too young", 201, at(300), later(from, 2 * DAY)));
    insert(&*archive, &rows).await;
    let counted = inspect.claimed_per_minute(from, at(300)).await;
    let claims = [at(0), at(59), at(60), at(185), at(186), at(190)];
    same(
        &ok(counted, "the claims per minute"),
        &by_the_minute(&claims),
        "the claims per minute",
    );
}

pub(super) async fn a_swept_record_was_open_as_the_archive_tells_it(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(archive) = archive_of(fixture) else {
        return;
    };
    let archive: &dyn Archive = &*archive;
    let Some(inspect) = inspected_archive(fixture, archive) else {
        return;
    };
    let (cut_off, done) = (archived("cut off"), archived("done"));
    let lease = claim(store, &cut_off).await.claimed("a claim");
    run(store, &done, 201).await;
    let query = OpenQuery {
        at: later(lease.created_at, MINUTE),
        within: HOUR,
        limit: 100,
    };
    same(&keys(inspect, &query).await, &vec![], "before a sweep");
    fixture.advance(TTL).await;
    sweep(store, Some(archive), 100).await;
    let mut found = Vec::new();
    for record in open(inspect, &query).await {
        found.push((record.key, record.status, record.outcome));
    }
    found.sort_by_key(|(_, status, _)| *status);
    let expected = vec![
        (cut_off.key, None, OpenOutcome::Unknown),
        (done.key, Some(201), OpenOutcome::RecordedSometime),
    ];
    same(&found, &expected, "what was open, after a sweep");
}
