//! A place on the way where a test holds another task, and lets it go.

use tokio::sync::watch;

/// Closed until it is opened. Clones are one gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    arrived: watch::Sender<usize>,
    is_open: watch::Sender<bool>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self {
            arrived: watch::Sender::new(0),
            is_open: watch::Sender::new(false),
        }
    }

    /// For the task that is held.
    pub(crate) async fn pass(&self) {
        self.arrived.send_modify(|arrived| *arrived += 1);
        let mut is_open = self.is_open.subscribe();
        let opened = is_open.wait_for(|is_open| *is_open).await;
        opened.expect("a gate outlives those who pass it");
    }

    /// Waits until somebody stands before the gate.
    pub(crate) async fn reached(&self) {
        self.reached_by(1).await;
    }

    /// Waits until so many have come to the gate.
    pub(crate) async fn reached_by(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        let enough = arrived.wait_for(|arrived| *arrived >= count).await;
        enough.expect("a gate outlives those who watch it");
    }

    /// Lets everybody through, from now on.
    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }
}
