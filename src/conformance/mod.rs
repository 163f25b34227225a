//! The suite that every store and archive passes, to be run by those of third
//! parties too. Feature `conformance`.
//!
//! Each rule of the contracts of [`store`](crate::store) and
//! [`archive`](crate::archive) has at least one case, which is named after what
//! it shows and fails in the words of the contract. A case gets a fresh
//! [`Fixture`]. Nothing waits: time moves when the fixture moves it.
//!
//! # Mounting it
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of every case.
//! There is one list of cases, so that no store can leave one out.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use axum_idempotency::{
//!     ManualClock,
//!     archive::{Archive, MemoryArchive},
//!     conformance::Fixture,
//!     store::{MemoryStore, Store},
//! };
//!
//! struct Memory {
//!     clock: ManualClock,
//!     store: MemoryStore,
//!     archive: MemoryArchive,
//! }
//!
//! impl Memory {
//!     fn new() -> Self {
//!         let clock = ManualClock::default();
//!         let store = MemoryStore::builder().clock(clock.clone()).build();
//!         Self { clock, store, archive: MemoryArchive::new() }
//!     }
//! }
//!
//! #[async_trait::async_trait]
//! impl Fixture for Memory {
//!     fn store(&self) -> Arc<dyn Store> {
//!         Arc::new(self.store.clone())
//!     }
//!
//!     async fn elsewhere(&self) -> Arc<dyn Store> {
//!         self.store() // there is no other process
//!     }
//!
//!     fn archive(&self) -> Option<Arc<dyn Archive>> {
//!         Some(Arc::new(self.archive.clone()))
//!     }
//!
//!     async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>> {
//!         Some(Arc::new(MemoryArchive::new().with_retention(retention)))
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//! }
//!
//! axum_idempotency::conformance_tests!(memory, Memory::new());
//!
//! // Or all in one, where there is no test harness:
//! # let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
//! # runtime.block_on(async {
//! axum_idempotency::conformance::run_all(async || Memory::new()).await;
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "spans of constants; a panic would fail the case"
)]
#![allow(
    clippy::wildcard_imports,
    reason = "the cases are written in the words of `support`"
)]

use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{archive::Archive, store::Store};

mod age;
mod amend;
mod archive;
mod cancel;
mod cases;
mod claim;
mod complete;
mod erase;
mod handles;
mod inspect;
mod inspect_archive;
mod lease;
mod open_at;
mod order;
mod owner;
mod race;
mod release;
mod renew;
mod replay;
mod retention;
mod scheme;
mod stand_in;
mod support;
mod sweep;
mod sweep_race;
mod ttl;
mod two_phases;

/// A store to test, and what surrounds it. Every case gets one of its own, in
/// which nothing is stored yet.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The store. Each call gives another handle of it, such as
    /// `Arc::new(self.store.clone())`.
    fn store(&self) -> Arc<dyn Store>;

    /// The store as another process sees it: opened anew on the same database,
    /// under the same clock. A store that lives in one process gives another
    /// handle.
    async fn elsewhere(&self) -> Arc<dyn Store>;

    /// The archive that the store is swept into, empty, of unlimited
    /// retention; in the same database or another. Without one the cases that
    /// need an archive are skipped, which is printed.
    fn archive(&self) -> Option<Arc<dyn Archive>>;

    /// An empty archive of this retention, unless the kind of archive has none.
    async fn archive_keeping(&self, retention: Duration) -> Option<Arc<dyn Archive>>;

    /// Moves the store's clock forward. It may also run by itself, as a
    /// server's does: add an offset to that one.
    async fn advance(&self, by: Duration);

    /// Whether store and archive can tell an operator what there is: whether
    /// their `inspect` gives something. Default: true. Where it is false, the
    /// cases about that are skipped, which is printed.
    fn is_inspected(&self) -> bool {
        true
    }
}

/// One thing that a store or an archive has to do.
#[derive(Clone, Copy)]
pub struct Case {
    topic: &'static str,
    name: &'static str,
    run: fn(&dyn Fixture) -> BoxFuture<'_, ()>,
}

impl Case {
    /// What the case is about, such as `lease`.
    #[must_use]
    pub fn topic(&self) -> &'static str {
        self.topic
    }

    /// What it shows, such as `a_lapsed_lease_is_taken_over`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the case on a fresh fixture, on a multi-threaded tokio runtime.
    ///
    /// # Panics
    ///
    /// When the store does not conform: the message says what was expected.
    pub async fn run(&self, fixture: &dyn Fixture) {
        (self.run)(fixture).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.topic, self.name)
    }
}

/// All cases, in the order of their topics.
#[must_use]
pub fn cases() -> &'static [Case] {
    cases::CASES
}

/// Runs every case on a fixture of its own. To be called on a multi-threaded
/// tokio runtime, so that the races are races.
///
/// # Panics
///
/// When a case fails, after all have run; the message names all that failed.
pub async fn run_all<F: Fixture>(fixture: impl AsyncFn() -> F) {
    let mut failures = Vec::new();
    for case in cases() {
        let fixture = fixture().await;
        let run = AssertUnwindSafe(case.run(&fixture)).catch_unwind();
        if let Err(panic) = run.await {
            failures.push(format!("{case:?}: {}", message(&*panic)));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases failed:\n{}",
        failures.len(),
        cases().len(),
        failures.join("\n"),
    );
}

/// What a test made by [`conformance_tests!`](crate::conformance_tests) does:
/// runs one case on a runtime of its own.
#[doc(hidden)]
pub fn run_case<F: Fixture>(topic: &str, name: &str, fixture: impl AsyncFnOnce() -> F) {
    let case = cases()
        .iter()
        .find(|case| case.topic == topic && case.name == name)
        .expect("a case of the one list");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a tokio runtime");
    runtime.block_on(async {
        let fixture = fixture().await;
        case.run(&fixture).await;
    });
}

/// Makes a module with one `#[test]` for every case of the
/// [`conformance`](crate::conformance) suite.
///
/// `conformance_tests!(name, fixture)`: the module's name, and an expression
/// that makes a fresh [`Fixture`](crate::conformance::Fixture) for each test.
/// It may use what is in scope, and may `.await`.
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the fixture may need none")]
            use super::*;
            $crate::__conformance_cases! { __conformance_tests ($fixture) }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (($fixture:expr) $($topic:ident { $($case:ident)* })*) => {
        $(
            mod $topic {
                #[allow(unused_imports, reason = "the fixture may need none")]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::conformance::run_case(
                            stringify!($topic),
                            stringify!($case),
                            async || $fixture,
                        );
                    }
                )*
            }
        )*
    };
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked")
}
