//! Group commit: what arrives together is asked in one statement.
//!
//! 1. Operations wait in a lane. Its task takes all that wait, up to
//!    [`LARGEST_BATCH`], and asks them in one statement of many rows: one round
//!    trip and one sync of the disk for all. A lone operation goes at once;
//!    [`MOST_UNDER_WAY`] statements of a lane are under way at a time.
//! 2. Three lanes, so that none waits for another's kind: attempts (claims and
//!    releases), outcomes, leases. Each keeps its connections while there is
//!    work.
//! 3. A key is in one statement of its lane at a time, so that its calls keep
//!    their order; and a statement holds its keys in their order, so that two of
//!    them never wait for each other.
//! 4. A row that somebody's transaction holds locked is passed over, and asked
//!    for again by itself: the others go on.
//! 5. A batch that fails is run again row by row, beside the lane, so that one
//!    bad row hurts nobody else.
//! 6. What is repeatable is repeated when a connection breaks, so that a commit
//!    of unknown result ends with the right owner.
//! 7. Answers are given after the commit. What was sent is run, whether or not
//!    its caller still waits, except for a claim.

use std::{
    collections::{HashSet, VecDeque},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use sqlx::{PgConnection, Postgres, pool::PoolConnection};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};

use super::{
    database::{Database, GRACE, Kept, Operation},
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

    type Answer: Send + 'static;

    fn key(&self) -> ScopedKey;

    /// Asks all in one statement, which holds each key once. The replies are in
    /// the order of the operations.
    fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> impl Future<Output = Result<Vec<Reply<Self::Answer>>, Failure>> + Send;

    /// The reply when a lock could not be waited for.
    fn locked(&self, _db: &Database) -> impl Future<Output = Reply<Self::Answer>> + Send {
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
    give_up_at: Instant,
    caller: oneshot::Sender<Result<O::Answer, StoreError>>,
}

impl<O: Grouped> Call<O> {
    fn answer(self, answer: Result<O::Answer, StoreError>) {
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
        loop {
            while under_way.len() < MOST_UNDER_WAY
                && let Some(batch) = self.next_batch()
            {
                let batch = batch.ask(Arc::clone(&self.db), self.back.clone(), self.idle.pop());
                under_way.push(batch);
            }
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
                () = sleep(KEPT_WHEN_IDLE), if !self.idle.is_empty() => self.idle.clear(),
            }
        }
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

/// Calls that go together, each key once.
#[derive(Default)]
struct Batch {
    keys: Vec<ScopedKey>,
    claims: Vec<Call<ClaimRequest>>,
    releases: Vec<Call<Release>>,
    completions: Vec<Call<Complete>>,
    renewals: Vec<Call<Renewal>>,
}

impl Batch {
    fn add(&mut self, job: Job) {
        match job {
            Job::Claim(call) => self.claims.push(call),
            Job::Release(call) => self.releases.push(call),
            Job::Complete(call) => self.completions.push(call),
            Job::Renew(call) => self.renewals.push(call),
        }
    }

    /// Asks all, and gives back the connection and the keys.
    async fn ask(
        self,
        db: Arc<Database>,
        back: mpsc::WeakSender<Job>,
        mut kept: Kept,
    ) -> (Kept, Vec<ScopedKey>) {
        ask_together(self.claims, &db, &back, &mut kept).await;
        ask_together(self.releases, &db, &back, &mut kept).await;
        ask_together(self.completions, &db, &back, &mut kept).await;
        ask_together(self.renewals, &db, &back, &mut kept).await;
        (kept, self.keys)
    }
}

async fn ask_together<O>(
    mut calls: Vec<Call<O>>,
    db: &Arc<Database>,
    back: &mpsc::WeakSender<Job>,
    kept: &mut Kept,
) where
    O: Grouped,
    Call<O>: Into<Job>,
{
    if calls.is_empty() {
        return;
    }
    calls.sort_by_cached_key(|call| call.operation.key().to_string());
    let together = Together(calls);
    let asked = db.run_on(kept, &together).await;
    let calls = together.0;
    match asked {
        Ok(replies) => settle(calls, replies, db, back),
        Err(failure) if calls.len() > 1 && failure.may_be_of_one_row() => {
            ask_one_by_one(calls, &failure, db, back);
        }
        Err(failure) if failure.is_locked() => pass_over(calls, db, back).await,
        Err(failure) => fail(calls, &failure),
    }
}

/// What a lone call leads to that waited for a lock in vain.
async fn pass_over<O>(calls: Vec<Call<O>>, db: &Arc<Database>, back: &mpsc::WeakSender<Job>)
where
    O: Grouped,
    Call<O>: Into<Job>,
{
    let mut replies = Vec::with_capacity(calls.len());
    for call in &calls {
        replies.push(O::locked(&call.operation, db).await);
    }
    settle(calls, replies, db, back);
}

/// Beside the lane: whoever waits for the bad row waits alone.
fn ask_one_by_one<O>(
    calls: Vec<Call<O>>,
    failure: &Failure,
    db: &Arc<Database>,
    back: &mpsc::WeakSender<Job>,
) where
    O: Grouped,
    Call<O>: Into<Job>,
{
    tracing::warn!(
        error = %failure,
        operations = calls.len(),
        "idempotency store: a statement failed, its operations are run one by one",
    );
    let (own, back) = (Arc::clone(db), back.clone());
    db.tasks.spawn(async move {
        let mut kept = None;
        for call in calls {
            let alone = Together(vec![call]);
            match own.run_on(&mut kept, &alone).await {
                Ok(replies) => settle(alone.0, replies, &own, &back),
                Err(failure) if failure.is_locked() => pass_over(alone.0, &own, &back).await,
                Err(failure) => fail(alone.0, &failure),
            }
        }
    });
}

fn settle<O>(
    calls: Vec<Call<O>>,
    replies: Vec<Reply<O::Answer>>,
    db: &Arc<Database>,
    back: &mpsc::WeakSender<Job>,
) where
    O: Grouped,
    Call<O>: Into<Job>,
{
    for (call, reply) in calls.into_iter().zip(replies) {
        match reply {
            Reply::Answer(answer) => call.answer(answer),
            Reply::AskAgain => ask_again(call, db, back),
        }
    }
}

/// Asks again after a while, longer each time, until the caller's patience is
/// over.
fn ask_again<O>(mut call: Call<O>, db: &Arc<Database>, back: &mpsc::WeakSender<Job>)
where
    O: Grouped,
    Call<O>: Into<Job>,
{
    let pause = LONGEST_PAUSE.min(FIRST_PAUSE * call.asked * call.asked);
    call.asked += 1;
    let back = back.clone();
    db.tasks.spawn(async move {
        if Instant::now() + pause >= call.give_up_at {
            let why = "a transaction holds the record locked";
            return call.answer(Err(StoreError::unavailable(O::WHAT, why)));
        }
        sleep(pause).await;
        // Without a lane the store is closed, and the caller learns it from
        // the channel that ends.
        if let Some(lane) = back.upgrade() {
            let _closed = lane.send(call.into()).await;
        }
    });
}

fn fail<O: Grouped>(calls: Vec<Call<O>>, failure: &Failure) {
    for call in calls {
        call.answer(Err(failure.to_store_error(O::WHAT)));
    }
}

/// Calls of one kind, in the order of their keys, in one statement.
struct Together<O: Grouped>(Vec<Call<O>>);

impl<O: Grouped> Operation for Together<O> {
    const WHAT: &'static str = O::WHAT;
    const REPEATABLE: bool = true;

    type Answer = Vec<Reply<O::Answer>>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Self::Answer, Failure> {
        O::ask(&self.0, db, conn).await
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
const MOST_UNDER_WAY: usize = 2;

/// Most operations that wait; the next caller waits for a place.
const LONGEST_QUEUE: usize = 4096;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// For how long an idle lane keeps its connections.
const KEPT_WHEN_IDLE: Duration = Duration::from_secs(30);
