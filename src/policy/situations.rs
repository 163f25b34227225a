//! Which rejections a policy can answer with, and when: what its descriptions
//! are made of.
//!
//! A policy does not know its layer, so it is described as one beside an
//! archive, and over a store that can be full.

use jiff::Timestamp;

use super::{Duplicate, InFlight, MissingKey, Policy, StoreDown, describe::in_words, markdown};
use crate::{
    claim::{Abandoned, ArchiveLookup},
    key::{KeyError, KeySyntax},
    rejection::{LateRetry, Rejection},
};

/// A rejection, and when it is given.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    /// Its status, code, advice and title count; the rest is an example.
    pub(super) rejection: Rejection,
    /// A sentence in Markdown.
    pub(super) when: String,
}

impl Policy {
    /// All that this policy can give, in the order a request meets them.
    pub(super) fn situations(&self) -> Vec<Situation> {
        let every = every_rejection(self).into_iter();
        let possible = every.filter_map(|rejection| {
            let more = self.more_on(&rejection)?;
            let title = rejection.title();
            let when = if more.is_empty() {
                format!("{title}.")
            } else {
                format!("{title}: {more}.")
            };
            Some(Situation { rejection, when })
        });
        possible.collect()
    }

    /// What the policy adds to the title of a rejection; `None` for one that it
    /// never gives.
    fn more_on(&self, rejection: &Rejection) -> Option<String> {
        let more = match rejection {
            Rejection::KeyMissing { .. } => {
                let place = self.key_source.in_markdown();
                let is_required = self.missing_key == MissingKey::Refuse;
                return is_required.then(|| format!("there is none in {place}"));
            }
            Rejection::KeyInvalid { .. } => {
                let reasons = self.key_faults();
                let reasons = reasons.map(|fault| markdown::code(fault.reason()));
                format!("`reason` is {}", one_of(&reasons.collect::<Vec<_>>()))
            }
            Rejection::PrincipalMissing if self.principal.is_constant() => return None,
            Rejection::BodyTooLarge { limit } => format!("it has over {limit} bytes"),
            Rejection::PrincipalMissing | Rejection::BodyUnreadable => String::new(),
            // A record of another route, or of an earlier deploy, is compared
            // as that one wanted.
            Rejection::KeyReused if !self.fingerprint.compares() => {
                "it was recorded where requests are compared".to_owned()
            }
            Rejection::KeyReused => {
                let by = markdown::plain(&self.fingerprint.to_string());
                format!("requests are told apart by {by}")
            }
            Rejection::InProgress { .. } => match self.in_flight {
                InFlight::Reject => String::new(),
                InFlight::Wait(longest) => format!(
                    "the repeat has waited {}, or too many wait already",
                    in_words(longest)
                ),
            },
            // What is done is acknowledged.
            Rejection::KeyExpired(_) | Rejection::ResponseNotKept { .. }
                if self.duplicate == Duplicate::Acknowledge =>
            {
                return None;
            }
            Rejection::KeyExpired(_) => {
                format!("its window of {} is over", in_words(self.ttl.get()))
            }
            Rejection::ResponseNotKept { .. } if self.keep_bodies => format!(
                "it was over {} bytes, a stream, or not complete in {}",
                self.response_limit,
                in_words(self.response_deadline),
            ),
            Rejection::ResponseNotKept { .. } => "no response of this route is".to_owned(),
            Rejection::OutcomeUnknown { .. } => {
                let longest = in_words(self.max_lease);
                match self.abandoned {
                    Abandoned::TakeOver => {
                        format!("it ran for over {longest}, or lost its record while it ran")
                    }
                    Abandoned::Refuse => {
                        format!("it ran for over {longest}, or its process ended while it ran")
                    }
                }
            }
            Rejection::StoreUnavailable { .. } => match self.store_down {
                StoreDown::Closed => format!(
                    "it or the archive failed, or gave no answer in {}",
                    in_words(self.store_timeout)
                ),
                StoreDown::Open => {
                    "only where a record cannot be read, or the archive cannot be reached"
                        .to_owned()
                }
            },
            Rejection::StoreFull { .. } => "it takes no new key for the moment".to_owned(),
        };
        Some(more)
    }

    /// What can be wrong with a key, in the order of the enum.
    pub(super) fn key_faults(&self) -> impl Iterator<Item = KeyError> {
        let can_be = |fault: &KeyError| match fault {
            KeyError::Missing => false,
            KeyError::Empty
            | KeyError::Blank
            | KeyError::BadSyntax
            | KeyError::BadCharacter
            | KeyError::TooLong
            | KeyError::MultipleValues => true,
            // What is no string is a bare key in a lenient header.
            KeyError::NotAString => {
                self.key_source.needs_body() || self.key_syntax == KeySyntax::Strict
            }
            KeyError::TimestampMissing => self.archive_lookup == ArchiveLookup::RequireTimestamped,
            KeyError::TimestampFuture => self.archive_lookup != ArchiveLookup::AllKeys,
        };
        KEY_FAULTS.into_iter().filter(can_be)
    }

    pub(super) fn late(&self) -> Rejection {
        Rejection::KeyExpired(Box::new(LateRetry::unjudged(self.late_status)))
    }
}

/// One of each, with the policy's limit and status, and else with examples.
pub(super) fn every_rejection(policy: &Policy) -> [Rejection; 12] {
    [
        Rejection::KeyMissing {
            source: policy.key_source.in_words(),
        },
        Rejection::KeyInvalid {
            reason: KeyError::BadSyntax,
        },
        Rejection::PrincipalMissing,
        Rejection::BodyTooLarge {
            limit: policy.request_limit,
        },
        Rejection::BodyUnreadable,
        Rejection::KeyReused,
        IN_PROGRESS,
        policy.late(),
        NOT_KEPT,
        OUTCOME_UNKNOWN,
        STORE_UNAVAILABLE,
        Rejection::StoreFull { retry_after: 1 },
    ]
}

fn one_of(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [some @ .., last] => format!("{} or {last}", some.join(", ")),
    }
}

pub(super) const IN_PROGRESS: Rejection = Rejection::InProgress { retry_after: 1 };
pub(super) const NOT_KEPT: Rejection = Rejection::ResponseNotKept {
    original_status: 201,
    resource_id: None,
    created_at: Timestamp::UNIX_EPOCH,
};
pub(super) const OUTCOME_UNKNOWN: Rejection = Rejection::OutcomeUnknown { created_at: None };
pub(super) const STORE_UNAVAILABLE: Rejection = Rejection::StoreUnavailable { retry_after: 1 };

/// Every fault but that there is no key at all.
pub(super) const KEY_FAULTS: [KeyError; 9] = [
    KeyError::Empty,
    KeyError::Blank,
    KeyError::BadSyntax,
    KeyError::BadCharacter,
    KeyError::NotAString,
    KeyError::TooLong,
    KeyError::MultipleValues,
    KeyError::TimestampMissing,
    KeyError::TimestampFuture,
];
