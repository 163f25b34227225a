//! What the clients saw, and what they must never see.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::plan::{Fate, Plan, TENANTS};
use crate::services::http::Answer;

/// Judges answers one by one.
pub(super) struct Model {
    lease: Duration,
    ttl: Duration,
    archives_first: bool,
    kills: u64,
    seen: HashMap<(&'static str, String), Seen>,
    counts: Counts,
    faults: Vec<String>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    first_answers: u64,
    replays: u64,
    run_again: u64,
    in_progress: u64,
    reused: u64,
    not_kept: u64,
    expired: u64,
    unknown: u64,
    unavailable: u64,
    hung_up: u64,
    broken: u64,
    takeovers: u64,
    second_executions: u64,
    lost_answers: u64,
    cross_tenant: u64,
}

/// One key of one tenant.
struct Seen {
    plan: Arc<Plan>,
    first_sent: Instant,
    /// The answer of its handler, and which variant got it.
    answer: Option<(Answer, usize)>,
    /// What a late retry was told first, and when.
    late: Option<(Value, Instant)>,
    /// Variants that were told that the key is another's.
    reused: HashSet<usize>,
    /// A claim was given back: another variant may have run since.
    unavailable: bool,
}

impl Model {
    pub(super) fn new(lease: Duration, ttl: Duration, archives_first: bool) -> Self {
        Self {
            lease,
            ttl,
            archives_first,
            kills: 0,
            seen: HashMap::new(),
            counts: Counts::default(),
            faults: Vec::new(),
        }
    }

    /// A request is about to leave.
    pub(super) fn sent(&mut self, tenant: &'static str, plan: &Arc<Plan>) -> Instant {
        self.counts.sent += 1;
        let now = Instant::now();
        let new = || Seen {
            plan: Arc::clone(plan),
            first_sent: now,
            answer: None,
            late: None,
            reused: HashSet::new(),
            unavailable: false,
        };
        self.seen
            .entry((tenant, plan.key.clone()))
            .or_insert_with(new);
        now
    }

    pub(super) fn hung_up(&mut self) {
        self.counts.hung_up += 1;
    }

    pub(super) fn broke(&mut self, error: &io::Error) {
        self.counts.broken += 1;
        if self.kills == 0 {
            self.faults
                .push(format!("no answer although nobody was killed: {error}"));
        }
    }

    pub(super) fn kill(&mut self) {
        self.kills += 1;
    }

    /// Everything that was sent.
    pub(super) fn seen(&self) -> Vec<(&'static str, Arc<Plan>)> {
        let seen = self.seen.iter();
        seen.map(|((tenant, _), seen)| (*tenant, Arc::clone(&seen.plan)))
            .collect()
    }

    /// The variant that got the handler's answer.
    pub(super) fn winner(&self, tenant: &'static str, plan: &Plan) -> Option<usize> {
        let seen = &self.seen[&(tenant, plan.key.clone())];
        seen.answer.as_ref().map(|(_, variant)| *variant)
    }

    /// Judges an answer; false when it says to come again.
    pub(super) fn answered(
        &mut self,
        tenant: &'static str,
        plan: &Plan,
        variant: usize,
        sent: Instant,
        answer: &Answer,
    ) -> bool {
        let key = (tenant, plan.key.clone());
        let mut seen = self.seen.remove(&key).expect("it was sent");
        let judged = self.judge(&mut seen, tenant, variant, sent, answer);
        if let Err(fault) = judged {
            self.faults.push(format!(
                "{fault}\n  {tenant}, variant {variant}, {plan:?}\n  {answer}"
            ));
        }
        self.seen.insert(key, seen);
        judged.unwrap_or(true)
    }

    fn judge(
        &mut self,
        seen: &mut Seen,
        tenant: &str,
        variant: usize,
        sent: Instant,
        answer: &Answer,
    ) -> Result<bool, &'static str> {
        let counts = &mut self.counts;
        let Some(code) = answer.code() else {
            return self.handlers_answer(seen, tenant, variant, sent, answer);
        };
        match code.as_str() {
            "idempotency_request_in_progress" => {
                counts.in_progress += 1;
                answer
                    .header("retry-after")
                    .ok_or("no word on when to retry")?;
                return Ok(false);
            }
            "idempotency_store_unavailable" => {
                counts.unavailable += 1;
                seen.unavailable = true;
                return Ok(false);
            }
            "idempotency_key_reused" => {
                counts.reused += 1;
                seen.reused.insert(variant);
                seen.check_reuse()?;
            }
            "idempotency_response_not_kept" => {
                counts.not_kept += 1;
                // Killed between archive and record: only the archive knows.
                let is_cut_off = self.archives_first && self.kills > 0 && seen.answer.is_none();
                if seen.plan.fate != Fate::TooLarge && !is_cut_off {
                    counts.lost_answers += 1;
                    return Err("an answer that was to be kept is not");
                }
                seen.check_outcome(&answer.json())?;
            }
            "idempotency_key_expired" => {
                counts.expired += 1;
                if seen.first_sent.elapsed() < self.ttl {
                    return Err("expired before its time");
                }
                self.late_answer(seen, variant, &answer.json())?;
            }
            "idempotency_outcome_unknown" => {
                // Fenced: its lease had run out while it was at work.
                counts.unknown += 1;
                if seen.first_sent.elapsed() < self.lease {
                    return Err("the outcome is unknown inside the first lease");
                }
                return Ok(false);
            }
            _ => return Err("a refusal for which there is no reason"),
        }
        Ok(true)
    }

