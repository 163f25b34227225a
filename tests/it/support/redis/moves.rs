//! A slot on its way from one master to another, step by step.

use super::Cluster;

/// A slot that is neither here nor there: whoever asks its owner for a key that
/// is not there any more, or not yet, is sent to the other for once (`ASK`).
#[derive(Debug)]
pub(crate) struct Move {
    slot: u16,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Begins to move the slot of a key. Its keys stay where they are, and new
    /// ones are made at the other node.
    pub(crate) async fn begin_move(&self, key: &str, to: usize) -> Move {
        let (slot, from) = (self.slot_of(key).await, self.slot_owner(key).await);
        assert_ne!(from, to, "the slot is there already");
        let moving = Move { slot, from, to };
        let (source, target) = (self.id_of(from).await, self.id_of(to).await);
        self.set_slot(to, slot, ["IMPORTING", &source]).await;
        self.set_slot(from, slot, ["MIGRATING", &target]).await;
        moving
    }

    /// Moves the keys that are in the slot.
    pub(crate) async fn move_keys(&self, moving: &Move) {
        let (from, to) = (self.node(moving.from), self.node(moving.to));
        let (slot, port) = (moving.slot.to_string(), to.port().to_string());
        loop {
            let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
            if keys.is_empty() {
                return;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let migrate: Vec<_> = migrate.into_iter().chain(keys.lines()).collect();
            from.cli(&migrate).await;
        }
    }

    /// Moves what is left, and makes the other node the owner, for everybody.
    pub(crate) async fn finish_move(&self, moving: Move) {
        self.move_keys(&moving).await;
        let owner = self.id_of(moving.to).await;
        let others = self.masters().await;
        let others = others.into_iter().filter(|node| *node != moving.to);
        for node in [moving.to].into_iter().chain(others) {
            self.set_slot(node, moving.slot, ["NODE", &owner]).await;
        }
        self.settle().await;
    }

    async fn set_slot(&self, node: usize, slot: u16, to_what: [&str; 2]) {
        let slot = slot.to_string();
        let [state, id] = to_what;
        let set = ["CLUSTER", "SETSLOT", &slot, state, id];
        self.node(node).cli(&set).await;
    }
}
