//! Real servers that fail under load: what clients were told stays true, nothing
//! runs twice that the service could have known about, and nothing hangs.
//!
//! [`Services`] are processes of one service, each with a store of its own.
//! [`Load`] is their clients: each sends a fresh key to every process at once and
//! repeats it until it is answered, then takes the next. What the handlers did
//! and what the clients were told goes into a [`Ledger`], which in the end is
//! held against the contract ([`Aftermath`]).
//!
//! Leases last longer than any test, so that every second execution is one
//! inside its lease.

use std::time::Duration;

mod contract;
mod ledger;
mod load;
mod services;

use self::{
    contract::{Aftermath, Repeats},
    ledger::Ledger,
    load::Load,
    services::Services,
};

mod answers_lost;
mod demotion;
mod failover;
mod lag;
mod restarts;
mod silence;
mod slots;
mod vanishing;

/// A lease that lapses in a test: where a completion was lost and its claim was
/// not, the key is in progress until then.
const LAPSING: Duration = Duration::from_secs(3);
