//! Group commit: what arrives together is asked in one statement.
//!
//! 1. Operations wait in a lane. Its task takes all that wait, up to
//!    [`LARGEST_BATCH`], and asks them in one statement of many rows: one round
//!    trip and one sync of the disk for all. A lone operation goes at once.
//!    Two statements of a lane are under way at a time, and up to
//!    [`MOST_UNDER_WAY`] while they are slow.
//! 2. Three lanes, so that none waits for another's kind: attempts (claims and
//!    releases), outcomes, leases. Each keeps its connections while there is
//!    work.
//! 3. A key is in one statement of its lane at a time, so that its calls keep
//!    their order; and a statement holds its keys in their order, so that two of
//!    them never wait for each other.
//! 4. A row that somebody's transaction holds locked is passed over, and asked
//!    for again by itself: the others go on.
//! 5. A batch that fails is run again beside the lane, half and half until the
//!    bad row is alone, so that it hurts nobody else.
//! 6. What is repeatable is repeated when a connection breaks, so that a commit
//!    of unknown result ends with the right owner.
//! 7. Answers are given after the commit. What was sent is run, whether or not
//!    its caller still waits, except for a claim.

use std::{
    collections::{HashSet, VecDeque},
    future::Future,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use sqlx::{PgConnection, Postgres, pool::PoolConnection};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    batch::Batch,
    database::{Database, GRACE},
    error::Failure,
    outcomes::{Complete, Release},
};
use crate::{
    claim::ClaimRequest,
    scope::ScopedKey,
    store::{Renewal, StoreError},
};

/// An operation on one record that can be asked together with others.
pub(super) trait Grouped: Send + Sync + Sized + 'static {
    const WHAT: &'static str;
    /// Its name in the metrics.
    const STATEMENT: &'static str;

    type Answer: Send + 'static;

    fn key(&self) -> ScopedKey;

    /// Asks all in one statement, which holds each key once. The replies are in
    /// the order of the operations.
    fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> impl Future<Output = Result<Vec<Reply<Self::Answer>>, Failure>> + Send;

    /// The reply when a lock could not be waited for, after so many times.
    fn locked(
        &self,
        _asked: u32,
        _db: &Database,
    ) -> impl Future<Output = Reply<Self::Answer>> + Send {
        async { Reply::AskAgain }
    }
}

pub(super) enum Reply<A> {
    Answer(Result<A, StoreError>),
    /// Somebody was faster, or holds the row locked.
    AskAgain,
}

/// An operation with its caller.
pub(super) struct Call<O: Grouped> {
    pub(super) operation: O,
    /// How often it has been asked without an answer.
    pub(super) asked: u32,
    /// Whether a statement that holds it may be under way on a connection that
    /// broke.
    pub(super) in_doubt: AtomicBool,
    pub(super) give_up_at: Instant,
    caller: oneshot::Sender<Result<O::Answer, StoreError>>,
}

impl<O: Grouped> Call<O> {
    pub(super) fn answer(self, answer: Result<O::Answer, StoreError>) {
        // A caller that has gone does not want to know.
        let _ = self.caller.send(answer);
    }
}

pub(super) enum Job {
    Claim(Call<ClaimRequest>),
    Release(Call<Release>),
    Complete(Call<Complete>),
    Renew(Call<Renewal>),
}

/// The ways to the tasks. These end when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Lanes {
    attempts: Lane,
    outcomes: Lane,
    leases: Lane,
}

impl Lanes {
    /// Starts the tasks on the current runtime.
    pub(super) fn spawn(db: &Arc<Database>) -> Self {
        Self {
            attempts: Lane::spawn(db),
            outcomes: Lane::spawn(db),
            leases: Lane::spawn(db),
        }
    }

    /// Asks and waits for the answer.
    pub(super) async fn ask<O>(
        &self,
        operation: O,
        patience: Duration,
    ) -> Result<O::Answer, StoreError>
    where
        O: Grouped,
        Call<O>: Into<Job>,
    {
        let (caller, answer) = oneshot::channel();
        let give_up_at = Instant::now() + patience;
        let job: Job = Call {
            operation,
            asked: 0,
            in_doubt: AtomicBool::new(false),
            give_up_at,
            caller,
        }
        .into();
        let lane = match &job {
            Job::Claim(_) | Job::Release(_) => &self.attempts,
            Job::Complete(_) => &self.outcomes,
            Job::Renew(_) => &self.leases,
        };
        let answered = async {
            let sent = lane.jobs.send(job).await;
            sent.map_err(|_| StoreError::unavailable(O::WHAT, "the store is closed"))?;
            answer
                .await
                .map_err(|_| StoreError::unavailable(O::WHAT, "the store's task has ended"))?
        };
        // Batches that nobody answers may be ahead of its own, which tells more
        // when it ends in time.
        timeout_at(give_up_at + 2 * GRACE, answered)
            .await
            .unwrap_or_else(|_| Err(StoreError::unavailable(O::WHAT, "no answer in time")))
    }
}

#[derive(Debug)]
struct Lane {
    jobs: mpsc::Sender<Job>,
}

