//! Whatever happens between two processes and their store, in whatever order:
//! all answers to one request are one answer, and it is executed once, or once
//! per attempt where a lease has lapsed.
//!
//! The orders are drawn at random. A case that fails is shrunk to the shortest
//! order that still does, and printed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum_idempotency::{ArchiveLookup, InFlight, PolicyBuilder};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::select};
use tokio::{sync::Semaphore, time::sleep};

use crate::support::{Answer, Backend, Fault, Shop, Started, Verb, Work, within_a_day};

/// One step of an order.
#[derive(Clone, Debug)]
enum Step {
    /// A request arrives at one of the processes.
    Ask {
        process: usize,
        key: usize,
        body: usize,
    },
    /// A client hangs up.
    HangUp { request: usize },
    /// One of the running handlers comes to its end.
    Finish,
    /// Time passes.
    Pass { seconds: u64 },
    /// The next call of a process to its store goes wrong.
    Break {
        process: usize,
        verb: Verb,
        fault: Fault,
    },
    /// The store's clock jumps past every lease.
    Lapse,
    /// The store's clock jumps past the window of every record.
    Expire,
    /// What has expired moves into the archive.
    Sweep,
}

fn ask() -> impl Strategy<Value = Step> {
    (0..2_usize, 0..2_usize, 0..8_usize).prop_map(|(process, key, body)| Step::Ask {
        process,
        key,
        // Mostly the same request.
        body: usize::from(body == 0),
    })
}

fn pass() -> impl Strategy<Value = Step> {
    (0..40_u64).prop_map(|seconds| Step::Pass { seconds })
}

fn hang_up() -> impl Strategy<Value = Step> {
    (0..8_usize).prop_map(|request| Step::HangUp { request })
}

fn break_a_call() -> impl Strategy<Value = Step> {
    let verbs = [
        Verb::Claim,
        Verb::Complete,
        Verb::Release,
        Verb::Renew,
        Verb::Get,
        Verb::Publish,
        Verb::Lookup,
    ];
    let faults = [
        Fault::DOWN,
        Fault::AnswerLost,
        Fault::Hangs,
        Fault::HangsAfter,
    ];
    let drawn = (0..2_usize, select(verbs.to_vec()), select(faults.to_vec()));
    drawn.prop_map(|(process, verb, fault)| Step::Break {
        process,
        verb,
        fault,
    })
}

/// What came of an order: for each key the runs, and the answers with a status
/// that only a handler gives.
#[derive(Debug, Default)]
struct Outcome {
    attempts: BTreeMap<String, Vec<u32>>,
    answers: BTreeMap<String, Vec<Bytes>>,
    last: BTreeMap<String, Answer>,
}

/// Two processes over one store, whose handlers end when they are let.
struct Scene {
    backend: Backend,
    keys: [String; 2],
    shops: [Shop; 2],
    asked: Vec<Option<(String, Started)>>,
    may_finish: Arc<Semaphore>,
    attempts: Arc<Mutex<BTreeMap<String, Vec<u32>>>>,
}

