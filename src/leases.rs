//! Keeps the leases of running handlers alive: all that are held by this
//! process, in one call to the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::{self, InFlight},
    record::OwnerToken,
    scope::ScopedKey,
    store::{Renewal, Renewed, Store},
};

/// The leases that this process holds in one store.
#[derive(Debug)]
pub(crate) struct Leases {
    store: Arc<dyn Store>,
    // Sharded by token: every request comes by here twice.
    held: Vec<Mutex<HashMap<OwnerToken, Held>>>,
    begun: Instant,
    /// When the renewer looks next, in microseconds after `begun`.
    next_look: AtomicU64,
    renewer: Mutex<Option<JoinHandle<()>>>,
    wake: Notify,
}

#[derive(Debug)]
struct Held {
    key: ScopedKey,
    lease: Duration,
    /// When the lease was last granted, by this process's monotonic clock, as
    /// of the start of the call: the store's grant is never earlier.
    granted: Instant,
    /// It is not renewed from then on: the longest lease is over, or, where an
    /// outcome waits to be recorded, the record has expired.
    until: Instant,
    lost: CancellationToken,
    /// Its outcome is on the way to the store: soon nothing is in progress,
    /// and that is no loss.
    is_ending: bool,
}

/// A lease that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLease {
    leases: Arc<Leases>,
    token: OwnerToken,
    lost: CancellationToken,
    _in_flight: InFlight,
}

impl Leases {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            held: (0..SHARDS).map(|_| Mutex::default()).collect(),
            begun: Instant::now(),
            next_look: AtomicU64::new(NEVER),
            renewer: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Begins to renew a lease that was granted to `token` at `granted`, for
    /// `longest` at most.
    pub(crate) fn hold(
        self: &Arc<Self>,
        key: ScopedKey,
        token: OwnerToken,
        (lease, longest): (Duration, Duration),
        granted: Instant,
    ) -> HeldLease {
        let lost = CancellationToken::new();
        let held = Held {
            key,
            lease,
            granted,
            until: granted + longest,
            lost: lost.clone(),
            is_ending: false,
        };
        let due = self.micros(held.due());
        self.shard(token).insert(token, held);
        if due < self.next_look.load(Ordering::SeqCst) {
            self.look_at(due);
        }
        HeldLease {
            leases: Arc::clone(self),
            token,
            lost,
            _in_flight: InFlight::begin(),
        }
    }

    /// How long the lease of `token` still runs by this process's clock; zero
    /// when none is held.
    pub(crate) fn left(&self, token: OwnerToken) -> Duration {
        let shard = self.shard(token);
        let left = |held: &Held| held.lease.saturating_sub(held.granted.elapsed());
        shard.get(&token).map(left).unwrap_or_default()
    }

    /// Whether `token`'s outcome is on its way to the store, so that nothing is
    /// lost when its record is no longer in progress.
    pub(crate) fn ending(&self, token: OwnerToken, is_ending: bool) {
        if let Some(held) = self.shard(token).get_mut(&token) {
            held.is_ending = is_ending;
        }
    }

    /// Has the renewer look at `due`, or earlier, and starts one where there is
    /// none.
    fn look_at(self: &Arc<Self>, due: u64) {
        let mut renewer = self.renewer.lock().unwrap_or_else(PoisonError::into_inner);
        self.next_look.fetch_min(due, Ordering::SeqCst);
        if renewer.as_ref().is_none_or(JoinHandle::is_finished) {
            *renewer = Some(tokio::spawn(renew_while_held(Arc::clone(self))));
        }
        self.wake.notify_one();
    }

    fn wake_at_once(self: &Arc<Self>) {
        self.look_at(self.micros(Instant::now()));
    }

    /// When to look next; `None` ends the renewer.
    fn next_look(&self) -> Option<Instant> {
        let mut renewer = self.renewer.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.next_look.load(Ordering::SeqCst);
        if next == NEVER {
            *renewer = None;
            return None;
        }
        Some(self.begun + Duration::from_micros(next))
    }

    /// The leases to renew now, and for how long the call may take.
    fn due(&self, now: Instant) -> (Vec<Renewal>, Duration) {
        let mut renewals = Vec::new();
        for shard in self.shards() {
            // With those that are due go those that soon will be: one call.
            let due = shard.iter().filter(|(_, held)| held.soon_due(now));
            renewals.extend(due.map(|(token, held)| Renewal {
                key: held.key,
                token: *token,
                lease: held.lease,
                confirmed: false,
            }));
        }
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        (renewals, shortest.unwrap_or_default() / 3)
    }

    /// Whether one was passed over, and has to be asked for again.
    fn renewed(&self, renewals: &[Renewal], answers: &[Renewed], asked: Instant) -> bool {
        let (mut passed_over, mut late) = (false, 0);
        for (renewal, answer) in renewals.iter().zip(answers) {
            let mut shard = self.shard(renewal.token);
            match answer {
                Renewed::Until(_) => {
                    if let Some(held) = shard.get_mut(&renewal.token) {
                        late += u64::from(held.is_late(asked));
                        held.granted = asked;
                    }
                }
                // It runs as before, until it is free to be renewed.
                Renewed::Locked => passed_over = true,
                Renewed::Lost => {
                    let held = shard.remove(&renewal.token);
                    if let Some(held) = held.filter(|held| !held.is_ending) {
                        tracing::warn!(scoped_key = %held.key, "lease lost: another attempt has taken over, or the record is gone");
                        held.lost.cancel();
                    }
                }
            }
        }
        if late > 0 {
            metrics::late_renewals(late);
        }
        passed_over
    }

