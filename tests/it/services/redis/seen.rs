//! What the clients of one key were told, and what they must never be.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

use crate::services::{
    Service,
    http::{Answer, Request},
    ulid, until,
};

/// What the services were started with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) lease: Duration,
    pub(super) ttl: Duration,
}

pub(super) struct Seen {
    rules: Rules,
    key: String,
    first_sent: Instant,
    /// How often the store had lost something by then, and when there was a
    /// first word on the outcome.
    losses: usize,
    losses_when_known: Option<usize>,
    /// The answer of the handler.
    answer: Option<Answer>,
    /// Status and id, where the response was not told.
    outcome: Option<(Value, Value)>,
    is_refused: bool,
    is_unknown: bool,
}

impl Seen {
    pub(super) fn begin(rules: Rules, losses: usize) -> Self {
        let ulid = ulid();
        let is_timestamped = ulid.as_bytes()[ulid.len() - 1].is_multiple_of(2);
        Self {
            rules,
            key: if is_timestamped {
                ulid
            } else {
                format!("order-{ulid}")
            },
            first_sent: Instant::now(),
            losses,
            losses_when_known: None,
            answer: None,
            outcome: None,
            is_refused: false,
            is_unknown: false,
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Whether the store was out of reach for it once.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Whether what it did is known, but not the response.
    pub(super) fn is_known_without_response(&self) -> bool {
        self.answer.is_none() && self.outcome.is_some()
    }

    /// Whether it is known what became of it, if only that nobody knows.
    pub(super) fn is_decided(&self) -> bool {
        self.outcome.is_some() || self.is_unknown
    }

    pub(super) fn request(&self, to: SocketAddr) -> Request {
        Request::new(to, "POST", "/echo?status=201&delay_ms=30&size=300")
            .key(&self.key)
            .body(&*self.key)
    }

    /// Judges an answer; false when it says to come again.
    pub(super) fn hears(&mut self, answer: &Answer, losses: usize) -> bool {
        let waited = self.first_sent.elapsed();
        let Some(code) = answer.code() else {
            self.is_answered(answer, waited, losses);
            self.losses_when_known.get_or_insert(losses);
            return true;
        };
        match code.as_str() {
            "idempotency_request_in_progress" => return false,
            "idempotency_store_unavailable" => {
                self.is_refused = true;
                return false;
            }
            "idempotency_outcome_unknown" => {
                let is_explained = waited >= self.rules.lease || losses > self.losses;
                assert!(is_explained, "unknown inside a lease: {answer}");
                return false;
            }
            "idempotency_response_not_kept" => {
                assert_eq!(self.answer, None, "the response was told: {answer}");
            }
            "idempotency_key_expired" => {
                let is_explained = waited >= self.rules.ttl || losses > self.losses;
                assert!(is_explained, "expired after {waited:?}: {answer}");
                let told = answer.json();
                assert_eq!(told["same_request"], true, "{answer}");
                if told["outcome"] == "unknown" {
                    assert_eq!(self.outcome, None, "it was known: {answer}");
                    assert_eq!(self.answer, None, "it was known: {answer}");
                    self.is_unknown = true;
                    return true;
                }
            }
            _ => panic!("there is no reason for {answer}"),
        }
        let told = answer.json();
        self.ends_with(&told["original_status"], &told["resource_id"], answer);
        self.losses_when_known.get_or_insert(losses);
        true
    }

    fn is_answered(&mut self, answer: &Answer, waited: Duration, losses: usize) {
        assert_eq!(answer.status, 201, "{answer}");
        let attempt = number(answer, "attempt");
        let lost = u64::try_from(losses - self.losses).expect("few losses");
        let is_explained = number(answer, "execution") <= attempt + lost;
        assert!(is_explained, "two effects in one attempt: {answer}");
        let earlier = u32::try_from(attempt - 1).expect("few attempts");
        let is_late = waited >= self.rules.lease * earlier;
        assert!(is_late, "ran again inside a lease: {answer}");
        self.ends_with(&201.into(), &answer.json()["id"], answer);
        let first = self.answer.get_or_insert_with(|| answer.clone());
        assert!(
            answer.body == first.body,
            "other bytes: {answer}\nfirst: {first}"
        );
        for name in ["location", "content-type"] {
            assert_eq!(answer.header(name), first.header(name), "{name}: {answer}");
        }
    }

    /// There is one outcome.
    fn ends_with(&mut self, status: &Value, id: &Value, answer: &Answer) {
        assert_eq!(status, 201, "{answer}");
        assert!(id.is_string(), "{answer}");
        assert!(!self.is_unknown, "it was told to be unknown: {answer}");
        let told = (status.clone(), id.clone());
        let first = self.outcome.get_or_insert_with(|| told.clone());
        assert_eq!(told, *first, "another outcome than before: {answer}");
    }

    /// How often it may have run.
    fn most(&self) -> u64 {
        let leases = self.first_sent.elapsed().as_millis() / self.rules.lease.as_millis();
        let by_time = 1 + u64::try_from(leases).expect("few leases");
        let attempts = self.answer.as_ref().map(|answer| number(answer, "attempt"));
        // Of a record that was lost in progress nobody knew.
        let lost = self
            .losses_when_known
            .map_or(0, |known| known - self.losses);
        attempts.unwrap_or(by_time) + u64::try_from(lost).expect("few losses")
    }
}

/// The last word on each key once more, and how often it ran; in all, how many
/// did.
pub(super) async fn must_hold(seen: &mut [Seen], service: &Service, losses: usize) -> u64 {
    let mut total = 0;
    for some in seen.chunks_mut(AT_ONCE) {
        let held = some.iter_mut().map(async |seen| {
            let request = seen.request(service.address);
            until("a last word", async || {
                let answer = request.send().await;
                seen.hears(&answer, losses).then_some(())
            })
            .await;
            let count = service.executions(seen.key()).await;
            let (least, most) = (u64::from(seen.outcome.is_some()), seen.most());
            let answer = seen.answer.as_ref().map(ToString::to_string);
            assert!(
                (least..=most).contains(&count),
                "{} ran {count} times, not {least} to {most}: {answer:?}",
                seen.key
            );
            count
        });
        total += join_all(held).await.iter().sum::<u64>();
    }
    total
}

/// Waits until a late retry of each is told status and id, and returns what all
/// were told.
pub(super) async fn must_be_told_late(seen: &mut [Seen], service: &Service) -> Vec<Value> {
    let mut told = Vec::new();
    for some in seen.chunks_mut(AT_ONCE) {
        let late = some.iter_mut().map(async |seen| {
            let request = seen.request(service.address);
            let answer = until("it has expired", async || {
                let answer = request.send().await;
                seen.hears(&answer, seen.losses);
                (answer.code().as_deref() == Some("idempotency_key_expired")).then_some(answer)
            });
            answer.await.json()
        });
        told.extend(join_all(late).await);
    }
    told
}

fn number(answer: &Answer, name: &str) -> u64 {
    answer.json()[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name}: {answer}"))
}

const AT_ONCE: usize = 12;
