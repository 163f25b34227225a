//! Nothing is counted: the feature is off.

use std::time::Duration;

pub(crate) fn request(_outcome: &'static str) {}

pub(crate) fn expired_replay() {}

pub(crate) fn archive_lookup(_took: Duration, _found: Option<bool>) {}

pub(crate) fn batch(_statement: &'static str, _rows: usize) {}

pub(crate) fn late_renewals(_leases: u64) {}

pub(crate) fn fenced_completion() {}

pub(crate) fn archived(_rows: u64) {}

pub(crate) fn sweep_error() {}

#[derive(Debug)]
pub(crate) struct InFlight;

impl InFlight {
    pub(crate) fn begin() -> Self {
        Self
    }
}
