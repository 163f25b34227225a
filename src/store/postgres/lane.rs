//! Group commit: what arrives together is asked in one statement.
//!
//! 1. Operations wait in a lane. Its task takes all that wait, up to
//!    [`LARGEST_BATCH`], and asks them in one statement of many rows: one round
//!    trip and one sync of the disk for all. A lone operation goes at once.
//! 2. Three lanes, so that none waits for another's kind: attempts (claims and
//!    releases, in their order), outcomes, leases. Each keeps its connection for
//!    as long as there is work.
//! 3. A statement holds each key once, in the order of the keys, so that two of
//!    them never wait for each other.
//! 4. A row that somebody's transaction holds locked is passed over, and asked
//!    for again by itself: the others go on.
//! 5. A batch that fails is run again row by row, beside the lane, so that one
//!    bad row hurts nobody else.
//! 6. What is repeatable is repeated when a connection breaks, so that a commit
//!    of unknown result ends with the right owner.
//! 7. Answers are given after the commit. What was sent is run, whether or not
//!    its caller still waits.

use std::{collections::VecDeque, future::Future, sync::Arc, time::Duration};

use sqlx::PgConnection;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};

use super::{
    database::{Database, Kept, Operation},
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

    /// About how many bytes it adds to the statement.
    fn weight(&self) -> usize {
        0
    }

    /// Asks all in one statement, which holds each key once. The replies are in
    /// the order of the operations.
    fn ask(
        batch: &[Call<Self>],
        db: &Database,
        conn: &mut PgConnection,
    ) -> impl Future<Output = Result<Vec<Reply<Self::Answer>>, Failure>> + Send;
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
        let job: Job = Call {
            operation,
            asked: 0,
            give_up_at: Instant::now() + patience,
            caller,
        }
        .into();
        let lane = match &job {
            Job::Claim(_) | Job::Release(_) => &self.attempts,
            Job::Complete(_) => &self.outcomes,
            Job::Renew(_) => &self.leases,
        };
        let sent = lane.jobs.send(job).await;
        sent.map_err(|_| StoreError::unavailable(O::WHAT, "the store is closed"))?;
        answer
            .await
            .map_err(|_| StoreError::unavailable(O::WHAT, "the store's task has ended"))?
    }
}

#[derive(Debug)]
struct Lane {
    jobs: mpsc::Sender<Job>,
}

impl Lane {
    fn spawn(db: &Arc<Database>) -> Self {
        let (jobs, waiting) = mpsc::channel(LONGEST_QUEUE);
        let task = Task {
            db: Arc::clone(db),
            waiting,
            back: jobs.downgrade(),
            kept: None,
            kept_since: Instant::now(),
        };
        db.tasks.spawn(task.run());
        Self { jobs }
    }
}

struct Task {
    db: Arc<Database>,
    waiting: mpsc::Receiver<Job>,
    /// For what has to be asked again.
    back: mpsc::WeakSender<Job>,
    kept: Kept,
    kept_since: Instant,
}

impl Task {
    async fn run(mut self) {
        let mut jobs = Vec::with_capacity(LARGEST_BATCH);
        loop {
            tokio::select! {
                biased;
                () = self.db.closing.cancelled(), if !self.waiting.is_closed() => self.waiting.close(),
                taken = timeout(KEPT_WHEN_IDLE, self.waiting.recv_many(&mut jobs, LARGEST_BATCH)) => match taken {
                    Ok(0) => break,
                    Ok(_) => self.ask_all(&mut jobs).await,
                    Err(_idle) => self.kept = None,
                },
            }
        }
    }

    async fn ask_all(&mut self, jobs: &mut Vec<Job>) {
        if self.kept.is_none() || self.kept_since.elapsed() > KEPT_AT_MOST {
            self.kept = None;
            self.kept_since = Instant::now();
        }
        let (mut claims, mut releases) = (Vec::new(), Vec::new());
        let (mut completions, mut renewals) = (Vec::new(), Vec::new());
        for job in jobs.drain(..) {
            match job {
                Job::Claim(call) => claims.push(call),
                Job::Release(call) => releases.push(call),
                Job::Complete(call) => completions.push(call),
                Job::Renew(call) => renewals.push(call),
            }
        }
        self.ask_kind(claims).await;
        // A claim is on its way before its own release.
        self.ask_kind(releases).await;
        self.ask_kind(completions).await;
        self.ask_kind(renewals).await;
    }

