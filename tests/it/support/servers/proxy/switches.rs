//! What a proxy was told to do.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Switches {
    cuts: watch::Sender<usize>,
    is_stalled: watch::Sender<bool>,
    fired: watch::Sender<usize>,
    round_trips: AtomicUsize,
    armed: Mutex<Option<Armed>>,
}

/// The request whose answer is withheld is the first that contains these
/// bytes.
#[derive(Debug)]
pub(super) struct Armed {
    needle: Vec<u8>,
    pub rest: Rest,
}

/// What becomes of a connection after an answer was withheld.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rest {
    Cut,
    Swallow,
}

impl Switches {
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends at the first cut after this call.
    pub(crate) fn next_cut(&self) -> impl Future<Output = ()> + use<> {
        let mut cuts = self.cuts.subscribe();
        async move {
            // Without its proxy a connection has no reason to go on.
            let _cut_or_gone = cuts.changed().await;
        }
    }

    pub(crate) fn stall(&self, is_stalled: bool) {
        self.is_stalled.send_replace(is_stalled);
    }

    /// Waits for the end of a stall.
    pub(crate) async fn go_ahead(&self) {
        let mut is_stalled = self.is_stalled.subscribe();
        let resumed = is_stalled.wait_for(|is_stalled| !is_stalled).await;
        resumed.expect("the switches outlive their connections");
    }

    pub(super) fn arm(&self, needle: Vec<u8>, rest: Rest) {
        assert!(!needle.is_empty(), "every request contains nothing");
        *self.armed() = Some(Armed { needle, rest });
    }

    /// Whether this is what was waited for: then nobody else waits for it.
    pub(super) fn take_if_in(&self, texts: &[&[u8]]) -> Option<Armed> {
        let is_in = |armed: &mut Armed| texts.iter().any(|text| armed.is_in(text));
        self.armed().take_if(is_in)
    }

    /// It was something else, unless a later call has replaced it.
    pub(super) fn arm_again(&self, armed: Armed) {
        self.armed().get_or_insert(armed);
    }

    pub(crate) fn fire(&self) {
        self.fired.send_modify(|fired| *fired += 1);
    }

    pub(crate) fn fired(&self) -> usize {
        *self.fired.borrow()
    }

    pub(crate) async fn has_fired(&self, times: usize) {
        let mut fired = self.fired.subscribe();
        let enough = fired.wait_for(|fired| *fired >= times).await;
        enough.expect("the switches outlive those who watch them");
    }

    pub(crate) fn count_round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn round_trips(&self) -> usize {
        self.round_trips.load(Ordering::SeqCst)
    }

    fn armed(&self) -> std::sync::MutexGuard<'_, Option<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Armed {
    fn is_in(&self, text: &[u8]) -> bool {
        let mut windows = text.windows(self.needle.len());
        windows.any(|window| window == self.needle)
    }
}
