//! Queue workers: the same claim, leases and archive without HTTP.
//!
//! A queue delivers a message at least once. A [`Worker`] claims the message's
//! id before anything is done for it, so that another delivery of it, in any
//! process, is told that it is done or under way.
//!
//! ```
//! use axum_idempotency::{
//!     ResourceId, archive::MemoryArchive, store::MemoryStore,
//!     worker::{Delivery, Worker},
//! };
//!
//! # async fn work() -> Result<(), Box<dyn std::error::Error>> {
//! let worker = Worker::builder("payouts", MemoryStore::new())
//!     .archive(MemoryArchive::new())
//!     .build()?;
//!
//! match worker.claim("payout-42").await? {
//!     Delivery::Claimed(job) => {
//!         // The payment service gets the same key at every attempt.
//!         let key = job.idempotency().derive("bank");
//!         let paid = ResourceId::new("po_42");
//!         # let _ = key;
//!         job.complete(paid).await?; // then delete the message from its queue
//!     }
//!     Delivery::Done(_) => {} // delete the message
//!     Delivery::InFlight { retry_after } => {
//!         // leave the message in its queue for so long
//!         # let _ = retry_after;
//!     }
//!     Delivery::Unknown { .. } => {} // for somebody to look at
//! }
//! assert!(matches!(worker.claim("payout-42").await?, Delivery::Done(_)));
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(work()).unwrap();
//! ```
//!
//! Make one worker a process, and start the [sweeper](IdempotencyLayer::sweeper) of
//! its [`layer`](Worker::layer), which moves what is over into the archive.
//!
//! A crash between the effect and [`Job::complete`] has the message run again,
//! as a second [attempt](Idempotency::attempt). Where the effect is in the
//! store's own database, commit both together instead:
//! [`PostgresStore::enlist`](crate::store::postgres::PostgresStore::enlist)
//! takes the job's [`Idempotency`] and a transaction. The example `worker` does
//! so with a table as its queue.
//!
//! Another lease and other lifetimes, and at most one attempt:
//!
//! ```
//! use std::time::Duration;
//! use axum_idempotency::{Abandoned, Ttl, store::MemoryStore, worker::Worker};
//!
//! # fn worker() -> Result<(), Box<dyn std::error::Error>> {
//! let worker = Worker::builder("payouts", MemoryStore::new())
//!     .ttl(Ttl::new(Duration::from_secs(14 * 86_400))?)
//!     .lease(Duration::from_secs(10))
//!     .max_lease(Duration::from_secs(3_600))
//!     .abandoned(Abandoned::Refuse)
//!     .build()?;
//! # Ok(()) }
//! # worker().unwrap();
//! ```

use std::{error::Error, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{runtime::Handle, task::JoinHandle};
use tracing::Instrument as _;

use crate::{
    archive::Archive,
    claim::{Abandoned, ArchiveLookup},
    fingerprint::FingerprintOptions,
    flow::{Message, take},
    handler::Idempotency,
    key::{IdempotencyKey, KeyError},
    layer::IdempotencyLayer,
    policy::{ConfigError, Duplicate, Policy, PolicyBuilder, PrincipalSource},
    record::{Completion, ResourceId},
    rejection::Rejection,
    scope::{Principal, ScopeSecret},
    store::{Store, StoreError},
    ttl::Ttl,
};

/// Claims the messages of one queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Worker {
    layer: IdempotencyLayer,
    queue: Principal,
}

impl Worker {
    /// A worker for the messages of `queue`, whose ids are its own: another
    /// queue's, a webhook's or a client's key never meets them.
    pub fn builder(queue: impl AsRef<[u8]>, store: impl Store) -> WorkerBuilder {
        Self::builder_dyn(queue, Arc::new(store))
    }

    /// The same over a store that is chosen at run time.
    pub fn builder_dyn(queue: impl AsRef<[u8]>, store: Arc<dyn Store>) -> WorkerBuilder {
        let queue = Principal::queue(queue);
        let principal = queue.clone();
        let find = move |_: &http::request::Parts| Some(principal.clone());
        WorkerBuilder {
            policy: Policy::builder(PrincipalSource::from_fn(find))
                .fingerprint(FingerprintOptions::none())
                .duplicate(Duplicate::Acknowledge),
            queue,
            store,
            archive: None,
            secret: None,
            lookup: None,
        }
    }

