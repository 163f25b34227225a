//! Keys per minute as an area.
//!
//! The drawing has no width of its own: what lies across is in per cent, what
//! stands is in pixels, so that labels are as large on a phone as on a desk.

use std::fmt::Write as _;

use jiff::Timestamp;
use maud::{Markup, html};

use super::text;
use crate::inspect::PerMinute;

pub(super) fn plot(minutes: &[PerMinute]) -> Markup {
    let (Some(first), Some(last)) = (minutes.first(), minutes.last()) else {
        return html! { p.missing { "There is nothing to plot." } };
    };
    let hours = by_hour(minutes);
    let summary = summary(minutes);
    let axis = Axis::up_to(minutes.iter().map(|some| some.keys).max().unwrap_or(0));
    html! {
        figure {
            svg.plot role="img" aria-labelledby="plot-title plot-summary" {
                title id="plot-title" { "Keys first claimed in each minute" }
                desc id="plot-summary" { (summary) }
                @for value in axis.values() {
                    @let y = axis.height_of(value);
                    line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
                }
                svg x="0" y=(TOP) width="100%" height=(HEIGHT) viewBox={ "0 0 " (minutes.len()) " " (HEIGHT) } preserveAspectRatio="none" {
                    path.area d=(area(minutes, axis)) {}
                    path.line d=(line(minutes, axis)) vector-effect="non-scaling-stroke" {}
                }
                @for value in axis.values().skip(1) {
                    text.label x="0" y=(axis.height_of(value) - 4) {
                        (text::number(value)) @if value == axis.top { " keys a minute" }
                    }
                }
                @for tick in ticks(first.minute, last.minute) {
                    line.tick x1=(tick.across) x2=(tick.across) y1=(TOP + HEIGHT) y2=(TOP + HEIGHT + 5) {}
                    text.label.(tick.class) x=(tick.across) y=(TOP + HEIGHT + 19) text-anchor="middle" { (tick.label) }
                }
            }
            figcaption {
                (summary) " Hours are UTC."
            }
        }
        details {
            summary { "The same by hour, as a table" }
            div.scroll role="region" aria-labelledby="hours-caption" tabindex="0" {
                table {
                    caption id="hours-caption" { "Keys by hour (UTC)" }
                    thead { tr {
                        th scope="col" { "Hour" }
                        th.number scope="col" { "Keys" }
                        th.number scope="col" { "Mean a minute" }
                        th.number scope="col" { "Busiest minute" }
                        th scope="col" { "When" }
                    } }
                    tbody { @for hour in &hours { tr {
                        th scope="row" { (text::date(hour.begin)) " " (text::hour_and_minute(hour.begin)) }
                        td.number { (text::number(hour.keys)) }
                        td.number { (text::number(hour.keys / hour.minutes.max(1))) }
                        td.number { (text::number(hour.busiest.keys)) }
                        td { @if hour.busiest.keys > 0 { (text::hour_and_minute(hour.busiest.minute)) } @else { "–" } }
                    } } }
                }
            }
        }
    }
}

fn summary(minutes: &[PerMinute]) -> String {
    let all: u64 = minutes.iter().map(|some| some.keys).sum();
    let Some(busiest) = busiest(minutes).filter(|_| all > 0) else {
        return "No key was claimed in the last 24 hours.".to_owned();
    };
    format!(
        "{} keys in the last 24 hours, {} a minute in the mean; the busiest minute was {} with {}.",
        text::number(all),
        text::number(all / minutes.len() as u64),
        text::hour_and_minute(busiest.minute),
        text::number(busiest.keys),
    )
}

/// The first of the busiest.
fn busiest(minutes: &[PerMinute]) -> Option<PerMinute> {
    minutes.iter().rev().max_by_key(|some| some.keys).copied()
}

/// The values that are marked upwards: zero and up to five round steps.
#[derive(Clone, Copy, Debug)]
struct Axis {
    top: u64,
    step: u64,
}

impl Axis {
    fn up_to(most: u64) -> Self {
        let mut step = 1;
        let mut factors = [2, 5, 10].into_iter().cycle();
        let mut power = 1_u64;
        while step * 4 < most {
            let factor = factors.next().unwrap_or(10);
            step = power.saturating_mul(factor);
            if factor == 10 {
                power = step;
            }
            if power > u64::MAX / 100 {
                break;
            }
        }
        Self {
            top: most.div_ceil(step).max(1).saturating_mul(step),
            step,
        }
    }

