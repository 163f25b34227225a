//! One batch of a lane: from calls to answers, whatever becomes of the statement.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use sqlx::PgConnection;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{
    database::{Database, Kept, Operation},
    error::Failure,
    lane::{Call, Grouped, Job, Reply},
    outcomes::{Complete, Release},
};
use crate::{
    claim::ClaimRequest,
    metrics,
    scope::ScopedKey,
    store::{Renewal, StoreError},
};

/// Calls that go together, each key once.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) keys: Vec<ScopedKey>,
    claims: Vec<Call<ClaimRequest>>,
    releases: Vec<Call<Release>>,
    completions: Vec<Call<Complete>>,
    renewals: Vec<Call<Renewal>>,
}

impl Batch {
    pub(super) fn add(&mut self, job: Job) {
        match job {
            Job::Claim(call) => self.claims.push(call),
            Job::Release(call) => self.releases.push(call),
            Job::Complete(call) => self.completions.push(call),
            Job::Renew(call) => self.renewals.push(call),
        }
    }

    /// Asks all, and gives back the connection and the keys.
    pub(super) async fn ask(
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
    if let Some((calls, failure)) = ask_once(calls, db, back, kept).await {
        ask_in_halves(calls, &failure, db, back);
    }
}

/// One statement. Returns several calls of which a single one may have made it
/// fail; all others have their answer, or are asked again.
async fn ask_once<O>(
    calls: Vec<Call<O>>,
    db: &Arc<Database>,
    back: &mpsc::WeakSender<Job>,
    kept: &mut Kept,
) -> Option<(Vec<Call<O>>, Failure)>
where
    O: Grouped,
    Call<O>: Into<Job>,
{
    metrics::batch(O::STATEMENT, calls.len());
    let together = Together(calls);
    let asked = db.run_on(kept, &together).await;
    let calls = together.0;
    match asked {
        Ok(replies) => settle(calls, replies, db, back),
        Err(failure) if calls.len() > 1 && failure.may_be_of_one_row() => {
            return Some((calls, failure));
        }
        Err(failure) if failure.is_locked() => pass_over(calls, db, back).await,
        Err(failure) => fail(calls, &failure),
    }
    None
}

/// What a lone call leads to that waited for a lock in vain.
async fn pass_over<O>(calls: Vec<Call<O>>, db: &Arc<Database>, back: &mpsc::WeakSender<Job>)
where
    O: Grouped,
    Call<O>: Into<Job>,
{
    let mut replies = Vec::with_capacity(calls.len());
    for call in &calls {
        // The lock may be its own, of the statement whose connection broke.
        replies.push(if call.in_doubt.load(Relaxed) {
            Reply::AskAgain
        } else {
            O::locked(&call.operation, call.asked, db).await
        });
    }
    settle(calls, replies, db, back);
}

/// Beside the lane, half and half, until the bad row is alone: whoever waits for
/// it waits with few.
fn ask_in_halves<O>(
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
        "idempotency store: a statement failed, its operations are asked again in smaller ones",
    );
    let (own, back) = (Arc::clone(db), back.clone());
    db.tasks.spawn(async move {
        let mut kept = None;
        let mut parts = halves(calls);
        while let Some(part) = parts.pop() {
            if let Some((part, _)) = ask_once(part, &own, &back, &mut kept).await {
                parts.extend(halves(part));
            }
        }
    });
}

fn halves<T>(mut whole: Vec<T>) -> Vec<Vec<T>> {
    let second = whole.split_off(whole.len() / 2);
    vec![second, whole]
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

    fn runs_again(&self) {
        for call in &self.0 {
            call.in_doubt.store(true, Relaxed);
        }
    }

    async fn run(&self, db: &Database, conn: &mut PgConnection) -> Result<Self::Answer, Failure> {
        O::ask(&self.0, db, conn).await
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
