//! The TTLs that processes published.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use uuid::Uuid;

use crate::{clock::between, inspect::PublishedTtls, store::TtlNotice};

#[derive(Debug, Default)]
pub(super) struct Notices(HashMap<Uuid, (TtlNotice, Timestamp)>);

impl Notices {
    /// Takes a notice, forgets those whose records have all expired, and tells
    /// the smallest TTL in force.
    pub(super) fn publish(&mut self, notice: TtlNotice, now: Timestamp) -> Duration {
        self.0.insert(notice.process, (notice, now));
        let largest = self.0.values().map(|(notice, _)| notice.largest).max();
        let largest = largest.unwrap_or(notice.largest);
        self.0.retain(|_, (_, at)| between(*at, now) <= largest);
        let smallest = self.0.values().map(|(notice, _)| notice.smallest).min();
        smallest.unwrap_or(notice.smallest)
    }

    /// Those in force, where any are.
    pub(super) fn in_force(&self, now: Timestamp) -> Option<PublishedTtls> {
        let largest = self.0.values().map(|(notice, _)| notice.largest).max()?;
        let in_force = || {
            let recent = self.0.values();
            recent.filter(move |(_, at)| between(*at, now) <= largest)
        };
        Some(PublishedTtls {
            smallest: in_force().map(|(notice, _)| notice.smallest).min()?,
            largest: in_force().map(|(notice, _)| notice.largest).max()?,
        })
    }
}