    fn values(self) -> impl Iterator<Item = u64> {
        (0..=self.top / self.step).map(move |at| at * self.step)
    }

    /// Where a value is on the drawing, in pixels from above.
    fn height_of(self, value: u64) -> u64 {
        TOP + HEIGHT - share(value, self.top, HEIGHT)
    }
}

/// `value / of` of `whole`, in whole pixels.
fn share(value: u64, of: u64, whole: u64) -> u64 {
    let exact = u128::from(value) * u128::from(whole) / u128::from(of.max(1));
    u64::try_from(exact).unwrap_or(whole).min(whole)
}

/// In tenths of a pixel from above, inside the plot.
fn height_inside(keys: u64, axis: Axis) -> u64 {
    HEIGHT * 10 - share(keys, axis.top, HEIGHT * 10)
}

fn line(minutes: &[PerMinute], axis: Axis) -> String {
    let mut path = String::with_capacity(minutes.len() * 12);
    for (at, some) in minutes.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let tenths = height_inside(some.keys, axis);
        // The middle of the minute; writing into a string does not fail.
        let _written = write!(path, "{command}{at}.5 {}.{}", tenths / 10, tenths % 10);
    }
    path
}

fn area(minutes: &[PerMinute], axis: Axis) -> String {
    let end = minutes.len();
    format!(
        "M0.5 {HEIGHT}L{}L{}.5 {HEIGHT}Z",
        line(minutes, axis).trim_start_matches('M'),
        end.saturating_sub(1)
    )
}

/// A mark on the axis of time.
#[derive(Debug)]
struct Tick {
    across: String,
    label: String,
    /// Every other one has no room on a phone.
    class: &'static str,
}

/// Every third full hour, without those whose label would be cut off.
fn ticks(first: Timestamp, last: Timestamp) -> Vec<Tick> {
    let begin = first.as_second();
    let length = last.as_second() - begin + 60;
    let next = begin + (-begin).rem_euclid(THREE_HOURS);
    let seconds = (next..begin + length).step_by(usize::try_from(THREE_HOURS).unwrap_or(1));
    let marks = seconds.filter_map(|second| {
        let per_mille = (second - begin) * 1_000 / length;
        let time = Timestamp::from_second(second).ok()?;
        let civil = text::civil(time);
        let label = match civil.hour() {
            0 => format!(
                "{} {}",
                civil.day(),
                MONTHS.get(usize::try_from(civil.month() - 1).ok()?)?
            ),
            _ => text::hour_and_minute(time),
        };
        (40..=960).contains(&per_mille).then(|| Tick {
            across: format!("{}.{}%", per_mille / 10, per_mille % 10),
            label,
            class: if civil.hour() % 6 == 0 {
                "major"
            } else {
                "minor"
            },
        })
    });
    marks.collect()
}

/// An hour by the clock, or as much of it as there is.
#[derive(Debug)]
struct Hour {
    begin: Timestamp,
    minutes: u64,
    keys: u64,
    busiest: PerMinute,
}

fn by_hour(minutes: &[PerMinute]) -> Vec<Hour> {
    let of = |some: &PerMinute| some.minute.as_second().div_euclid(3_600);
    let hours = minutes.chunk_by(|one, other| of(one) == of(other));
    let hours = hours.filter_map(|hour| {
        Some(Hour {
            begin: hour.first()?.minute,
            minutes: hour.len() as u64,
            keys: hour.iter().map(|some| some.keys).sum(),
            busiest: busiest(hour)?,
        })
    });
    hours.collect()
}

const TOP: u64 = 22;
const HEIGHT: u64 = 160;
const THREE_HOURS: i64 = 3 * 3_600;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_few_round_steps_and_room_for_the_most() {
        for most in [
            0,
            1,
            4,
            5,
            9,
            11,
            99,
            101,
            4_999,
            1_000_000,
            u64::MAX / 4_000,
        ] {
            let axis = Axis::up_to(most);
            let values: Vec<_> = axis.values().collect();
            assert!(values.len() <= 6, "{most}: {values:?}");
            assert!(axis.top >= most, "{most}: {values:?}");
        }
        assert_eq!(
            Axis::up_to(730).values().collect::<Vec<_>>(),
            [0, 200, 400, 600, 800]
        );
    }
}