    /// Tells handlers whose lease has run out because it could not be renewed,
    /// and plans the next look.
    fn plan(&self, now: Instant, failed: bool) {
        // A lease that begins from here on plans its own look; one that began
        // before is seen below.
        self.next_look.store(NEVER, Ordering::SeqCst);
        for shard in self.shards() {
            for held in shard.values() {
                if held.granted + held.lease <= now && !held.lost.is_cancelled() {
                    tracing::warn!(scoped_key = %held.key, "lease lapsed: it could not be renewed");
                    metrics::late_renewals(1);
                    held.lost.cancel();
                }
                if held.until <= now {
                    // Only its lapse is left to be told.
                    if !held.lost.is_cancelled() {
                        let lapse = self.micros(held.granted + held.lease);
                        self.next_look.fetch_min(lapse, Ordering::SeqCst);
                    }
                    continue;
                }
                let due = if failed {
                    held.due().max(now + held.lease / 12)
                } else {
                    held.due()
                };
                self.next_look.fetch_min(self.micros(due), Ordering::SeqCst);
            }
        }
    }

    fn micros(&self, time: Instant) -> u64 {
        let micros = time.saturating_duration_since(self.begun).as_micros();
        u64::try_from(micros).unwrap_or(NEVER - 1)
    }

    fn shard(&self, token: OwnerToken) -> MutexGuard<'_, HashMap<OwnerToken, Held>> {
        let shard = usize::from(token.as_bytes()[0]) % self.held.len();
        self.held[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, HashMap<OwnerToken, Held>>> {
        let shards = self.held.iter();
        shards.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Held {
    /// Whether a renewal at `asked` comes twice as late as it was due, or later.
    /// One that had lapsed has been counted.
    fn is_late(&self, asked: Instant) -> bool {
        self.granted + self.lease * 2 / 3 < asked && !self.lost.is_cancelled()
    }

    fn due(&self) -> Instant {
        self.granted + self.lease / 3
    }

    fn soon_due(&self, now: Instant) -> bool {
        self.granted + self.lease / 6 <= now && now < self.until
    }
}

/// Lets the next lease start another renewer when this one ends in the middle
/// of its work: with its runtime, or with a store that panics.
struct Cut<'a>(Option<&'a Leases>);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if let Some(leases) = self.0 {
            let mut renewer = leases
                .renewer
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            leases.next_look.store(NEVER, Ordering::SeqCst);
            *renewer = None;
        }
    }
}

async fn renew_while_held(leases: Arc<Leases>) {
    let mut cut = Cut(Some(&leases));
    loop {
        let Some(look) = leases.next_look() else {
            cut.0 = None;
            return;
        };
        tokio::select! {
            () = tokio::time::sleep_until(look) => {}
            () = leases.wake.notified() => continue,
        }
        let asked = Instant::now();
        let (renewals, patience) = leases.due(asked);
        let mut failed = false;
        if !renewals.is_empty() {
            match tokio::time::timeout(patience, leases.store.renew(&renewals)).await {
                Ok(Ok(answers)) => failed = leases.renewed(&renewals, &answers, asked),
                Ok(Err(error)) => {
                    tracing::warn!(leases = renewals.len(), error = %error.causes(), "leases not renewed");
                    failed = true;
                }
                Err(_) => {
                    tracing::warn!(
                        leases = renewals.len(),
                        "leases not renewed: the store is too slow"
                    );
                    failed = true;
                }
            }
        }
        leases.plan(Instant::now(), failed);
    }
}

impl HeldLease {
    /// Fires when the lease is lost.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Whether the lease is lost, or has run out by this process's clock.
    pub(crate) fn is_over(&self) -> bool {
        self.lost.is_cancelled() || self.leases.left(self.token).is_zero()
    }

    /// The attempt is over, and the store is being told.
    pub(crate) fn ending(&self) {
        self.leases.ending(self.token, true);
    }

    /// The outcome is known and waits to be recorded: until that is done, or the
    /// record expires, nobody may take over.
    pub(crate) fn holds_an_outcome(&self, until: Instant) {
        if let Some(held) = self.leases.shard(self.token).get_mut(&self.token) {
            held.until = until;
        }
        self.leases.wake_at_once();
    }

    /// The lease was granted again by a call that began at `asked`.
    pub(crate) fn granted(&self, asked: Instant) {
        if let Some(held) = self.leases.shard(self.token).get_mut(&self.token) {
            held.granted = asked;
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.leases.shard(self.token).remove(&self.token);
    }
}

const NEVER: u64 = u64::MAX;
const SHARDS: usize = 16;
