//! What the store still has to hear: completions and releases that failed, or
//! whose result is unknown, are repeated here until the store confirms them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;

use crate::{
    flights::{Ending, Leader},
    leases::HeldLease,
    metrics,
    outcome::Outcome,
    record::OwnerToken,
    scope::ScopedKey,
    store::{Fenced, Store, StoreError, StoreErrorKind},
};

/// One call that has to be confirmed.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) key: ScopedKey,
    pub(crate) token: OwnerToken,
    pub(crate) call: Call,
    /// Until then the claim itself may still be on its way to the store, and
    /// "not the owner" is no proof. `None` when the claim is known.
    pub(crate) claim_may_land_until: Option<Instant>,
    /// Renewed and blocked in this process until the call is confirmed.
    pub(crate) flight: Option<(Leader, HeldLease)>,
}

/// What the store has to hear.
#[derive(Debug)]
pub(crate) enum Call {
    /// The handler ran: record its outcome.
    Complete(Box<Outcome>, Ending),
    /// The handler did not run, or its status is not kept: give the claim back.
    Release,
}

/// The queue of one store handle, worked off by one task that ends when it is
/// empty.
#[derive(Debug)]
pub(crate) struct PendingCalls {
    store: Arc<dyn Store>,
    tasks: TaskTracker,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    calls: Vec<Pending>,
    worker: Option<JoinHandle<()>>,
}

impl PendingCalls {
    pub(crate) fn new(store: Arc<dyn Store>, tasks: TaskTracker) -> Self {
        Self {
            store,
            tasks,
            queue: Mutex::default(),
        }
    }

    /// Takes over a call until it is confirmed.
    pub(crate) fn add(self: &Arc<Self>, call: Pending) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.calls.push(call);
        // It also ends with its runtime, and with a store that panics.
        if queue.worker.as_ref().is_none_or(JoinHandle::is_finished) {
            queue.worker = Some(self.tasks.spawn(work_off(Arc::clone(self))));
        }
    }

    /// What to tell next: those that came since, then those that are left.
    /// `None` ends the worker, and the next call starts another.
    fn take(&self, mut left: Vec<Pending>) -> Option<Vec<Pending>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = std::mem::take(&mut queue.calls);
        calls.append(&mut left);
        if calls.is_empty() {
            queue.worker = None;
        }
        (!calls.is_empty()).then_some(calls)
    }
}

async fn work_off(pending: Arc<PendingCalls>) {
    let mut pause = SHORTEST_PAUSE;
    let mut left = Vec::new();
    while let Some(calls) = pending.take(std::mem::take(&mut left)) {
        let waiting = calls.len();
        // What keeps the one kind from the store need not keep the other: outcomes
        // may wait for an archive.
        let is_release = |call: &Pending| matches!(call.call, Call::Release);
        let (releases, outcomes): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_release);
        left.extend(tell_all(&*pending.store, outcomes).await);
        left.extend(tell_all(&*pending.store, releases).await);
        let settled = waiting - left.len();
        pause = if settled == 0 {
            (pause * 2).min(LONGEST_PAUSE)
        } else {
            SHORTEST_PAUSE
        };
        if !left.is_empty() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Tells the store a few calls at a time, and gives back what is left.
async fn tell_all(store: &dyn Store, calls: Vec<Pending>) -> Vec<Pending> {
    let mut calls = calls.into_iter();
    let (mut left, mut failed) = (Vec::new(), Vec::new());
    loop {
        let some: Vec<_> = calls.by_ref().take(TOLD_AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        let (mut is_reached, mut last_error) = (false, None);
        for (call, answer) in join_all(some.into_iter().map(|call| tell(store, call))).await {
            match answer {
                Ok(answer) => {
                    is_reached = true;
                    left.extend(settle(call, answer));
                }
                Err(error) => {
                    last_error = Some(error);
                    failed.push(call);
                }
            }
        }
        if let Some(error) = last_error {
            let waiting = failed.len() + left.len() + calls.len();
            tracing::warn!(waiting, %error, "store not reached: calls are repeated");
        }
        // With the store down, a few calls are enough to find out.
        if !is_reached {
            break;
        }
    }
    left.extend(calls);
    // Behind the others, which may have nothing to do with their fault: they may
    // be those of one node of a store.
    left.extend(failed);
    left
}

/// Tells the store one call, and gives it back with the answer, or with what
/// went wrong.
async fn tell(store: &dyn Store, pending: Pending) -> (Pending, Result<Fenced, String>) {
    let answer = timeout(PATIENCE, ask(store, &pending)).await;
    let answer = match answer {
        // Nothing that is repeated makes a record readable.
        Ok(Err(error)) if error.kind() == StoreErrorKind::Corrupt => {
            tracing::error!(scoped_key = %pending.key, error = %error.causes(), "the record cannot be read: it stays as it is");
            Ok(Fenced::Stale)
        }
        Ok(answer) => answer.map_err(|error| error.causes().to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    };
    (pending, answer)
}

async fn ask(store: &dyn Store, pending: &Pending) -> Result<Fenced, StoreError> {
    match &pending.call {
        Call::Complete(outcome, _) => {
            let lease = pending.flight.as_ref().map(|(_, lease)| lease);
            outcome.tell(store, pending.key, pending.token, lease).await
        }
        Call::Release => store.release(pending.key, pending.token).await,
    }
}

/// Ends a call that the store has answered; gives it back when the answer is
/// no proof yet.
fn settle(pending: Pending, answer: Fenced) -> Option<Pending> {
    let unproven = pending
        .claim_may_land_until
        .is_some_and(|until| Instant::now() < until);
    if answer == Fenced::Stale && unproven {
        return Some(pending);
    }
    let ending = match (pending.call, answer) {
        (Call::Complete(_, ending), Fenced::Owner) => ending,
        (Call::Complete(..), Fenced::Stale) => {
            if pending.claim_may_land_until.is_none() {
                metrics::fenced_completion();
                tracing::error!(scoped_key = %pending.key, "outcome not recorded: another attempt has taken over or the record has expired");
            }
            Ending::Gone
        }
        (Call::Release, _) => Ending::Gone,
    };
    if let Some((leader, lease)) = pending.flight {
        drop(lease);
        leader.end(ending);
    }
    None
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
/// Few enough for the connections of a small pool.
const TOLD_AT_ONCE: usize = 8;
