//! What has to be true afterwards.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use axum_idempotency::Retry;
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};

use super::{
    Services,
    ledger::Entry,
    load::{answer, fresh_key},
};
use crate::support::{Answer, PATIENCE};

/// What a client gets that repeats a request which it was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Repeats {
    /// The first answer. Nothing was lost.
    Replays,
    /// The first answer, or from the archive what came of it. Records were lost.
    ReplaysOrArchive,
}

/// Services whose clients have stopped.
pub(super) struct Aftermath {
    services: Arc<Services>,
    entries: BTreeMap<String, Entry>,
}

/// A key whose effect happened more than once.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    pub(super) key: String,
    pub(super) entry: Entry,
}

/// How the clients' repetitions were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) replayed: usize,
    pub(super) archived: usize,
    /// What was told, again, that nobody knows the outcome.
    pub(super) without_answer: usize,
}

impl Aftermath {
    pub(super) fn of(services: Arc<Services>) -> Self {
        Self {
            entries: services.ledger.entries(),
            services,
        }
    }

    /// What the keys were told does not contradict itself, and holds for whoever
    /// asks again. Nothing runs for it. Then fresh keys run at once.
    pub(super) async fn keeps_its_word(&self, repeats: Repeats) -> Counts {
        let mut counts = Counts::default();
        for (key, entry) in &self.entries {
            for told in &entry.told {
                judge(key, entry, &told.answer, repeats);
            }
        }
        let effects = self.services.ledger.effects();
        let repeated = self.repeat_all().await;
        for (key, answer) in repeated {
            let entry = &self.entries[&key];
            match judge(&key, entry, &answer, repeats) {
                Verdict::Charge => counts.replayed += 1,
                Verdict::Archived => counts.archived += 1,
                Verdict::WithoutAnswer => counts.without_answer += 1,
            }
        }
        let ran = self.services.ledger.effects() - effects;
        assert_eq!(ran, 0, "repetitions ran again");
        self.serves_fresh_keys().await;
        // For whoever lets the tests print.
        println!(
            "{} keys, {counts:?}, put off {:?}, twice {}",
            self.entries.len(),
            self.put_off(),
            self.second_executions().len()
        );
        counts
    }

    /// The keys that ran more than once, each inside the lease of the first.
    pub(super) fn second_executions(&self) -> Vec<Repeated> {
        let entries = self.entries.iter();
        let twice = entries.filter(|(_, entry)| entry.effects.len() > 1);
        twice
            .map(|(key, entry)| Repeated {
                key: key.clone(),
                entry: entry.clone(),
            })
            .collect()
    }

    pub(super) fn runs_nothing_twice(&self) {
        let twice = self.second_executions();
        assert!(twice.is_empty(), "it ran again: {twice:#?}");
    }

    /// Second executions are those that the documentation tells of: of requests
    /// that were under way when their records were lost, between two moments, and
    /// that nobody had an answer to. The result are their keys.
    pub(super) fn runs_twice_only_what_was_lost_under_way(
        &self,
        lost: &Range<Instant>,
    ) -> Vec<String> {
        let twice = self.second_executions();
        for Repeated { key, entry } in &twice {
            let [first, second] = &*entry.effects else {
                panic!("{key} ran more than twice: {entry:#?}");
            };
            assert!(first.begun < lost.end, "{key} had a server that kept it");
            assert!(second.begun > lost.start, "{key} was not lost yet");
            assert_eq!(second.attempt, 1, "{key} was not lost, but taken over");
            let is_late = entry.charge().is_none_or(|told| told.at > second.begun);
            assert!(is_late, "{key} had been answered: {entry:#?}");
        }
        twice.into_iter().map(|repeated| repeated.key).collect()
    }

    /// How many requests were told to come again, and how often at most one was.
    pub(super) fn put_off(&self) -> (usize, usize) {
        let put_off = self.entries.values().map(|entry| entry.put_off);
        (put_off.clone().sum(), put_off.max().unwrap_or_default())
    }

    /// How long the slowest request took.
    pub(super) fn slowest(&self) -> Duration {
        self.services.ledger.slowest()
    }

    /// Every process is asked for every key.
    async fn repeat_all(&self) -> Vec<(String, Answer)> {
        let asked = self.services.shops.iter().flat_map(|shop| {
            self.entries.keys().map(move |key| async move {
                let answer = answer(shop, key, &self.services.ledger).await;
                (key.clone(), answer)
            })
        });
        let asked: Vec<_> = asked.collect();
        stream::iter(asked)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    async fn serves_fresh_keys(&self) {
        for shop in &self.services.shops {
            for number in 0..20 {
                let key = fresh_key(number);
                let asked = timeout(PATIENCE, shop.post("/charges").key(&key).send());
                let answer = asked.await.expect("an answer");
                assert_eq!(answer.status, 201, "a fresh key is not served: {answer:?}");
                assert!(!answer.is_marked_as_replay());
            }
        }
    }
}

enum Verdict {
    Charge,
    Archived,
    WithoutAnswer,
}

/// Holds an answer against what else was told of the key.
fn judge(key: &str, entry: &Entry, answer: &Answer, repeats: Repeats) -> Verdict {
    let charge = entry.charge().map(|told| &told.answer);
    if answer.status == 201 {
        if let Some(first) = charge {
            assert_eq!(answer.body, first.body, "{key} has two answers: {entry:#?}");
            assert_eq!(answer.header("location"), first.header("location"));
        }
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        assert!(entry.made(&id), "{key}: nobody made {id}: {entry:#?}");
        return Verdict::Charge;
    }
    assert_eq!(
        repeats,
        Repeats::ReplaysOrArchive,
        "{key}: its record is lost: {answer:?} {entry:#?}"
    );
    let document = answer.json();
    let code = document["code"].as_str().unwrap_or_default();
    answer.expect_problem(409, code, Retry::Reconcile);
    match code {
        // It was fenced before it could tell anybody.
        "idempotency_outcome_unknown" => return Verdict::WithoutAnswer,
        "idempotency_key_expired" => assert_eq!(document["same_request"], true),
        // Its completion was lost, and its claim was not: it lapsed.
        "idempotency_response_not_kept" => {}
        _ => panic!("{key}: {document} {entry:#?}"),
    }
    assert_eq!(document["original_status"], 201, "{key}: {document}");
    let id = document["resource_id"].as_str().expect("an id");
    match charge {
        Some(first) => assert_eq!(
            id,
            first.json()["id"],
            "{key}: the archive tells of another outcome: {entry:#?}"
        ),
        None => assert!(entry.made(id), "{key}: nobody made {id}: {entry:#?}"),
    }
    Verdict::Archived
}

const AT_ONCE: usize = 24;
