//! The archive's partitions, or months, as bars. The bars are in the table that
//! has the numbers, so that one thing tells both to everybody.

use jiff::Timestamp;
use maud::{Markup, html};

use super::text;
use crate::inspect::{ArchiveCensus, PartitionCensus};

/// The newest first: that is where room runs out.
pub(super) fn table(archive: &ArchiveCensus, now: Option<Timestamp>) -> Markup {
    if archive.months.is_empty() {
        return html! { p.missing { (if archive.is_partitioned { "There is no partition: no row can be archived." } else { "Nothing is archived yet." }) } };
    }
    let months = || archive.months.iter();
    let most_rows = months().map(|month| month.rows).max().unwrap_or(0);
    let most_bytes = months().filter_map(|month| month.bytes).max();
    html! {
        div.scroll role="region" aria-labelledby="parts-caption" tabindex="0" {
            table.parts {
                caption id="parts-caption" { "Rows and bytes, the newest first" }
                thead { tr {
                    th scope="col" { (if archive.is_partitioned { "Partition" } else { "Month" }) }
                    th scope="col" { "Holds what expires" }
                    th scope="col" colspan="2" { "Rows" }
                    @if most_bytes.is_some() { th scope="col" colspan="2" { "Bytes" } }
                } }
                tbody { @for month in months().rev() { tr {
                    th scope="row" { code { (month.name) } (standing(month, now)) }
                    td.range { time datetime=(month.from) { (text::date(month.from)) } " until " time datetime=(month.until) { (text::date(month.until)) } }
                    td.number { (text::number(month.rows)) }
                    td.bar { (bar(month.rows, most_rows, "rows")) }
                    @if let Some(most) = most_bytes {
                        @let bytes = month.bytes.unwrap_or(0);
                        td.number { (month.bytes.map_or_else(|| "not known".to_owned(), text::bytes)) }
                        td.bar { (bar(bytes, most, "bytes")) }
                    }
                } } }
            }
        }
    }
}

fn standing(month: &PartitionCensus, now: Option<Timestamp>) -> Markup {
    let Some(now) = now else {
        return html! {};
    };
    html! {
        @if month.from > now { " " span.tag { "ahead" } }
        @else if now < month.until { " " span.tag.now { "now" } }
    }
}

fn bar(value: u64, most: u64, class: &str) -> Markup {
    let tenths = u128::from(value) * 1_000 / u128::from(most.max(1));
    html! {
        svg.bar aria-hidden="true" {
            rect.(class) width={ (tenths / 10) "." (tenths % 10) "%" } height="100%" rx="1" {}
        }
    }
}
