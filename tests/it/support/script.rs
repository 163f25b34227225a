//! What goes wrong with the calls to a store or an archive, and how often it
//! was called.

use std::{
    collections::HashMap,
    fmt,
    future::{Future, pending},
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum_idempotency::store::{StoreError, StoreErrorKind};
use tokio::sync::watch;

use super::Gate;

/// A method of a store or an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Claim,
    Complete,
    Release,
    Renew,
    Get,
    Publish,
    Close,
    Lookup,
    Insert,
    /// Whatever an operator asks.
    Inspect,
}

/// What becomes of one call.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It does not reach the store.
    Fails(StoreErrorKind),
    /// It takes effect, and the answer is lost.
    AnswerLost,
    /// It does not reach the store, and there is never an answer.
    Hangs,
    /// It takes effect, and there is never an answer.
    HangsAfter,
    /// The connection is lost at once, and the call takes effect once the gate
    /// is open. For claims.
    LandsLate(Gate),
    /// The store itself is broken.
    Panics,
    /// It waits on its way to the store.
    HeldBefore(Gate),
    /// Its answer waits on the way back.
    HeldAfter(Gate),
}

impl Fault {
    /// The store cannot be reached.
    pub(crate) const DOWN: Self = Self::Fails(StoreErrorKind::Unavailable);
}

/// The plan for the calls to come, and the count of those that came.
pub(crate) struct Script {
    plan: Mutex<Plan>,
    counts: watch::Sender<HashMap<Verb, Count>>,
}

#[derive(Default)]
struct Plan {
    once: HashMap<(Verb, usize), Fault>,
    always: HashMap<Verb, Fault>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    begun: usize,
    answered: usize,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            plan: Mutex::default(),
            counts: watch::Sender::new(HashMap::new()),
        }
    }

    /// The next call of `verb` that nothing is planned for meets this fault.
    pub(crate) fn next(&self, verb: Verb, fault: Fault) {
        let mut plan = self.plan();
        let mut call = self.calls(verb) + 1;
        while plan.once.contains_key(&(verb, call)) {
            call += 1;
        }
        plan.once.insert((verb, call), fault);
    }

    /// The next call waits on its way to the store.
    pub(crate) fn hold_before(&self, verb: Verb) -> Gate {
        let gate = Gate::closed();
        self.next(verb, Fault::HeldBefore(gate.clone()));
        gate
    }

    /// The next call takes effect, and its answer waits on the way back.
    pub(crate) fn hold_after(&self, verb: Verb) -> Gate {
        let gate = Gate::closed();
        self.next(verb, Fault::HeldAfter(gate.clone()));
        gate
    }

    /// Every call of `verb` meets this fault, until it is healed.
    pub(crate) fn always(&self, verb: Verb, fault: Fault) {
        self.plan().always.insert(verb, fault);
    }

    pub(crate) fn heal(&self, verb: Verb) {
        self.plan().always.remove(&verb);
    }

    /// How many calls of `verb` have begun.
    pub(crate) fn calls(&self, verb: Verb) -> usize {
        self.counts
            .borrow()
            .get(&verb)
            .copied()
            .unwrap_or_default()
            .begun
    }

    /// Waits until so many calls of `verb` have begun.
    pub(crate) async fn begun(&self, verb: Verb, count: usize) {
        self.wait_for(verb, |calls| calls.begun >= count).await;
    }

    /// Waits until so many calls of `verb` have been answered.
    pub(crate) async fn answered(&self, verb: Verb, count: usize) {
        self.wait_for(verb, |calls| calls.answered >= count).await;
    }

    async fn wait_for(&self, verb: Verb, enough: impl Fn(Count) -> bool) {
        let mut counts = self.counts.subscribe();
        let of_verb = |counts: &HashMap<Verb, Count>| counts.get(&verb).copied();
        let waited = counts.wait_for(|counts| enough(of_verb(counts).unwrap_or_default()));
        waited.await.expect("a script outlives those who watch it");
    }

    /// Makes one call, as planned.
    pub(crate) async fn play<T>(
        &self,
        verb: Verb,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let fault = self.begin(verb);
        self.meet(fault, verb, call).await
    }

    /// Makes one call that may outlive the one who made it.
    pub(crate) async fn play_detached<T: Send + 'static>(
        &self,
        verb: Verb,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.begin(verb) {
            Some(Fault::LandsLate(gate)) => {
                tokio::spawn(async move {
                    gate.pass().await;
                    call.await
                });
                let lost = pending_failure();
                self.meet(Some(Fault::DOWN), verb, lost).await
            }
            fault => self.meet(fault, verb, call).await,
        }
    }

    async fn meet<T>(
        &self,
        fault: Option<Fault>,
        verb: Verb,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = match fault {
            None => call.await,
            Some(Fault::Fails(kind)) => Err(failure(kind)),
            Some(Fault::AnswerLost) => {
                let _lost = call.await;
                Err(failure(StoreErrorKind::Unavailable))
            }
            Some(Fault::Hangs) => pending().await,
            Some(Fault::HangsAfter) => {
                let _lost = call.await;
                pending().await
            }
            Some(Fault::LandsLate(_)) => panic!("{verb:?} cannot land late"),
            Some(Fault::Panics) => panic!("the store is broken, as the test asked"),
            Some(Fault::HeldBefore(gate)) => {
                gate.pass().await;
                call.await
            }
            Some(Fault::HeldAfter(gate)) => {
                let answer = call.await;
                gate.pass().await;
                answer
            }
        };
        self.counts
            .send_modify(|counts| counts.entry(verb).or_default().answered += 1);
        answer
    }

    fn begin(&self, verb: Verb) -> Option<Fault> {
        let mut plan = self.plan();
        let mut call = 0;
        self.counts.send_modify(|counts| {
            let count = counts.entry(verb).or_default();
            count.begun += 1;
            call = count.begun;
        });
        let once = plan.once.remove(&(verb, call));
        once.or_else(|| plan.always.get(&verb).cloned())
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

async fn pending_failure<T>() -> Result<T, StoreError> {
    pending().await
}

fn failure(kind: StoreErrorKind) -> StoreError {
    match kind {
        StoreErrorKind::Full => StoreError::full("as the test asked"),
        StoreErrorKind::Corrupt => StoreError::corrupt("as the test asked"),
        StoreErrorKind::Setup => StoreError::setup("as the test asked", "no schema"),
        _ => StoreError::unavailable("as the test asked", "no connection"),
    }
}