    /// Claims a message by its id: any text of 1 to 255 bytes that is the same at
    /// every delivery ([`IdempotencyKey::from_id`]). Prefer the producer's own id, such as an order's, to one that
    /// the queue gave: then a message that was sent twice runs once, too.
    ///
    /// Dropping the future is safe: a claim that was won is given back.
    ///
    /// # Errors
    ///
    /// [`WorkerError::Id`] for an id that cannot be used;
    /// [`WorkerError::Unavailable`] and [`WorkerError::Full`] when the store or
    /// the archive cannot say. Nothing runs then: leave the message in its
    /// queue.
    pub async fn claim(&self, id: &str) -> Result<Delivery, WorkerError> {
        let key = IdempotencyKey::from_id(id).map_err(WorkerError::Id)?;
        let setup = Arc::clone(self.layer.setup());
        let queue = self.queue.clone();
        // On its own, so that no claim is left behind whose caller has gone.
        let runtime = Handle::current();
        let claim = self.spawn(async move {
            let message = Some(take(setup, queue, key).await?);
            Ok(Offered { message, runtime })
        });
        match claim.await {
            Ok(Ok(offered)) => {
                let accepted = offered.accept().map(Delivery::Claimed);
                accepted.ok_or(WorkerError::Unavailable)
            }
            Ok(Err(rejection)) => Delivery::of(rejection),
            Err(_) => Err(WorkerError::Unavailable),
        }
    }

    /// A task that goes on when its caller has gone, in the span of its caller;
    /// shutdown waits for it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let tasks = &self.layer.setup().handle.tasks;
        tasks.spawn(task.in_current_span())
    }

    /// The layer over the same store and archive, for its
    /// [sweeper](IdempotencyLayer::sweeper), its
    /// [settling of outcomes](IdempotencyLayer::settle) and its
    /// [shutdown](IdempotencyLayer::shutdown), which waits for jobs.
    pub fn layer(&self) -> &IdempotencyLayer {
        &self.layer
    }
}

/// What is to be done with a message.
#[derive(Debug)]
pub enum Delivery {
    /// It is yours to do.
    Claimed(Job),
    /// It has been done: take it off its queue.
    Done(Done),
    /// Another delivery of it is under way: try again after this time.
    InFlight {
        /// Until its lease is over, unless that is renewed.
        retry_after: Duration,
    },
    /// An attempt was made, its outcome is not known, and nothing may run again:
    /// under [`Abandoned::Refuse`].
    Unknown {
        /// When the message was first claimed, where that is known.
        created_at: Option<Timestamp>,
    },
}

/// What is known of a message that has been done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// What it made.
    pub resource_id: Option<ResourceId>,
    /// When it was first claimed.
    pub created_at: Option<Timestamp>,
}

impl Delivery {
    fn of(rejection: Rejection) -> Result<Self, WorkerError> {
        match rejection {
            Rejection::InProgress { retry_after } => Ok(Self::InFlight {
                retry_after: Duration::from_secs(retry_after),
            }),
            Rejection::ResponseNotKept {
                resource_id,
                created_at,
                ..
            } => Ok(Self::Done(Done {
                resource_id,
                created_at: Some(created_at),
            })),
            Rejection::KeyExpired(late) if late.original_status.is_some() => Ok(Self::Done(Done {
                resource_id: late.resource_id,
                created_at: late.created_at,
            })),
            Rejection::KeyExpired(late) => Ok(Self::Unknown {
                created_at: late.created_at,
            }),
            Rejection::OutcomeUnknown { created_at } => Ok(Self::Unknown { created_at }),
            Rejection::KeyInvalid { reason } => Err(WorkerError::Id(reason)),
            Rejection::StoreFull { .. } => Err(WorkerError::Full),
            _ => Err(WorkerError::Unavailable),
        }
    }
}

/// A message that is claimed. Its lease is renewed until it ends, for the
/// longest lease at most. After that the message runs again at its next
/// delivery, in this process too, though this one has not ended:
/// [`lease_lost`](Idempotency::lease_lost) tells.
///
/// Dropped, it is left without an outcome, as by a crash: the message runs again
/// once the lease has lapsed, as another attempt.
///
/// It may end on any thread, also outside the runtime that it was claimed in.
#[derive(Debug)]
pub struct Job {
    message: Message,
    runtime: Handle,
}

impl Job {
    /// The attempt: its number, its lease, [`derive`](Idempotency::derive), and
    /// what a store's `enlist` takes.
    pub fn idempotency(&self) -> &Idempotency {
        self.message.idempotency()
    }

