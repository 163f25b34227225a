//! The partitions of an archive: one a calendar month, in UTC whatever the time
//! zone of whoever asks. Names and bounds only; [`PostgresArchive`] makes them.

use jiff::{Timestamp, tz::Offset};

#[cfg(doc)]
use crate::archive::PostgresArchive;

/// A part of the archive's table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// Its table.
    pub name: String,
    /// The earliest expiry of a row that belongs in it.
    pub from: Timestamp,
    /// The earliest that does not any more.
    pub until: Timestamp,
}

impl Partition {
    pub(crate) fn new(name: String, from: Timestamp, until: Timestamp) -> Self {
        Self { name, from, until }
    }
}

/// One calendar month of UTC, of our era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Month {
    /// Counted from January of the year 0, so that no year is a special case.
    number: i32,
}

impl Month {
    /// The month that a time is in.
    pub(crate) fn of(time: Timestamp) -> Self {
        let date = Offset::UTC.to_datetime(time);
        Self::new(date.year().max(1), date.month())
    }

    /// From the month of `first` through that of `last`.
    pub(crate) fn span(first: Timestamp, last: Timestamp) -> impl DoubleEndedIterator<Item = Self> {
        let numbers = Self::of(first).number..=Self::of(last).number;
        numbers.map(|number| Self { number })
    }

    /// The table of this month.
    pub(crate) fn table(self) -> String {
        let (year, month) = self.year_and_month();
        format!("idempotency_key_archive_{year:04}_{month:02}")
    }

    /// When it begins, as SQL: with an offset, so that a session's time zone
    /// does not matter.
    pub(crate) fn begins(self) -> String {
        let (year, month) = self.year_and_month();
        format!("{year:04}-{month:02}-01 00:00:00+00")
    }

    /// When it ends, which is when the next one begins.
    pub(crate) fn ends(self) -> String {
        self.next().begins()
    }

    /// Whether every moment of it is in one of `partitions`, which are in the
    /// order of their bounds.
    pub(crate) fn is_within(self, partitions: &[Partition]) -> bool {
        let mut reached = self.begin();
        for partition in partitions {
            if partition.from <= reached && reached < partition.until {
                reached = partition.until;
            }
        }
        reached >= self.next().begin()
    }

    fn new(year: i16, month: i8) -> Self {
        Self {
            number: i32::from(year) * 12 + i32::from(month) - 1,
        }
    }

    fn next(self) -> Self {
        Self {
            number: self.number + 1,
        }
    }

    fn year_and_month(self) -> (i32, i32) {
        (self.number / 12, self.number % 12 + 1)
    }

    /// The end of the calendar, for what is beyond it.
    fn begin(self) -> Timestamp {
        self.begins().parse().unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    fn month(time: &str) -> Month {
        Month::of(at(time))
    }

    fn partition(from: &str, until: &str) -> Partition {
        Partition::new("p".into(), at(from), at(until))
    }

    #[test]
    fn a_month_has_a_name_and_two_bounds() {
        for (time, table, begins, ends) in [
            ("2026-08-06T12:00:00Z", "2026_08", "2026-08", "2026-09"),
            (
                "2026-12-31T23:59:59.999999Z",
                "2026_12",
                "2026-12",
                "2027-01",
            ),
            ("2027-01-01T00:00:00Z", "2027_01", "2027-01", "2027-02"),
            ("2028-02-29T00:00:00Z", "2028_02", "2028-02", "2028-03"),
            ("2100-02-28T23:59:59Z", "2100_02", "2100-02", "2100-03"),
            ("9999-12-01T00:00:00Z", "9999_12", "9999-12", "10000-01"),
            ("0001-01-01T00:00:00Z", "0001_01", "0001-01", "0001-02"),
        ] {
            let month = month(time);
            assert_eq!(month.table(), format!("idempotency_key_archive_{table}"));
            assert_eq!(month.begins(), format!("{begins}-01 00:00:00+00"));
            assert_eq!(month.ends(), format!("{ends}-01 00:00:00+00"));
        }
    }

    #[test]
    fn a_month_is_that_of_utc() {
        // In Auckland it is already March, in Honolulu still January.
        assert_eq!(
            month("2026-03-01T10:00:00+13").table(),
            month("2026-02-28T21:00:00Z").table()
        );
        assert_eq!(
            month("2026-01-31T23:00:00-10").table(),
            month("2026-02-01T09:00:00Z").table()
        );
    }

    #[test]
    fn a_span_holds_its_first_and_its_last_month() {
        let names = |first, last| -> Vec<_> {
            let months = Month::span(at(first), at(last));
            months.map(|month| month.begins()[..7].to_owned()).collect()
        };
        let over_new_year = names("2026-11-30T23:59:59Z", "2027-02-01T00:00:00Z");
        assert_eq!(over_new_year, ["2026-11", "2026-12", "2027-01", "2027-02"]);
        assert_eq!(
            names("2028-02-01T00:00:00Z", "2028-02-29T23:59:59Z"),
            ["2028-02"]
        );
        assert!(names("2027-01-01T00:00:00Z", "2026-12-31T00:00:00Z").is_empty());
    }

    #[test]
    fn a_month_is_within_what_covers_it_without_a_gap() {
        let march = month("2026-03-15T00:00:00Z");
        let own = partition("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z");
        let year = partition("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        let first_half = partition("2026-02-20T00:00:00Z", "2026-03-16T00:00:00Z");
        let second_half = partition("2026-03-16T00:00:00Z", "2026-04-02T00:00:00Z");
        let too_late = partition("2026-03-17T00:00:00Z", "2026-05-01T00:00:00Z");
        assert!(march.is_within(&[own]));
        assert!(march.is_within(&[year]));
        assert!(march.is_within(&[first_half.clone(), second_half]));
        assert!(!march.is_within(&[first_half, too_late]));
        assert!(!march.is_within(&[]));
    }

    #[test]
    fn the_calendar_has_ends() {
        let last = Month::of(Timestamp::MAX);
        assert!(last.is_within(&[partition(
            "9999-12-01T00:00:00Z",
            "9999-12-30T22:00:00.999999999Z"
        )]));
        assert_eq!(
            Month::of(Timestamp::MIN).table(),
            "idempotency_key_archive_0001_01"
        );
    }
}
