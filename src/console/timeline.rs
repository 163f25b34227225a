//! A window drawn as a rail, and told as a list.
//!
//! A request takes milliseconds and its window days, so the stops stand at equal
//! distances, with what lies between them written below.

use jiff::Timestamp;
use maud::{Markup, html};

use super::{
    life::{Kind, Stop, Window},
    text,
};

pub(super) fn window(window: &Window, at: usize, now: Timestamp) -> Markup {
    let id = format!("window-{at}");
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (window.name) }
            figure { (rail_across(&window.stops, now)) (rail_down(&window.stops, now)) }
            ol.events {
                @for stop in &window.stops {
                    li {
                        strong { (stop.name) } " "
                        @match stop.at {
                            Some(at) if stop.kind == Kind::Now => { (text::time(at)) ". " },
                            Some(at) => { (text::time(at)) ", " (text::relative(at, now)) ". " },
                            None => "at a time that is not kept. ",
                        }
                        span.muted { (stop.note) }
                    }
                }
            }
            dl.facts {
                @for (name, value) in &window.facts { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// From left to right.
fn rail_across(stops: &[Stop], now: Timestamp) -> Markup {
    let gaps = stops.len().saturating_sub(1).max(1);
    html! {
        svg.rail.across role="img" aria-label=(in_words(stops)) {
            @for (at, pair) in stops.windows(2).enumerate() {
                line.way.(way(stops, at, now)) x1=(across(at, gaps)) x2=(across(at + 1, gaps)) y1=(RAIL) y2=(RAIL) {}
                @if let Some(distance) = distance(pair) {
                    text x=(between(at, gaps)) y="56" text-anchor="middle" { (distance) }
                }
            }
            @for (at, stop) in stops.iter().enumerate() {
                @let x = across(at, gaps);
                @let anchor = anchor(at, gaps);
                @if stop.kind == Kind::Now {
                    line.now x1=(x) x2=(x) y1=(RAIL - 11) y2=(RAIL + 11) {}
                } @else {
                    circle.(dot(stop, now)) cx=(x) cy=(RAIL) r="7" {}
                }
                text.name x=(x) y="14" text-anchor=(anchor) { (stop.name) }
                text x=(x) y="80" text-anchor=(anchor) { (stop.at.map_or_else(|| "time not".to_owned(), text::clock)) }
                text x=(x) y="96" text-anchor=(anchor) { (stop.at.map_or_else(|| "kept".to_owned(), text::date)) }
            }
        }
    }
}

/// From above, where there is no room for five stops side by side.
fn rail_down(stops: &[Stop], now: Timestamp) -> Markup {
    let height = (stops.len().saturating_sub(1)) * STEP + 2 * MARGIN;
    let y = |at: usize| MARGIN + at * STEP;
    html! {
        svg.rail.down role="img" aria-label=(in_words(stops)) height=(height) {
            @for (at, pair) in stops.windows(2).enumerate() {
                line.way.(way(stops, at, now)) x1=(DOWN) x2=(DOWN) y1=(y(at)) y2=(y(at + 1)) {}
                @if let Some(distance) = distance(pair) {
                    text x=(DOWN + 20) y=(y(at) + STEP / 2 + 4) { (distance) }
                }
            }
            @for (at, stop) in stops.iter().enumerate() {
                @if stop.kind == Kind::Now {
                    line.now x1=(DOWN - 11) x2=(DOWN + 11) y1=(y(at)) y2=(y(at)) {}
                } @else {
                    circle.(dot(stop, now)) cx=(DOWN) cy=(y(at)) r="7" {}
                }
                text.name x=(DOWN + 20) y=(y(at) + 4) { (stop.name) }
                text x="100%" y=(y(at) + 4) text-anchor="end" {
                    @match stop.at {
                        Some(time) => { (text::date(time)) " " (text::clock(time)) }
                        None => "time not kept"
                    }
                }
            }
        }
    }
}

/// Whether an attempt ran along the way behind a stop, and whether it is ahead.
fn way(stops: &[Stop], at: usize, now: Timestamp) -> &'static str {
    let is_end_of_run = |stop: &Stop| matches!(stop.kind, Kind::Completed | Kind::LeaseUntil);
    let has_run_ahead = stops.iter().skip(at + 1).any(is_end_of_run);
    let is_past = stops
        .get(at + 1)
        .is_some_and(|stop| stop.at.is_none_or(|end| end <= now));
    match (has_run_ahead, is_past) {
        (true, true) => "ran",
        (true, false) => "ran ahead",
        (false, true) => "kept",
        (false, false) => "ahead",
    }
}

fn dot(stop: &Stop, now: Timestamp) -> &'static str {
    match stop.at {
        Some(at) if at <= now => "full",
        _ => "hollow",
    }
}

fn in_words(stops: &[Stop]) -> String {
    let words = stops.iter().map(|stop| match stop.at {
        Some(at) => format!("{} {} {} UTC", stop.name, text::date(at), text::clock(at)),
        None => format!("{} at an unknown time", stop.name),
    });
    format!(
        "Timeline, not to scale: {}.",
        words.collect::<Vec<_>>().join("; ")
    )
}

/// How long it is between two neighbours.
fn distance(pair: &[Stop]) -> Option<String> {
    let [begin, end] = pair else { return None };
    let length = end.at?.duration_since(begin.at?);
    Some(text::span(length.unsigned_abs()))
}

/// Per cent of the width, with room for half a dot at either end.
fn across(at: usize, gaps: usize) -> String {
    per_mille(at * 2, gaps)
}

fn between(at: usize, gaps: usize) -> String {
    per_mille(at * 2 + 1, gaps)
}

fn per_mille(half_gaps: usize, gaps: usize) -> String {
    let tenths = 20 + 960 * half_gaps / (2 * gaps);
    format!("{}.{}%", tenths / 10, tenths % 10)
}

fn anchor(at: usize, gaps: usize) -> &'static str {
    match at {
        0 => "start",
        last if last == gaps => "end",
        _ => "middle",
    }
}

/// Where the rail across lies, in pixels from above.
const RAIL: u32 = 32;
/// Where the rail down lies, in pixels from the left.
const DOWN: usize = 13;
/// From one stop to the next.
const STEP: usize = 46;
const MARGIN: usize = 13;
