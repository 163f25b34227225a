//! Keeps the leases of running handlers alive: all that are held by this
//! process, in one call to the store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    record::OwnerToken,
    scope::ScopedKey,
    store::{Renewal, Renewed, Store},
};

/// The leases that this process holds in one store.
#[derive(Debug)]
pub(crate) struct Leases {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<OwnerToken, Held>,
    /// When the renewer looks next; `None` while nothing is held.
    next_look: Option<Instant>,
    renewer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Held {
    key: ScopedKey,
    lease: Duration,
    /// When the lease was last granted, by this process's monotonic clock, as
    /// of the start of the call: the store's grant is never earlier.
    granted: Instant,
    lost: CancellationToken,
}

/// A lease that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLease {
    leases: Arc<Leases>,
    token: OwnerToken,
    lost: CancellationToken,
}

impl Leases {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Begins to renew a lease that was granted to `token` at `granted`.
    pub(crate) fn hold(
        self: &Arc<Self>,
        key: ScopedKey,
        token: OwnerToken,
        lease: Duration,
        granted: Instant,
    ) -> HeldLease {
        let lost = CancellationToken::new();
        let held = Held {
            key,
            lease,
            granted,
            lost: lost.clone(),
        };
        let due = held.due();
        let mut state = self.lock();
        state.held.insert(token, held);
        if state.next_look.is_none_or(|look| due < look) {
            state.next_look = Some(due);
            // It also ends with its runtime.
            if state.renewer.as_ref().is_none_or(JoinHandle::is_finished) {
                state.renewer = Some(tokio::spawn(renew_while_held(Arc::clone(self))));
            }
            self.wake.notify_one();
        }
        drop(state);
        HeldLease {
            leases: Arc::clone(self),
            token,
            lost,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When to look next; `None` ends the renewer, and the next lease starts
    /// another.
    fn next_look(&self) -> Option<Instant> {
        let mut state = self.lock();
        if state.next_look.is_none() {
            state.renewer = None;
        }
        state.next_look
    }

    /// The leases to renew now, and for how long the call may take.
    fn due(&self, now: Instant) -> (Vec<Renewal>, Duration) {
        let state = self.lock();
        // With those that are due go those that soon will be: one call.
        let due = state.held.iter().filter(|(_, held)| held.soon_due(now));
        let renewals: Vec<_> = due
            .map(|(token, held)| Renewal {
                key: held.key,
                token: *token,
                lease: held.lease,
                confirmed: false,
            })
            .collect();
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        (renewals, shortest.unwrap_or_default() / 3)
    }

    fn renewed(&self, renewals: &[Renewal], answers: &[Renewed], asked: Instant) {
        let mut state = self.lock();
        for (renewal, answer) in renewals.iter().zip(answers) {
            match answer {
                Renewed::Until(_) => {
                    if let Some(held) = state.held.get_mut(&renewal.token) {
                        held.granted = asked;
                    }
                }
                Renewed::Lost => {
                    if let Some(held) = state.held.remove(&renewal.token) {
                        tracing::warn!(scoped_key = %held.key, "lease lost: another attempt has taken over");
                        held.lost.cancel();
                    }
                }
            }
        }
    }

    /// Tells handlers whose lease has run out because it could not be renewed,
    /// and says when to look again.
    fn plan(&self, now: Instant, failed: bool) -> Option<Instant> {
        let mut state = self.lock();
        for held in state.held.values() {
            if held.granted + held.lease <= now && !held.lost.is_cancelled() {
                tracing::warn!(scoped_key = %held.key, "lease lapsed: it could not be renewed");
                held.lost.cancel();
            }
        }
        let next = state.held.values().map(|held| match failed {
            true => held.due().max(now + held.lease / 12),
            false => held.due(),
        });
        state.next_look = next.min();
        state.next_look
    }
}

impl Held {
    fn due(&self) -> Instant {
        self.granted + self.lease / 3
    }

    fn soon_due(&self, now: Instant) -> bool {
        self.granted + self.lease / 6 <= now
    }
}

async fn renew_while_held(leases: Arc<Leases>) {
    loop {
        let Some(look) = leases.next_look() else {
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
                Ok(Ok(answers)) => leases.renewed(&renewals, &answers, asked),
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

    /// The lease was granted again by a call that began at `asked`.
    pub(crate) fn granted(&self, asked: Instant) {
        if let Some(held) = self.leases.lock().held.get_mut(&self.token) {
            held.granted = asked;
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.leases.lock().held.remove(&self.token);
    }
}
