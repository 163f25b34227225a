//! Which store is which.

use std::sync::atomic::{AtomicU64, Ordering};

/// Names one store: equal for clones of a handle, and for an archive that lives
/// in the same database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreIdentity(u64);

impl StoreIdentity {
    /// An identity that no other store of this process has. A store makes one
    /// as it is opened and keeps it.
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