impl Lane {
    fn spawn(db: &Arc<Database>) -> Self {
        let (sender, jobs) = mpsc::channel(LONGEST_QUEUE);
        let task = Task {
            db: Arc::clone(db),
            jobs,
            back: sender.downgrade(),
            waiting: VecDeque::new(),
            busy: HashSet::new(),
            idle: Vec::new(),
            is_drained: false,
        };
        db.tasks.spawn(task.run());
        Self { jobs: sender }
    }
}

struct Task {
    db: Arc<Database>,
    jobs: mpsc::Receiver<Job>,
    /// For what has to be asked again.
    back: mpsc::WeakSender<Job>,
    waiting: VecDeque<Job>,
    /// The keys of the batches under way: what a key's calls lead to depends on
    /// their order.
    busy: HashSet<ScopedKey>,
    idle: Vec<PoolConnection<Postgres>>,
    /// Nothing more will come.
    is_drained: bool,
}

impl Task {
    async fn run(mut self) {
        let mut under_way = FuturesUnordered::new();
        let mut taken = Vec::with_capacity(LARGEST_BATCH);
        let mut last_sent = Instant::now();
        loop {
            let next = loop {
                let next = self.next_is_due(under_way.len(), last_sent);
                if next.is_none_or(|next| next > Instant::now()) {
                    break next;
                }
                let Some(batch) = self.next_batch() else {
                    break None;
                };
                let batch = batch.ask(Arc::clone(&self.db), self.back.clone(), self.idle.pop());
                under_way.push(batch);
                last_sent = Instant::now();
            };
            if self.is_drained && under_way.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = self.db.closing.cancelled(), if !self.jobs.is_closed() => self.jobs.close(),
                Some((kept, keys)) = under_way.next() => {
                    for key in keys {
                        self.busy.remove(&key);
                    }
                    self.idle.extend(kept.filter(|_| self.db.has_connections_to_spare()));
                }
                count = self.jobs.recv_many(&mut taken, LARGEST_BATCH), if !self.is_drained && self.waiting.len() < LARGEST_BATCH => {
                    self.waiting.extend(taken.drain(..));
                    self.is_drained = count == 0;
                }
                () = sleep_until(next.unwrap_or(last_sent)), if next.is_some() => {}
                () = sleep(KEPT_WHEN_IDLE), if !self.idle.is_empty() => self.idle.clear(),
            }
        }
    }

    /// When another batch may go, if any waits.
    fn next_is_due(&self, under_way: usize, last_sent: Instant) -> Option<Instant> {
        let is_any = !self.waiting.is_empty() && under_way < MOST_UNDER_WAY;
        let due = if under_way < SENT_AT_ONCE {
            last_sent
        } else {
            last_sent + SENT_AFTER
        };
        is_any.then_some(due)
    }

    /// The first call of each key that is not under way, up to a size.
    fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut behind = HashSet::new();
        let mut weight = 0;
        let mut left = VecDeque::new();
        for job in self.waiting.drain(..) {
            if job.is_forgotten() {
                continue;
            }
            let (key, adds) = (job.key(), job.weight());
            let has_room = batch.keys.len() < LARGEST_BATCH
                && (weight == 0 || weight + adds <= HEAVIEST_BATCH);
            if has_room && !behind.contains(&key) && self.busy.insert(key) {
                weight += adds;
                batch.keys.push(key);
                batch.add(job);
            } else {
                behind.insert(key);
                left.push_back(job);
            }
        }
        self.waiting = left;
        (!batch.keys.is_empty()).then_some(batch)
    }
}

impl Job {
    fn key(&self) -> ScopedKey {
        match self {
            Self::Claim(call) => call.operation.key(),
            Self::Release(call) => call.operation.key(),
            Self::Complete(call) => call.operation.key(),
            Self::Renew(call) => call.operation.key(),
        }
    }

    /// A claim whose caller has gone before it was asked: it would only have to
    /// be released.
    fn is_forgotten(&self) -> bool {
        matches!(self, Self::Claim(call) if call.asked == 0 && call.caller.is_closed())
    }

    fn weight(&self) -> usize {
        match self {
            Self::Complete(call) => call.operation.weight(),
            _ => 0,
        }
    }
}

impl From<Call<ClaimRequest>> for Job {
    fn from(call: Call<ClaimRequest>) -> Self {
        Self::Claim(call)
    }
}

impl From<Call<Release>> for Job {
    fn from(call: Call<Release>) -> Self {
        Self::Release(call)
    }
}

impl From<Call<Complete>> for Job {
    fn from(call: Call<Complete>) -> Self {
        Self::Complete(call)
    }
}

impl From<Call<Renewal>> for Job {
    fn from(call: Call<Renewal>) -> Self {
        Self::Renew(call)
    }
}

/// Most operations in one statement.
const LARGEST_BATCH: usize = 256;

/// Most bytes of bodies in one statement, unless one alone has more.
const HEAVIEST_BATCH: usize = 4 << 20;

/// While one waits for the disk, the next is on its way.
const SENT_AT_ONCE: usize = 2;

/// Where disk or network are slow, so that those take longer than this, more
/// are worth their connections.
const SENT_AFTER: Duration = Duration::from_millis(1);
const MOST_UNDER_WAY: usize = 4;

/// Most operations that wait; the next caller waits for a place.
const LONGEST_QUEUE: usize = 4096;

/// For how long an idle lane keeps its connections.
const KEPT_WHEN_IDLE: Duration = Duration::from_secs(30);
