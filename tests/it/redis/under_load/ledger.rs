//! What happened to every key.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::support::{Answer, Gate};

/// Filled in by handlers and clients alike.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    keys: Mutex<BTreeMap<String, Entry>>,
    /// How often a client was told that the store cannot be reached.
    refusals: watch::Sender<usize>,
    slowest: Mutex<Duration>,
    /// How many keys have run again.
    repeated: watch::Sender<usize>,
    gate: Mutex<Option<Gate>>,
}

/// What happened to one key, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) effects: Vec<Effect>,
    pub(super) told: Vec<Told>,
    /// How often a client was sent away to come again.
    pub(super) put_off: usize,
}

/// An execution of the handler.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) id: String,
    pub(super) attempt: u32,
    pub(super) begun: Instant,
}

/// An answer that a client does not ask again after.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) at: Instant,
}

impl Ledger {
    pub(super) fn effect(&self, key: &str, effect: Effect) {
        let mut runs = 0;
        self.entry(key, |entry| {
            entry.effects.push(effect);
            runs = entry.effects.len();
        });
        if runs == 2 {
            self.repeated.send_modify(|repeated| *repeated += 1);
        }
    }

    /// The next execution waits at this gate when its effect has happened.
    pub(super) fn hold(&self) -> Gate {
        let gate = Gate::closed();
        *self.gate.lock().expect("nothing panics here") = Some(gate.clone());
        gate
    }

    pub(super) fn gate(&self) -> Option<Gate> {
        self.gate.lock().expect("nothing panics here").take()
    }

    /// Waits until so many keys have run again.
    pub(super) async fn runs_again(&self, keys: usize) {
        let mut repeated = self.repeated.subscribe();
        let enough = repeated.wait_for(|repeated| *repeated >= keys).await;
        enough.expect("the ledger outlives those who watch it");
    }

    pub(super) fn told(&self, key: &str, answer: Answer) {
        let at = Instant::now();
        self.entry(key, |entry| entry.told.push(Told { answer, at }));
    }

    /// The client has to come again.
    pub(super) fn put_off(&self, key: &str, answer: &Answer) {
        self.entry(key, |entry| entry.put_off += 1);
        if answer.status == 503 {
            self.refusals.send_modify(|refusals| *refusals += 1);
        }
    }

    /// Waits until so many requests more were told that the store cannot be
    /// reached.
    pub(super) async fn refuses(&self, requests: usize) {
        let mut refusals = self.refusals.subscribe();
        let enough = *refusals.borrow() + requests;
        let refused = refusals.wait_for(|refusals| *refusals >= enough).await;
        refused.expect("the ledger outlives those who watch it");
    }

    /// How long one request took, whatever it was told.
    pub(super) fn took(&self, time: Duration) {
        let mut slowest = self.slowest.lock().expect("nothing panics here");
        *slowest = time.max(*slowest);
    }

    pub(super) fn slowest(&self) -> Duration {
        *self.slowest.lock().expect("nothing panics here")
    }

    pub(super) fn entries(&self) -> BTreeMap<String, Entry> {
        self.keys().clone()
    }

    /// How often the effect of any key has happened.
    pub(super) fn effects(&self) -> usize {
        let keys = self.keys();
        keys.values().map(|entry| entry.effects.len()).sum()
    }

    fn entry(&self, key: &str, change: impl FnOnce(&mut Entry)) {
        let mut keys = self.keys();
        change(keys.entry(key.to_owned()).or_default());
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.keys.lock().expect("nothing panics here")
    }
}

impl Entry {
    /// The first answer of the handler's that a client got, as it was made or as
    /// a replay.
    pub(super) fn charge(&self) -> Option<&Told> {
        self.told.iter().find(|told| told.answer.status == 201)
    }

    pub(super) fn made(&self, id: &str) -> bool {
        self.effects.iter().any(|effect| effect.id == id)
    }
}
