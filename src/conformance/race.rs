//! Calls that meet at one key. Each race is run several times, by tasks that
//! start together, half of them in another process where there is one.

use std::sync::Arc;

use tokio::{sync::Barrier, task::JoinHandle};

use super::{Fixture, support::*};
use crate::{
    claim::{ClaimOutcome, ClaimRequest},
    store::{Fenced, Renewed, Store},
};

const ROUNDS: usize = 16;
const TASKS: usize = 64;

/// Runs `work` once for each of `inputs`, all starting together, and returns
/// the results in their order.
pub(super) async fn together<I, T, F>(inputs: Vec<I>, work: impl Fn(I) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let start = Arc::new(Barrier::new(inputs.len()));
    let spawn = |input| {
        let (start, work) = (start.clone(), work(input));
        tokio::spawn(async move {
            start.wait().await;
            work.await
        })
    };
    let tasks: Vec<JoinHandle<T>> = inputs.into_iter().map(spawn).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("a task that ends"));
    }
    results
}

/// `count` handles of the store, by turns here and elsewhere.
pub(super) async fn handles(fixture: &dyn Fixture, count: usize) -> Vec<Arc<dyn Store>> {
    let elsewhere = fixture.elsewhere().await;
    let handle = |n| {
        if n % 2 == 0 {
            fixture.store()
        } else {
            elsewhere.clone()
        }
    };
    (0..count).map(handle).collect()
}

/// One attempt each by so many handles at once: the winning attempts, after
/// checking that all others met a lease.
async fn claims_at_once(fixture: &dyn Fixture, first: &ClaimRequest, count: usize) -> Vec<u32> {
    let outcomes = together(handles(fixture, count).await, |store| {
        let attempt = retry_of(first);
        async move { claim(&*store, &attempt).await.into_outcome() }
    });
    winners(outcomes.await)
}

fn winners(outcomes: Vec<ClaimOutcome>) -> Vec<u32> {
    let mut winners = Vec::new();
    for outcome in outcomes {
        match outcome {
            ClaimOutcome::Claimed(lease) => winners.push(lease.attempt),
            ClaimOutcome::InFlight { .. } => {}
            other => unexpected("a claim at the same time", "to be in flight", &other),
        }
    }
    winners
}

pub(super) async fn of_64_claims_one_wins(fixture: &dyn Fixture) {
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        let won = claims_at_once(fixture, &first, TASKS).await;
        same(&won, &vec![1], "the attempts that won");
    }
}

pub(super) async fn of_64_takeovers_one_wins(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(LEASE).await;
        let won = claims_at_once(fixture, &first, TASKS).await;
        same(&won, &vec![2], "the attempts that won");
    }
}

pub(super) async fn of_64_claims_of_an_expired_key_one_wins(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        run(store, &first, 201).await;
        fixture.advance(TTL).await;
        let won = claims_at_once(fixture, &first, TASKS).await;
        same(&won, &vec![1], "the attempts that won");
    }
}

pub(super) async fn a_claim_sent_64_times_is_one_attempt(fixture: &dyn Fixture) {
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        let outcomes = together(handles(fixture, TASKS).await, |store| {
            let first = first.clone();
            async move { claim(&*store, &first).await.into_outcome() }
        });
        let won = winners(outcomes.await);
        same(&won, &vec![1; TASKS], "the attempts that were claimed");
    }
}

pub(super) async fn different_keys_do_not_wait_for_each_other(fixture: &dyn Fixture) {
    let numbered = handles(fixture, TASKS).await.into_iter().enumerate();
    let done = together(numbered.collect(), |(n, store)| async move {
        for round in 0..ROUNDS {
            let attempt = request(&format!("k{n}-{round}"));
            run(&*store, &attempt, 201).await;
            let found = claim(&*store, &retry_of(&attempt))
                .await
                .completed("a retry");
            same(&found.completion, &answered(201), "the answer");
        }
    });
    done.await;
}

pub(super) async fn claims_that_race_a_release_win_at_most_once(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        claim(store, &first).await.claimed("the first claim");
        let outcomes = together(handles(fixture, TASKS).await, |store| {
            let (first, attempt) = (first.clone(), retry_of(&first));
            async move {
                // One of the releases takes effect, all others come too late.
                let _: Fenced = release(&*store, &first).await;
                claim(&*store, &attempt).await.into_outcome()
            }
        });
        let won = winners(outcomes.await);
        same(&won, &vec![1], "the attempts that won");
    }
}