    /// Has the lease run from now, beside what happens by itself: for a worker
    /// that wants to know, before an irreversible step, that the message is
    /// still its own. False when it is not.
    ///
    /// # Errors
    ///
    /// That of the store: then nobody knows.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        self.message.renew().await
    }

    /// Records that the message is done, and what it made. What the store cannot
    /// be told now it is told in the background, while the lease is renewed.
    /// After a [`Work::commit`](crate::store::Work::commit) there is nothing
    /// left to record, and it succeeds.
    ///
    /// # Errors
    ///
    /// [`WorkerError::Superseded`] when another attempt has taken over, so that
    /// this one's outcome does not stand.
    pub async fn complete(self, resource_id: Option<ResourceId>) -> Result<(), WorkerError> {
        let completion = Completion {
            status: DONE,
            resource_id,
            response: None,
        };
        let told = self.message.complete(completion);
        match self.runtime.spawn(told.in_current_span()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(WorkerError::Superseded),
            Err(_) => Err(WorkerError::Unavailable),
        }
    }

    /// Gives the message back because nothing was done for it: it runs again at
    /// the next delivery. False when it has been done, or is another attempt's.
    pub async fn release(self) -> bool {
        let released = self.message.release().in_current_span();
        self.runtime.spawn(released).await.unwrap_or(false)
    }
}

/// A claim on its way to its caller. If that has gone, it is given back: nothing
/// was done under it.
#[derive(Debug)]
struct Offered {
    message: Option<Message>,
    runtime: Handle,
}

impl Offered {
    fn accept(mut self) -> Option<Job> {
        let runtime = self.runtime.clone();
        let message = self.message.take();
        message.map(|message| Job { message, runtime })
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.runtime.spawn(message.release());
        }
    }
}

/// Collects what a [`Worker`] works with.
#[derive(Debug)]
#[must_use]
pub struct WorkerBuilder {
    policy: PolicyBuilder,
    queue: Principal,
    store: Arc<dyn Store>,
    archive: Option<Arc<dyn Archive>>,
    secret: Option<ScopeSecret>,
    lookup: Option<ArchiveLookup>,
}

impl WorkerBuilder {
    /// Where expired records go. Without one, an expired message is unknown and
    /// runs again.
    pub fn archive(self, archive: impl Archive) -> Self {
        self.archive_dyn(Arc::new(archive))
    }

    /// The same for an archive that is chosen at run time.
    pub fn archive_dyn(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self
    }

    /// How long it is known from the live store that a message was done: longer
    /// than any redelivery takes. Default: 24 hours.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.policy = self.policy.ttl(ttl);
        self
    }

    /// How long a message belongs to its attempt unless the lease is renewed:
    /// so, how long it is blocked after a crash. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.policy = self.policy.lease(lease);
        self
    }

    /// For how long at most the lease of a job is renewed. Default: 10 min.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.policy = self.policy.max_lease(max_lease);
        self
    }

    /// What becomes of a message whose attempt ended without an outcome.
    /// Default: [`Abandoned::TakeOver`].
    pub fn abandoned(mut self, abandoned: Abandoned) -> Self {
        self.policy = self.policy.abandoned(abandoned);
        self
    }

    /// When the archive is asked about a fresh message. Default:
    /// [`ArchiveLookup::AllKeys`] where there is one.
    pub fn archive_lookup(mut self, lookup: ArchiveLookup) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// How long a call to the store or the archive may take before it counts
    /// as unreachable. Default: 5 s.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.policy = self.policy.store_timeout(timeout);
        self
    }

    /// As [`IdempotencyLayerBuilder::scope_secret`](crate::IdempotencyLayerBuilder::scope_secret).
    pub fn scope_secret(mut self, secret: ScopeSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The worker.
    ///
    /// # Errors
    ///
    /// The first thing that cannot work; see [`ConfigError`].
    pub fn build(self) -> Result<Worker, ConfigError> {
        let lookup = self.lookup.unwrap_or(match self.archive {
            Some(_) => ArchiveLookup::AllKeys,
            None => ArchiveLookup::TimestampedKeys,
        });
        let policy = self.policy.archive_lookup(lookup).build()?;
        let mut layer = IdempotencyLayer::builder_dyn(self.store).policy(policy);
        if let Some(archive) = self.archive {
            layer = layer.archive_dyn(archive);
        }
        if let Some(secret) = self.secret {
            layer = layer.scope_secret(secret);
        }
        Ok(Worker {
            layer: layer.build()?,
            queue: self.queue,
        })
    }
}

/// Why a message could not be claimed, or its end not be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerError {
    /// The id cannot be used.
    Id(KeyError),
    /// The store or the archive cannot be reached, or is too slow; the log says
    /// why. Nothing may be done for the message now.
    Unavailable,
    /// The store has no room for another message.
    Full,
    /// Another attempt has taken over.
    Superseded,
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id(_) => "the id of the message cannot be used",
            Self::Unavailable => "the store or the archive cannot be reached",
            Self::Full => "the store has no room for another message",
            Self::Superseded => "another attempt has taken over: this one's outcome does not stand",
        })
    }
}

impl Error for WorkerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Id(error) => Some(error),
            _ => None,
        }
    }
}

const DONE: u16 = 200;
