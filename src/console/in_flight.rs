//! What was in flight at a chosen time: a form, a table, and a file.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use jiff::{Timestamp, civil::DateTime, tz::Offset};
use maud::{Markup, html};

use super::{
    ask::Desk,
    form::{Fields, Wrong},
    page::{Links, Page, Place},
    text,
};
use crate::inspect::{InFlightThen, OpenOutcome, OpenQuery, OpenRecord};

const NAME: &str = "In flight at a moment";
const WRONG: &str = "Error: In flight at a moment";

pub(super) async fn page(
    State(desk): State<Arc<Desk>>,
    links: Links,
    RawQuery(query): RawQuery,
) -> Response {
    let fields = Fields::read(query.unwrap_or_default().as_bytes());
    let page = if fields.has(AT) {
        match Asked::read(&fields, &desk) {
            Ok(asked) => answer(&desk, &links, &fields, &asked).await,
            Err(wrong) => refused(&desk, &links, &fields, &wrong),
        }
    } else {
        let now = desk.now().await.ok();
        page_of(
            StatusCode::OK,
            html! {
                (form(&desk, &links, &fields, None, now))
                p.muted { "Shows what was first claimed at or before that moment and had no outcome by then. Live records and archived ones; nothing of their payload." }
            },
        )
    };
    page.framed(&desk, &links)
}

pub(super) async fn sheet(
    State(desk): State<Arc<Desk>>,
    links: Links,
    RawQuery(query): RawQuery,
) -> Response {
    let fields = Fields::read(query.unwrap_or_default().as_bytes());
    let asked = match Asked::read(&fields, &desk) {
        Ok(asked) => asked,
        Err(wrong) => return refused(&desk, &links, &fields, &wrong).framed(&desk, &links),
    };
    let then = match desk.in_flight(&asked.query()).await {
        Ok(then) => then,
        Err(why) => {
            let again = form(&desk, &links, &fields, None, None);
            let page = Page::unanswered(Place::InFlight, NAME, None, why, &again);
            return page.framed(&desk, &links);
        }
    };
    let name = file_name(&asked, &then);
    match (then.to_csv(), HeaderValue::try_from(name)) {
        (Ok(csv), Ok(name)) => {
            let kind = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
            ([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, name)], csv).into_response()
        }
        (Err(error), _) => {
            tracing::error!(%error, "the console could not write a table");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        (_, Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A table in a file has no place for a remark: that it was cut off stands in
/// its name.
fn file_name(asked: &Asked, then: &InFlightThen) -> String {
    let date = text::date(asked.at);
    let clock = text::clock(asked.at).replace(':', "");
    let cut = if then.is_truncated {
        format!("-first-{}", then.records.len())
    } else {
        String::new()
    };
    format!("attachment; filename=\"in-flight-{date}T{clock}Z{cut}.csv\"")
}

async fn answer(desk: &Desk, links: &Links, fields: &Fields, asked: &Asked) -> Page {
    let again = form(desk, links, fields, None, None);
    match desk.in_flight(&asked.query()).await {
        Ok(then) => page_of(
            StatusCode::OK,
            html! {
                (again)
                (result(&then, asked, links))
            },
        ),
        Err(why) => Page::unanswered(Place::InFlight, NAME, None, why, &again),
    }
}

fn result(then: &InFlightThen, asked: &Asked, links: &Links) -> Markup {
    let count = text::number(then.records.len() as u64);
    html! {
        section aria-labelledby="result" {
            h2 id="result" { "At " (text::time(asked.at)) }
            @if then.is_truncated {
                div.notice role="status" { p { strong { "There are more. " } "Shown are the oldest " (count) ": ask for more records, or a narrower span." } }
            }
            @if then.records.is_empty() {
                p { "Nothing was in flight then, as far as the records that are there tell. What was not kept, or is past the archive’s retention, leaves no trace." }
            } @else {
                div.actions {
                    p { (count) (if then.records.len() == 1 { " record was or may have been" } else { " records were or may have been" }) " in flight." }
                    p { a href={ (links.to("in-flight.csv")) "?" (asked.encoded()) } { "Download as CSV" } }
                }
                @if then.records.iter().any(|record| record.outcome == OpenOutcome::RecordedSometime) {
                    p.muted { "Of a row whose outcome was recorded at an unknown time no more can be told than that it was claimed within " (text::span(asked.query().within)) " of that moment." }
                }
                (table(&then.records, links))
            }
        }
    }
}

fn table(records: &[OpenRecord], links: &Links) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="in-flight-caption" tabindex="0" {
            table.wide {
                caption id="in-flight-caption" { "The oldest first" }
                thead { tr {
                    th scope="col" { "Scoped key" }
                    th scope="col" { "Claimed at (UTC)" }
                    th scope="col" { "Outcome" }
                    th scope="col" { "Status" }
                    th scope="col" { "Resource" }
                    th.number scope="col" { "Attempts" }
                    th scope="col" { "Record" }
                } }
                tbody { @for record in records { tr {
                    th scope="row" { a.mono href={ (links.to("keys/")) (record.key) } { (record.key) } }
                    td { time datetime=(record.created_at) { (text::date(record.created_at)) " " (text::clock(record.created_at)) } }
                    td { (outcome(record)) }
                    td { @match record.status { Some(status) => (status), None => "–" } }
                    td { @match &record.resource_id { Some(id) => code { (id.as_str()) }, None => "–" } }
                    td.number { @match record.attempt { Some(attempt) => (attempt), None => "–" } }
                    td { (record.source()) }
                } } }
            }
        }
    }
}

pub(super) fn outcome(record: &OpenRecord) -> String {
    match record.outcome {
        OpenOutcome::Unknown => "unknown: runs, or was cut off".to_owned(),
        OpenOutcome::RecordedAt(then) => {
            format!("recorded {} {}", text::date(then), text::clock(then))
        }
        OpenOutcome::RecordedSometime => "recorded, not known when".to_owned(),
    }
}

/// What was asked for, judged.
struct Asked {
    at: Timestamp,
    minutes: u32,
    limit: u32,
}

impl Asked {
    fn read(fields: &Fields, desk: &Desk) -> Result<Self, Wrong> {
        let at = moment(fields.text(AT))
            .ok_or_else(|| Wrong::in_field(AT, "Not a time in UTC, such as 2026-12-01T02:14."))?;
        let number = |name, otherwise, most: u32| {
            if !fields.has(name) {
                return Ok(otherwise);
            }
            let number = fields.text(name).parse().ok();
            let number = number.filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| {
                Wrong::in_field(
                    name,
                    format!("A whole number from 1 to {}.", text::number(most.into())),
                )
            })
        };
        Ok(Self {
            at,
            minutes: number(WITHIN, usual_minutes(desk), MOST_MINUTES)?,
            limit: number(LIMIT, USUAL_LIMIT, MOST_RECORDS)?,
        })
    }

    fn query(&self) -> OpenQuery {
        OpenQuery {
            at: self.at,
            within: Duration::from_mins(self.minutes.into()),
            limit: self.limit,
        }
    }

    fn encoded(&self) -> String {
        format!(
            "{AT}={}&{WITHIN}={}&{LIMIT}={}",
            self.at, self.minutes, self.limit
        )
    }
}