    /// An answer that a handler gave, now or earlier.
    fn handlers_answer(
        &mut self,
        seen: &mut Seen,
        tenant: &str,
        variant: usize,
        sent: Instant,
        answer: &Answer,
    ) -> Result<bool, &'static str> {
        let counts = &mut self.counts;
        if answer.status != seen.plan.status {
            return Err("a status that the handler did not give");
        }
        if seen.plan.fate != Fate::Panics {
            let json = answer.json();
            let belongs_to = |tenant| json["body_sha256"] == seen.plan.body_sha256(tenant, variant);
            if !belongs_to(tenant) {
                let of_another = TENANTS.iter().any(|tenant| belongs_to(tenant));
                counts.cross_tenant += u64::from(of_another);
                return Err("the answer to somebody else's request");
            }
            let attempt = json["attempt"].as_u64().ok_or("no attempt")?;
            let execution = json["execution"].as_u64().ok_or("no execution")?;
            let earlier = u32::try_from(attempt - 1).map_err(|_| "no attempt number")?;
            let inside_a_lease = seen.first_sent.elapsed() < self.lease * earlier;
            if seen.plan.fate != Fate::Forgotten && (execution > attempt || inside_a_lease) {
                counts.second_executions += 1;
                return Err("ran again inside a lease");
            }
            counts.takeovers += u64::from(attempt > 1 && !answer.is_replay());
        }
        if seen.late.as_ref().is_some_and(|(_, told)| *told < sent) {
            counts.second_executions += 1;
            return Err("answered after it had expired");
        }
        if seen.plan.fate == Fate::Forgotten {
            counts.run_again += 1;
            return if answer.is_replay() {
                Err("a replay of what is not kept")
            } else {
                Ok(true)
            };
        }
        match &seen.answer {
            None => counts.first_answers += 1,
            Some(_) => counts.replays += 1,
        }
        let (first, winner) = seen.answer.get_or_insert_with(|| (answer.clone(), variant));
        let same = |name| answer.header(name) == first.header(name);
        if *winner != variant
            || answer.body != first.body
            || !same("location")
            || !same("content-type")
        {
            counts.lost_answers += 1;
            return Err("another answer than the first");
        }
        seen.check_reuse()?;
        Ok(true)
    }

    fn late_answer(
        &mut self,
        seen: &mut Seen,
        variant: usize,
        told: &Value,
    ) -> Result<(), &'static str> {
        let has_outcome = told["outcome"] == "completed";
        match (seen.plan.fate, &seen.answer) {
            (Fate::Forgotten, _) if self.kills == 0 => {
                return Err("expired although it was forgotten");
            }
            (_, Some(_)) if !has_outcome => {
                self.counts.lost_answers += 1;
                return Err("the outcome of what was answered is unknown");
            }
            (_, None) if !has_outcome && self.kills == 0 => {
                return Err("the outcome is unknown although nobody was killed");
            }
            (_, Some((_, winner))) if told["same_request"] != (*winner == variant) => {
                return Err("mistakes the request for another");
            }
            _ => {}
        }
        if has_outcome {
            seen.check_outcome(told)?;
        }
        let mut told = told.clone();
        told["same_request"] = Value::Null;
        let (first, _) = seen
            .late
            .get_or_insert_with(|| (told.clone(), Instant::now()));
        if *first == told {
            Ok(())
        } else {
            Err("late retries are told different things")
        }
    }

    /// How often the effect happened under a key, when all is over.
    pub(super) fn counted(&mut self, tenant: &'static str, plan: &Plan, count: u64) {
        let seen = &self.seen[&(tenant, plan.key.clone())];
        // A process that is alone never takes over from itself.
        let leases = seen.first_sent.elapsed().as_secs() / self.lease.as_secs();
        let attempts = if self.kills == 0 { 1 } else { 1 + leases };
        let fine = match (plan.fate, &seen.answer) {
            (Fate::Forgotten, _) => true,
            (Fate::Panics, _) | (_, None) => count <= attempts,
            (_, Some((answer, _))) => {
                let json = answer.json();
                // The effect of a fenced attempt may come after the answer.
                json["execution"].as_u64() <= Some(count) && Some(count) <= json["attempt"].as_u64()
            }
        };
        if !fine {
            self.counts.second_executions += 1;
            let answer = seen.answer.as_ref().map(|(answer, _)| answer.to_string());
            let fault = format!("executed {count} times\n  {tenant}, {plan:?}\n  {answer:?}");
            self.faults.push(fault);
        }
    }

    pub(super) fn report(&self) -> String {
        format!(
            "{} keys, {} kills, {:?}",
            self.seen.len(),
            self.kills,
            self.counts
        )
    }

    pub(super) fn must_hold(&self) {
        let faults: Vec<_> = self.faults.iter().take(5).map(String::as_str).collect();
        assert!(
            faults.is_empty(),
            "{} faults:\n{}",
            self.faults.len(),
            faults.join("\n")
        );
        assert!(
            self.counts.replays > 0 && self.counts.expired > 0,
            "it did not even begin"
        );
    }
}

impl Seen {
    /// A variant that ran must not have been refused as another request.
    fn check_reuse(&self) -> Result<(), &'static str> {
        let winner = self.answer.as_ref().map(|(_, variant)| variant);
        match winner {
            Some(winner) if self.reused.contains(winner) && !self.unavailable => {
                Err("the first request itself was refused as another")
            }
            _ => Ok(()),
        }
    }

    /// What is told of an outcome without its response.
    fn check_outcome(&self, told: &Value) -> Result<(), &'static str> {
        if told["original_status"] != self.plan.status {
            return Err("the outcome of another request");
        }
        let location = self
            .answer
            .as_ref()
            .and_then(|(answer, _)| answer.header("location"));
        let Some(id) = location.and_then(|location| location.strip_prefix("/echo/")) else {
            return Ok(());
        };
        if told["resource_id"] == id {
            Ok(())
        } else {
            Err("another resource")
        }
    }
}
