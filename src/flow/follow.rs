//! A duplicate of a request that is still running.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::Response;
use tokio::time::Instant;

use super::{Attempt, Setup};
use crate::{
    claim::{Claim, ClaimOutcome},
    clock::between,
    fingerprint::{Comparison, Fingerprint},
    flights::{Ending, Flight, Stage, Waiter},
    policy::{InFlight, StoreDown},
    rejection::Rejection,
    scope::ScopedKey,
};

/// How long one duplicate has been waiting, over all the flights it meets.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    until: Option<Instant>,
    place: Option<Waiter>,
    pause: Option<Duration>,
}

impl Waiting {
    /// Stays with a flight of this process to its end. `None` when it ended
    /// without an answer to share: the store has to be asked.
    pub(super) async fn follow(
        &mut self,
        setup: &Setup,
        attempt: &Attempt,
        flight: &Arc<Flight>,
    ) -> Result<Option<Response<Body>>, Rejection> {
        loop {
            let changed = flight.changed();
            let rejection = match flight.stage() {
                // The store answers the leader, or its time runs out.
                Stage::Claiming => None,
                Stage::Running { speculative, since } => {
                    if !speculative {
                        attempt.repeats(flight.fingerprint())?;
                    }
                    // It is renewed at the latest when half of it is over.
                    let remaining = setup.policy.lease / 2;
                    let rejection = Rejection::in_progress(since.elapsed(), remaining);
                    self.begin(setup, attempt.scoped_key, &rejection)?;
                    Some(rejection)
                }
                Stage::Ended(Ending::Completed(record)) => {
                    attempt.repeats(&record.fingerprint)?;
                    return setup.replay(&record).map(Some);
                }
                Stage::Ended(Ending::Unrecorded(completion)) => {
                    attempt.repeats(flight.fingerprint())?;
                    let created_at = None;
                    let unknown = || Rejection::OutcomeUnknown { created_at };
                    return setup.answer_of(&completion).map(Some).ok_or_else(unknown);
                }
                Stage::Ended(Ending::Unknown { created_at }) => {
                    attempt.repeats(flight.fingerprint())?;
                    return Err(Rejection::OutcomeUnknown { created_at });
                }
                // Asking a store that is silent again, one duplicate after the
                // other, would make each wait for all before it.
                Stage::Ended(Ending::StoreUnavailable)
                    if setup.policy.store_down == StoreDown::Closed =>
                {
                    return Err(Rejection::unavailable());
                }
                Stage::Ended(Ending::StoreUnavailable | Ending::Gone) => return Ok(None),
            };
            match (self.until, rejection) {
                (Some(until), Some(rejection)) => {
                    let in_time = tokio::time::timeout_at(until, changed).await;
                    in_time.map_err(|_| rejection)?;
                }
                _ => changed.await,
            }
        }
    }

    /// Waits a while for a request that runs in another process, then lets the
    /// store be asked again.
    pub(super) async fn elsewhere(
        &mut self,
        setup: &Setup,
        key: ScopedKey,
        claim: &Claim,
    ) -> Result<(), Rejection> {
        let remaining = match claim.outcome {
            ClaimOutcome::InFlight { lease_until } => between(claim.now, lease_until),
            _ => Duration::ZERO,
        };
        // How long the lease has run is all that is known of another process. It
        // grows only where nobody renews it: so, after a crash.
        let elapsed = setup.policy.lease.saturating_sub(remaining);
        let rejection = Rejection::in_progress(elapsed, remaining);
        self.begin(setup, key, &rejection)?;
        let pause = self
            .pause
            .map_or(SHORTEST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.pause = Some(pause);
        let next = Instant::now() + pause;
        match self.until {
            Some(until) if next >= until => {
                tokio::time::sleep_until(until).await;
                Err(rejection)
            }
            _ => {
                tokio::time::sleep_until(next).await;
                Ok(())
            }
        }
    }

    /// Takes a place among those who wait, unless the policy rejects or all
    /// places are taken.
    fn begin(
        &mut self,
        setup: &Setup,
        key: ScopedKey,
        rejection: &Rejection,
    ) -> Result<(), Rejection> {
        let InFlight::Wait(longest) = setup.policy.in_flight else {
            return Err(rejection.clone());
        };
        self.until.get_or_insert_with(|| Instant::now() + longest);
        if self.place.is_none() {
            let place = Waiter::admit(&setup.handle.flights, key, setup.waiter_caps);
            self.place = Some(place.ok_or_else(|| rejection.clone())?);
        }
        Ok(())
    }
}

impl Attempt {
    /// Whether this request is, as far as can be told, the one that left
    /// `stored` behind: the one check on every way to its answer.
    fn repeats(&self, stored: &Fingerprint) -> Result<(), Rejection> {
        match self.compare(stored) {
            Comparison::Different => Err(Rejection::KeyReused),
            Comparison::Same | Comparison::Unknown => Ok(()),
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