/// As a form sends it, without a zone; or with one, as whoever copies it from
/// a log does.
fn moment(typed: &str) -> Option<Timestamp> {
    let with_zone = typed.parse::<Timestamp>().ok();
    with_zone.or_else(|| {
        Offset::UTC
            .to_timestamp(typed.parse::<DateTime>().ok()?)
            .ok()
    })
}

fn usual_minutes(desk: &Desk) -> u32 {
    let minutes = desk.console.within.as_secs().div_ceil(60);
    u32::try_from(minutes)
        .unwrap_or(MOST_MINUTES)
        .clamp(1, MOST_MINUTES)
}

fn refused(desk: &Desk, links: &Links, fields: &Fields, wrong: &Wrong) -> Page {
    let form = form(desk, links, fields, Some(wrong), None);
    let mut page = page_of(StatusCode::UNPROCESSABLE_ENTITY, form);
    page.name = WRONG;
    page
}

fn page_of(status: StatusCode, main: Markup) -> Page {
    Page {
        status,
        place: Some(Place::InFlight),
        name: NAME,
        of: None,
        main,
    }
}

fn form(
    desk: &Desk,
    links: &Links,
    fields: &Fields,
    wrong: Option<&Wrong>,
    now: Option<Timestamp>,
) -> Markup {
    let at = match (moment(fields.text(AT)), now) {
        (Some(at), _) | (None, Some(at)) => format!("{}T{}", text::date(at), text::clock(at)),
        (None, None) => String::new(),
    };
    let typed_or = |name, usual: u32| match fields.text(name) {
        "" => usual.to_string(),
        typed => typed.to_owned(),
    };
    let within = typed_or(WITHIN, usual_minutes(desk));
    let limit = typed_or(LIMIT, USUAL_LIMIT);
    html! {
        form.row method="get" action=(links.to("in-flight")) {
            (field(AT, "Moment (UTC)", "By the store’s clock.", wrong, &html! {
                input type="datetime-local" step="1" id=(AT) name=(AT) value=(at) required
                    aria-describedby=(described(AT, wrong)) aria-invalid=[invalid(AT, wrong)];
            }))
            (field(WITHIN, "Longest request, in minutes", "The longest max_lease.", wrong, &html! {
                input type="number" id=(WITHIN) name=(WITHIN) value=(within) min="1" max=(MOST_MINUTES) required
                    aria-describedby=(described(WITHIN, wrong)) aria-invalid=[invalid(WITHIN, wrong)];
            }))
            (field(LIMIT, "Most records", "The oldest come first.", wrong, &html! {
                input type="number" id=(LIMIT) name=(LIMIT) value=(limit) min="1" max=(MOST_RECORDS) required
                    aria-describedby=(described(LIMIT, wrong)) aria-invalid=[invalid(LIMIT, wrong)];
            }))
            button type="submit" { "Show" }
        }
    }
}

fn field(
    name: &'static str,
    label: &str,
    hint: &str,
    wrong: Option<&Wrong>,
    input: &Markup,
) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            p.hint id={ (name) "-hint" } { (hint) }
            @if let Some(wrong) = wrong.filter(|wrong| wrong.field == name) {
                p.error id={ (name) "-error" } { "Error: " (wrong.message) }
            }
            (input)
        }
    }
}

fn invalid(name: &str, wrong: Option<&Wrong>) -> Option<&'static str> {
    wrong.filter(|wrong| wrong.field == name).map(|_| "true")
}

fn described(name: &str, wrong: Option<&Wrong>) -> String {
    match invalid(name, wrong) {
        Some(_) => format!("{name}-error {name}-hint"),
        None => format!("{name}-hint"),
    }
}

const AT: &str = "at";
const WITHIN: &str = "within";
const LIMIT: &str = "limit";
const USUAL_LIMIT: u32 = 500;
const MOST_RECORDS: u32 = 10_000;
/// A week.
const MOST_MINUTES: u32 = 10_080;