    async fn ask_kind<O>(&mut self, calls: Vec<Call<O>>)
    where
        O: Grouped,
        Call<O>: Into<Job>,
    {
        let mut left = VecDeque::from(calls);
        while !left.is_empty() {
            let batch = Batch(next_batch(&mut left));
            match self.db.run_on(&mut self.kept, &batch).await {
                Ok(replies) => {
                    for (call, reply) in batch.0.into_iter().zip(replies) {
                        self.settle(call, reply);
                    }
                }
                Err(failure) if batch.0.len() > 1 && failure.may_be_of_one_row() => {
                    self.ask_one_by_one(batch.0, &failure);
                }
                Err(failure) => fail(batch.0, &failure),
            }
        }
    }

    fn settle<O>(&self, call: Call<O>, reply: Reply<O::Answer>)
    where
        O: Grouped,
        Call<O>: Into<Job>,
    {
        match reply {
            Reply::Answer(answer) => call.answer(answer),
            Reply::AskAgain => ask_again(&self.db, self.back.clone(), call),
        }
    }

    /// Beside the lane: whoever waits for the bad row waits alone.
    fn ask_one_by_one<O>(&self, calls: Vec<Call<O>>, failure: &Failure)
    where
        O: Grouped,
        Call<O>: Into<Job>,
    {
        tracing::warn!(
            error = %failure,
            operations = calls.len(),
            "idempotency store: a statement failed, its operations are run one by one",
        );
        let (db, back) = (Arc::clone(&self.db), self.back.clone());
        self.db.tasks.spawn(async move {
            let mut kept = None;
            for call in calls {
                let one = Batch(vec![call]);
                match db.run_on(&mut kept, &one).await {
                    Ok(replies) => {
                        for (call, reply) in one.0.into_iter().zip(replies) {
                            match reply {
                                Reply::Answer(answer) => call.answer(answer),
                                Reply::AskAgain => ask_again(&db, back.clone(), call),
                            }
                        }
                    }
                    Err(failure) => fail(one.0, &failure),
                }
            }
        });
    }
}

/// Asks again after a while, longer each time, until the caller's patience is
/// over.
fn ask_again<O>(db: &Arc<Database>, back: mpsc::WeakSender<Job>, mut call: Call<O>)
where
    O: Grouped,
    Call<O>: Into<Job>,
{
    let pause = LONGEST_PAUSE.min(FIRST_PAUSE * call.asked * call.asked);
    call.asked += 1;
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

/// The first call of each key, in the order of the keys, up to a size.
fn next_batch<O: Grouped>(left: &mut VecDeque<Call<O>>) -> Vec<Call<O>> {
    let mut batch: Vec<(String, Call<O>)> = Vec::with_capacity(left.len());
    let mut keys = std::collections::HashSet::with_capacity(left.len());
    let mut weight = 0;
    for _ in 0..left.len() {
        let Some(call) = left.pop_front() else { break };
        let fits = weight == 0 || weight + call.operation.weight() <= HEAVIEST_BATCH;
        if fits && keys.insert(call.operation.key()) {
            weight += call.operation.weight();
            batch.push((call.operation.key().to_string(), call));
        } else {
            // Later calls of its key stay behind it.
            keys.insert(call.operation.key());
            left.push_back(call);
        }
    }
    batch.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    batch.into_iter().map(|(_, call)| call).collect()
}

/// Calls that are asked in one statement.
struct Batch<O: Grouped>(Vec<Call<O>>);

impl<O: Grouped> Operation for Batch<O> {
    const WHAT: &'static str = O::WHAT;
    const REPEATABLE: bool = true;

    type Answer = Vec<Reply<O::Answer>>;

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Self::Answer, Failure> {
        O::ask(&self.0, db, conn).await
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

/// Most operations that wait; the next caller waits for a place.
const LONGEST_QUEUE: usize = 4096;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// For how long an idle lane keeps its connection, and a busy one.
const KEPT_WHEN_IDLE: Duration = Duration::from_secs(30);
const KEPT_AT_MOST: Duration = Duration::from_mins(10);