pub(super) async fn a_released_attempt_keeps_its_number_in_a_race(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        claim(store, &first).await.claimed("the first claim");
        fixture.advance(LEASE).await;
        let second = retry_of(&first);
        claim(store, &second).await.claimed("the takeover");
        let outcomes = together(handles(fixture, 8).await, |store| {
            let (second, attempt) = (second.clone(), retry_of(&first));
            async move {
                let _: Fenced = release(&*store, &second).await;
                claim(&*store, &attempt).await.into_outcome()
            }
        });
        let won = winners(outcomes.await);
        same(&won, &vec![3], "the attempts that won");
    }
}

/// What one of two sides in a race came to.
enum Side {
    Owner(bool),
    Claim(ClaimOutcome),
}

/// Lets the owner of a lapsed lease act while others claim the key. Whether
/// the owner was in time, and the claims' outcomes.
async fn race_for_a_lapsed_lease<F>(
    fixture: &dyn Fixture,
    first: &ClaimRequest,
    act: impl Fn(Arc<dyn Store>, ClaimRequest) -> F,
) -> (bool, Vec<ClaimOutcome>)
where
    F: Future<Output = bool> + Send + 'static,
{
    let store = &*fixture.store();
    claim(store, first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let numbered = handles(fixture, 8).await.into_iter().enumerate();
    let sides = together(numbered.collect(), |(n, store)| {
        let attempt = retry_of(first);
        // The owner's work is made for all, and done by the first.
        let owner = (n == 0).then(|| act(store.clone(), first.clone()));
        async move {
            match owner {
                Some(owner) => Side::Owner(owner.await),
                None => Side::Claim(claim(&*store, &attempt).await.into_outcome()),
            }
        }
    });
    let (mut in_time, mut outcomes) = (false, Vec::new());
    for side in sides.await {
        match side {
            Side::Owner(was) => in_time = was,
            Side::Claim(outcome) => outcomes.push(outcome),
        }
    }
    (in_time, outcomes)
}

pub(super) async fn a_late_completion_or_a_takeover_wins(fixture: &dyn Fixture) {
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        let act = |store: Arc<dyn Store>, first: ClaimRequest| async move {
            complete(&*store, &first, &answered(201)).await == Fenced::Owner
        };
        let (in_time, outcomes) = race_for_a_lapsed_lease(fixture, &first, act).await;
        let taken_over = count(&outcomes, |o| matches!(o, ClaimOutcome::Claimed(_)));
        let replayed = count(&outcomes, |o| matches!(o, ClaimOutcome::Completed(_)));
        same(&taken_over, &usize::from(!in_time), "how many took over");
        if in_time {
            same(&replayed, &outcomes.len(), "how many were replayed");
        } else {
            same(&replayed, &0, "how many were replayed");
        }
    }
}

pub(super) async fn a_late_renewal_or_a_takeover_wins(fixture: &dyn Fixture) {
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        let act = |store: Arc<dyn Store>, first: ClaimRequest| async move {
            loop {
                match renew(&*store, renewal_of(&first)).await {
                    Renewed::Until(_) => break true,
                    Renewed::Lost => break false,
                    // The takeover is being written, perhaps.
                    Renewed::Locked => tokio::task::yield_now().await,
                }
            }
        };
        let (in_time, outcomes) = race_for_a_lapsed_lease(fixture, &first, act).await;
        let taken_over = winners(outcomes).len();
        same(&taken_over, &usize::from(!in_time), "how many took over");
    }
}

pub(super) async fn an_amendment_or_a_takeover_wins(fixture: &dyn Fixture) {
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        let act = |store: Arc<dyn Store>, first: ClaimRequest| async move {
            amend(&*store, first.key, &answered(201)).await
        };
        let (in_time, outcomes) = race_for_a_lapsed_lease(fixture, &first, act).await;
        let taken_over = count(&outcomes, |o| matches!(o, ClaimOutcome::Claimed(_)));
        same(&taken_over, &usize::from(!in_time), "how many took over");
    }
}

pub(super) async fn one_of_many_completions_is_recorded(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    for round in 0..ROUNDS {
        let first = request(&format!("k{round}"));
        claim(store, &first).await.claimed("the first claim");
        let numbered = (200..).zip(handles(fixture, 8).await);
        let done = together(numbered.collect(), |(status, store)| {
            let first = first.clone();
            async move { complete(&*store, &first, &answered(status)).await }
        });
        same(
            &done.await,
            &vec![Fenced::Owner; 8],
            "the completions by one token",
        );
        let found = claim(store, &retry_of(&first))
            .await
            .completed("a retry")
            .completion;
        same(&found, &answered(found.status), "the answer, of one piece");
    }
}

fn count(outcomes: &[ClaimOutcome], is: impl Fn(&ClaimOutcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| is(outcome)).count()
}
