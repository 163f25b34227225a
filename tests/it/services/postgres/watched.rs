//! One request under load, and all the answers to it.

use std::{io, net::SocketAddr, sync::atomic::Ordering::Relaxed};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::load::Shared;
use crate::services::{
    http::{Answer, Request},
    ulid,
};

/// A key, and what its client saw.
pub(super) struct Watched {
    pub(super) key: String,
    first_sent: Instant,
    /// What its handler answered, which never changes.
    pub(super) answer: Option<Answer>,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self {
            key: ulid(),
            first_sent: Instant::now(),
            answer: None,
        }
    }

    pub(super) fn request(&self, to: SocketAddr) -> Request {
        let request = Request::new(to, "POST", "/echo?delay_ms=20&size=600");
        request.key(&self.key).body(&*self.key)
    }

    /// Asks once; says whether the handler's answer is here.
    pub(super) async fn ask(&mut self, shared: &Shared, to: SocketAddr) -> io::Result<bool> {
        let asked = Instant::now();
        let answer = self.request(to).try_send().await;
        Ok(self.judge(shared, asked, &answer?))
    }

    /// Asks all of them in the same moment.
    pub(super) async fn ask_all(&mut self, shared: &Shared, all: &[SocketAddr]) {
        let asked = Instant::now();
        let requests: Vec<_> = all.iter().map(|to| self.request(*to)).collect();
        for answer in join_all(requests.iter().map(Request::try_send)).await {
            match answer {
                Ok(answer) => drop(self.judge(shared, asked, &answer)),
                Err(_) => drop(shared.counts.broken.fetch_add(1, Relaxed)),
            }
        }
    }

    fn judge(&mut self, shared: &Shared, asked: Instant, answer: &Answer) -> bool {
        let (terms, counts) = (&shared.terms, &shared.counts);
        let took = asked.elapsed();
        assert!(took <= terms.patience, "it took {took:?}: {answer}");
        let took = u64::try_from(took.as_millis()).expect("milliseconds");
        counts.slowest_ms.fetch_max(took, Relaxed);
        let count = match answer.code().as_deref() {
            None => {
                self.handlers_answer(shared, answer);
                return true;
            }
            Some(code @ "idempotency_request_in_progress") => {
                answer.problem(409, code);
                &counts.in_progress
            }
            Some(code @ "idempotency_store_unavailable") => {
                answer.problem(503, code);
                &counts.unavailable
            }
            Some(code @ "idempotency_outcome_unknown") => {
                answer.problem(409, code);
                let may_be_fenced = terms.takeover && self.first_sent.elapsed() >= terms.lease;
                assert!(may_be_fenced, "nobody took over: {answer}");
                counts.unknown.fetch_add(1, Relaxed);
                return false;
            }
            Some(_) => panic!("a refusal for which there is no reason: {answer}"),
        };
        let retry_after = answer.header("retry-after");
        assert!(retry_after.is_some(), "no word on when to retry: {answer}");
        count.fetch_add(1, Relaxed);
        false
    }

    fn handlers_answer(&mut self, shared: &Shared, answer: &Answer) {
        let (terms, counts) = (&shared.terms, &shared.counts);
        match answer.status {
            200 => {
                let (attempt, execution) = numbers(answer);
                assert!(execution <= attempt, "two effects in an attempt: {answer}");
                let earlier = u32::try_from(attempt - 1).expect("an attempt's number");
                let waited = self.first_sent.elapsed();
                let is_due = attempt == 1 || terms.takeover && waited >= terms.lease * earlier;
                assert!(
                    is_due,
                    "ran again inside a lease, after {waited:?}: {answer}"
                );
                let is_takeover = attempt > 1 && !answer.is_replay();
                counts.takeovers.fetch_add(u64::from(is_takeover), Relaxed);
            }
            500 => {
                assert!(terms.handler_fails, "its database was there: {answer}");
                assert_ne!(answer.body, b"Internal Server Error", "a panic: {answer}");
                let is_first = u64::from(!answer.is_replay());
                counts.failed_handlers.fetch_add(is_first, Relaxed);
            }
            _ => panic!("a status that the handler does not give: {answer}"),
        }
        counts
            .replays
            .fetch_add(u64::from(answer.is_replay()), Relaxed);
        let first = self.answer.get_or_insert_with(|| answer.clone());
        let same = |name| answer.all(name) == first.all(name);
        let is_same = answer.status == first.status
            && answer.body == first.body
            && ["content-type", "location"].into_iter().all(same);
        assert!(is_same, "another answer: {answer}\nfirst: {first}");
    }

    /// When all is over: how often the effect happened.
    pub(super) fn must_have_executed(&self, shared: &Shared, count: u64) {
        let answer = self.answer.as_ref().expect("it was answered");
        let allowed = if answer.status == 200 {
            let (attempt, execution) = numbers(answer);
            // The effect of a fenced attempt may come after the answer.
            execution..=attempt
        } else if shared.terms.takeover {
            let leases = self.first_sent.elapsed().as_secs() / shared.terms.lease.as_secs();
            0..=1 + leases
        } else {
            0..=1
        };
        assert!(allowed.contains(&count), "executed {count} times: {answer}");
    }
}

/// Attempt and execution.
fn numbers(answer: &Answer) -> (u64, u64) {
    let json = answer.json();
    let number = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{answer}"));
    (number("attempt"), number("execution"))
}
