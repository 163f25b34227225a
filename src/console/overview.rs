//! The overview: the runbook's checklist, counts, and plots.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{
    ask::{Answer, Desk, Unanswered},
    count::{Counted, counted},
    gauges::{Gauge, gauges},
    minutes,
    page::{Links, Page, Place},
    parts, text,
};
use crate::inspect::{ArchiveCensus, StoreCensus};

pub(super) async fn page(State(desk): State<Arc<Desk>>, links: Links) -> Response {
    let page = match counted(&desk).await {
        Some((counted, age)) => of(&counted, age),
        None => Page {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            place: Some(Place::Overview),
            name: NAME,
            of: None,
            main: html! { p { "The count ended early. The log has the cause." } },
        },
    };
    page.framed(&desk, &links)
}

const NAME: &str = "Overview";

fn of(counted: &Counted, age: Duration) -> Page {
    let status = if counted.is_partial() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    Page {
        status,
        place: Some(Place::Overview),
        name: NAME,
        of: None,
        main: html! {
            (when(counted, age))
            section aria-labelledby="checklist" {
                h2 id="checklist" { "Checklist" }
                ul.gauges {
                    @for gauge in gauges(counted) { (card(&gauge)) }
                }
            }
            section aria-labelledby="traffic" {
                h2 id="traffic" { "Keys per minute, the last 24 hours" }
                (answered(&counted.minutes, |minutes| minutes::plot(minutes)))
            }
            div.columns {
                section aria-labelledby="live" {
                    h2 id="live" { "Live records" }
                    (answered(&counted.store, states))
                }
                section aria-labelledby="archive" {
                    h2 id="archive" { "Archive" }
                    (answered(&counted.archive, archive))
                }
            }
            section aria-labelledby="parts" {
                h2 id="parts" { (parts_name(&counted.archive)) }
                (answered(&counted.archive, |archive| parts::table(archive, counted.now.ok())))
            }
        },
    }
}

fn when(counted: &Counted, age: Duration) -> Markup {
    html! {
        @if counted.is_partial() {
            div.notice.bad role="alert" {
                p { strong { "Some of it was not answered." }
                    " What is missing below says why; the rest is as it was counted." }
            }
        }
        p.muted {
            @match counted.now {
                Ok(now) => { "Counted at " (text::time(now)) }
                Err(_) => "Asked"
            }
            @if age < Duration::from_secs(1) { ", just now. " } @else { ", " (text::span(Duration::from_secs(age.as_secs()))) " ago. " }
            "A count is kept for a minute; reload for a newer one."
        }
    }
}

/// A part of the page, or why it is not there.
fn answered<T>(answer: &Answer<T>, part: impl FnOnce(&T) -> Markup) -> Markup {
    match answer {
        Ok(answer) => part(answer),
        Err(why) => missing(*why),
    }
}

fn missing(why: Unanswered) -> Markup {
    html! { p.missing { (why.to_string()) } }
}

fn card(gauge: &Gauge) -> Markup {
    html! {
        li.(gauge.level.class()) {
            div.top {
                h3 { (gauge.name) }
                span.state { span.mark aria-hidden="true" { (gauge.level.mark()) } (gauge.level.words()) }
            }
            p.value { (gauge.value) @if let Some(unit) = gauge.unit { " " span.unit { (unit) } } }
            p.threshold { (gauge.threshold) }
            @if !gauge.note.is_empty() { p.note { (gauge.note) } }
            p.metric { code { (gauge.metric) } }
        }
    }
}

fn states(census: &StoreCensus) -> Markup {
    let rows = [
        ("Running", census.running, "under a live lease"),
        (
            "Lapsed",
            census.lapsed,
            "no outcome, no live lease: cut off",
        ),
        ("Completed", census.completed, "inside their window"),
        ("Expired", census.expired, "wait for a sweep"),
    ];
    html! {
        div.scroll role="region" aria-labelledby="live-caption" tabindex="0" {
            table {
                caption.hidden id="live-caption" { "Live records by state" }
                thead { tr { th scope="col" { "State" } th.number scope="col" { "Records" } th scope="col" { "Meaning" } } }
                tbody {
                    @for (state, records, meaning) in rows {
                        tr { th scope="row" { (state) } td.number { (text::number(records)) } td { (meaning) } }
                    }
                }
                tfoot { tr { th scope="row" { "All" } td.number { (text::number(census.records())) } td {} } }
            }
        }
        dl.facts {
            dt { "Size" }
            dd { (size(census.bytes)) }
            dt { "Published TTLs" }
            dd {
                @match census.ttls {
                    None => "none",
                    Some(ttls) if ttls.smallest == ttls.largest => { (text::span(ttls.smallest)) }
                    Some(ttls) => { (text::span(ttls.smallest)) " to " (text::span(ttls.largest)) }
                }
            }
        }
    }
}

fn archive(census: &ArchiveCensus) -> Markup {
    html! {
        dl.facts {
            dt { "Rows" }
            dd { (text::number(census.rows)) }
            dt { "Size" }
            dd { (size(census.bytes)) }
            dt { (if census.is_partitioned { "Partitions" } else { "Months" }) }
            dd { (text::number(census.months.len() as u64)) }
            @if !census.columns.is_empty() {
                dt { "Columns" }
                dd { @for (at, column) in census.columns.iter().enumerate() {
                    @if at > 0 { ", " }
                    code { (column.name) } " " (column.type_name)
                } }
            }
        }
        p.muted { "Rows and sizes of a large archive are estimates." }
    }
}

fn parts_name(archive: &Answer<ArchiveCensus>) -> &'static str {
    match archive {
        Ok(archive) if archive.is_partitioned => "Partitions",
        _ => "Archive by month",
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "not known".to_owned(), text::bytes)
}