impl Scene {
    fn begin(waiting: bool) -> Self {
        let backend = Backend::on_tokio_time();
        let may_finish = Arc::new(Semaphore::new(0));
        let attempts = Arc::new(Mutex::new(BTreeMap::<_, Vec<_>>::new()));
        let (permits, runs) = (Arc::clone(&may_finish), Arc::clone(&attempts));
        let work = Work::answering(move |seen| {
            let idempotency = seen.idempotency();
            let key = idempotency.key().as_str().to_owned();
            let mut runs = runs.lock().unwrap();
            runs.entry(key).or_default().push(idempotency.attempt());
            drop(runs);
            let permits = Arc::clone(&permits);
            async move {
                permits.acquire().await.unwrap().forget();
                seen.charge()
            }
        });
        let policy = |policy: PolicyBuilder| {
            if waiting {
                policy.in_flight(InFlight::Wait(Duration::from_secs(20)))
            } else {
                policy
            }
        };
        let policy =
            |builder: PolicyBuilder| policy(builder).archive_lookup(ArchiveLookup::AllKeys);
        let shop = || backend.shop().work(work.clone()).policy(policy).in_memory();
        Self {
            shops: [shop(), shop()],
            // The first is looked up in the archive, the second only when it
            // may have expired.
            keys: [
                "order-1".to_owned(),
                backend.ulid_made_before(Duration::ZERO),
            ],
            backend,
            asked: Vec::new(),
            may_finish,
            attempts,
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Ask { process, key, body } => {
                let key = self.keys[key].clone();
                let ask = self.shops[process].post("/charges").key(&key);
                let ask = ask.body(format!("body {body}"));
                self.asked.push(Some((key, ask.start())));
            }
            Step::HangUp { request } => {
                let request = self.asked.get_mut(request).and_then(Option::take);
                drop(request);
            }
            Step::Finish => self.may_finish.add_permits(1),
            Step::Pass { seconds } => sleep(Duration::from_secs(seconds)).await,
            Step::Break {
                process,
                verb,
                fault,
            } => {
                let shop = &self.shops[process];
                match verb {
                    Verb::Lookup => shop.archive.next(verb, fault),
                    _ => shop.store.next(verb, fault),
                }
            }
            Step::Lapse => self.backend.clock.advance(Duration::from_secs(30)),
            Step::Expire => self.backend.clock.advance(Duration::from_hours(24)),
            Step::Sweep => {
                self.backend.sweep().await;
            }
        }
        // What became ready goes on, as far as it can.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Everything ends, the store is well again, and every key is asked for
    /// once more.
    async fn end(mut self) -> Outcome {
        self.may_finish.add_permits(1_000);
        sleep(Duration::from_mins(10)).await;
        let mut outcome = Outcome::default();
        for (key, asked) in self.asked.drain(..).flatten() {
            let answer = asked.answer().await;
            if answer.status == 201 {
                outcome.answers.entry(key).or_default().push(answer.body);
            }
        }
        for key in outcome.answers.keys() {
            let shop = &self.shops[0];
            let ask = |body: &'static str| shop.post("/charges").key(key).body(body).send();
            let mut last = ask("body 0").await;
            // Faults that were planned and not met may still be met here.
            for _ in 0..40 {
                if last.status == 503 {
                    last = ask("body 0").await;
                }
            }
            if last.status == 422 {
                last = ask("body 1").await;
            }
            outcome.last.insert(key.clone(), last);
        }
        outcome.attempts = self.attempts.lock().unwrap().clone();
        outcome
    }
}

fn play(steps: Vec<Step>, waiting: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    let mut outcome = Outcome::default();
    runtime.expect("a runtime").block_on(within_a_day(async {
        let mut scene = Scene::begin(waiting);
        for step in steps {
            scene.step(step).await;
        }
        outcome = scene.end().await;
    }));
    outcome
}

/// All who got an answer got the same one, and so does who asks at the end,
/// while the window is open.
fn one_truth(outcome: &Outcome, is_window_over: bool) -> Result<(), TestCaseError> {
    for (key, answers) in &outcome.answers {
        let first = &answers[0];
        let same = answers.iter().all(|answer| answer == first);
        prop_assert!(same, "{key} was answered in two ways: {answers:?}");
        let last = &outcome.last[key];
        if is_window_over && last.status == 409 {
            continue;
        }
        prop_assert!(
            last.is_marked_as_replay(),
            "{key} ran again at the end: {last:?}"
        );
        prop_assert_eq!(
            &last.body,
            first,
            "{} was answered otherwise at the end",
            key
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn with_every_call_to_the_store_at_risk_a_request_runs_once(
        steps in vec(prop_oneof![4 => ask(), 3 => break_a_call(), 2 => pass(), 1 => hang_up(), 3 => Just(Step::Finish)], 1..40),
        waiting in any::<bool>(),
    ) {
        let outcome = play(steps, waiting);
        for (key, attempts) in &outcome.attempts {
            prop_assert_eq!(attempts.as_slice(), [1], "{} ran so often", key);
        }
        one_truth(&outcome, false)?;
    }

    #[test]
    fn with_every_lease_at_risk_a_request_has_one_answer(
        steps in vec(prop_oneof![4 => ask(), 2 => Just(Step::Lapse), 1 => pass(), 1 => hang_up(), 3 => Just(Step::Finish)], 1..40),
        waiting in any::<bool>(),
    ) {
        let outcome = play(steps, waiting);
        for (key, attempts) in &outcome.attempts {
            let numbers: Vec<_> = (1..).take(attempts.len()).collect();
            prop_assert_eq!(attempts, &numbers, "attempts of {}", key);
        }
        one_truth(&outcome, false)?;
    }

    #[test]
    fn with_every_window_at_risk_a_request_never_runs_again(
        steps in vec(prop_oneof![4 => ask(), 1 => break_a_call(), 1 => Just(Step::Expire), 1 => Just(Step::Sweep), 1 => pass(), 3 => Just(Step::Finish)], 1..40),
        waiting in any::<bool>(),
    ) {
        let outcome = play(steps, waiting);
        for (key, attempts) in &outcome.attempts {
            prop_assert_eq!(attempts.as_slice(), [1], "{} ran so often", key);
        }
        one_truth(&outcome, true)?;
    }
}
