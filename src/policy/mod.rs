//! What a route wants: how its keys are read, how long its records live, and
//! what happens in each situation.

use std::{collections::BTreeSet, error::Error, fmt, time::Duration};

use http::{HeaderName, Method, StatusCode};

use crate::{
    claim::{Abandoned, ArchiveLookup},
    fingerprint::FingerprintOptions,
    key::KeySyntax,
    scope::Scope,
    ttl::Ttl,
};

mod builder;
mod describe;
mod headers;
mod markdown;
mod openapi;
mod principal;
mod situations;
mod source;
#[cfg(feature = "utoipa")]
mod utoipa;

pub(crate) use self::headers::HeaderRules;
pub use self::{builder::PolicyBuilder, principal::PrincipalSource, source::KeySource};

/// The rules of one route (or of a whole router). Made by
/// [`Policy::builder`], which documents every option and its default.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) principal: PrincipalSource,
    pub(crate) key_source: KeySource,
    pub(crate) key_syntax: KeySyntax,
    pub(crate) missing_key: MissingKey,
    pub(crate) methods: Vec<Method>,
    pub(crate) scope: Scope,
    pub(crate) fingerprint: FingerprintOptions,
    pub(crate) ttl: Ttl,
    pub(crate) lease: Duration,
    pub(crate) max_lease: Duration,
    pub(crate) in_flight: InFlight,
    pub(crate) duplicate: Duplicate,
    pub(crate) abandoned: Abandoned,
    pub(crate) archive_lookup: ArchiveLookup,
    pub(crate) store_down: StoreDown,
    pub(crate) store_timeout: Duration,
    pub(crate) request_limit: usize,
    pub(crate) response_limit: usize,
    pub(crate) response_deadline: Duration,
    pub(crate) keep_bodies: bool,
    pub(crate) keeps_only_success: bool,
    pub(crate) forgotten_statuses: BTreeSet<u16>,
    pub(crate) headers: HeaderRules,
    pub(crate) resource_id_pointer: String,
    pub(crate) late_status: StatusCode,
    pub(crate) replay_header: HeaderName,
    pub(crate) expires_header: Option<HeaderName>,
}

/// What a request without a key gets. One whose key is there and unusable is a
/// 400 in every case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// 400 `idempotency_key_missing`; nothing runs. The default.
    #[default]
    Refuse,
    /// It runs, unprotected.
    Run,
    /// It runs, unprotected, and a warning is logged: for senders that should
    /// have sent one and cannot be told so, as those of webhooks.
    RunAndWarn,
}

/// What a duplicate gets once the first request is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Duplicate {
    /// The first answer, or a 409 that tells what is left of it. The default.
    #[default]
    Replay,
    /// Always a 2xx, for a sender that takes anything else as a failed delivery
    /// and repeats it, such as that of a [webhook](crate::webhook). The first
    /// answer where it was kept and was a 2xx; else an empty 200, marked as a
    /// replay: so also for a late duplicate whose record has expired or is
    /// archived.
    ///
    /// A late duplicate of a request without an outcome runs again, and its
    /// handler is told that it is at least the second attempt; so does one that
    /// is older than the archive reaches back. Under [`Abandoned::Refuse`] both
    /// get 409 `idempotency_outcome_unknown` instead.
    Acknowledge,
}

/// What a duplicate gets while the first request runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InFlight {
    /// 409 `idempotency_request_in_progress` with `Retry-After`. The default.
    #[default]
    Reject,
    /// It is held for up to this long and then gets the first answer, or the
    /// 409 when there is none yet.
    Wait(Duration),
}

/// What a request gets while the store cannot be reached for a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreDown {
    /// 503 `idempotency_store_unavailable`; nothing runs. The default.
    #[default]
    Closed,
    /// It runs without protection, which is logged. An archive that cannot be
    /// reached, a store that is full, and a record that cannot be read are a 503
    /// all the same.
    Open,
}

impl Policy {
    /// Starts a policy. The principal is the one thing that has no default:
    ///
    /// ```compile_fail,E0061
    /// let nobody = axum_idempotency::Policy::builder();
    /// ```
    pub fn builder(principal: PrincipalSource) -> PolicyBuilder {
        PolicyBuilder::new(principal)
    }

    /// How long a live record is kept.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    pub(crate) fn covers(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }

    /// Whether an answer with this status is recorded; after one that is not,
    /// a retry runs again.
    pub(crate) fn keeps(&self, status: StatusCode) -> bool {
        !self.forgotten_statuses.contains(&status.as_u16())
            && (!self.keeps_only_success || status.is_success())
    }
}

/// Why a policy or a layer cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No method is covered.
    NoMethods,
    /// GET, HEAD and OPTIONS are never covered: they are safe already.
    SafeMethod(Method),
    /// The lease is shorter than 10 ms.
    LeaseTooShort,
    /// The lease is longer than the longest lease.
    LeaseOverMaxLease,
    /// The longest lease does not end before the record expires.
    MaxLeaseOverTtl,
    /// The store timeout is zero.
    StoreTimeoutZero,
    /// A wait of no time is [`InFlight::Reject`].
    WaitZero,
    /// A body limit is zero.
    BodyLimitZero,
    /// The deadline for collecting a response is zero.
    ResponseDeadlineZero,
    /// Not a JSON pointer (RFC 6901): it must be empty or start with `/`.
    BadPointer(String),
    /// A list of key sources is empty.
    NoKeySource,
    /// The name of a webhook's provider is empty or holds a control character.
    BadProvider(String),
    /// The status for a late retry must be a client error (4xx).
    LateStatus(StatusCode),
    /// The policy asks an archive about every key, but the layer has none.
    ArchiveMissing,
    /// The store may evict records inside their window
    /// ([`Keeps::UntilEvicted`](crate::store::Keeps::UntilEvicted)), and there is
    /// no archive, or the policy does not ask it about every key.
    StoreEvicts,
    /// The layer has no policy.
    PolicyMissing,
    /// The scope secret is empty.
    EmptySecret,
    /// A problem type or documentation link is no URI.
    BadUri(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMethods => f.write_str("the policy covers no method"),
            Self::SafeMethod(method) => {
                write!(f, "{method} cannot be covered: it is safe to repeat already")
            }
            Self::LeaseTooShort => f.write_str("the lease must be at least 10 ms"),
            Self::LeaseOverMaxLease => f.write_str("the lease must not exceed max_lease"),
            Self::MaxLeaseOverTtl => f.write_str(
                "max_lease must be shorter than the TTL, or a record could expire while its handler runs",
            ),
            Self::StoreTimeoutZero => f.write_str("the store timeout must not be zero"),
            Self::WaitZero => f.write_str("a wait of zero is InFlight::Reject"),
            Self::BodyLimitZero => f.write_str("a body limit must not be zero"),
            Self::ResponseDeadlineZero => f.write_str("the response deadline must not be zero"),
            Self::BadPointer(pointer) => {
                write!(f, "{pointer:?} is no JSON pointer: it must be empty or start with \"/\"")
            }
            Self::NoKeySource => f.write_str("a list of key sources must not be empty"),
            Self::BadProvider(name) => {
                write!(f, "{name:?} cannot name a provider: it needs text without control characters")
            }
            Self::LateStatus(status) => {
                write!(f, "{status} cannot answer a late retry: it must be a 4xx")
            }
            Self::ArchiveMissing => {
                f.write_str("ArchiveLookup::AllKeys needs an archive: give the layer one, or the policy .archive_lookup(ArchiveLookup::TimestampedKeys), under which a late repeat may run again")
            }
            Self::StoreEvicts => f.write_str(
                "the store may evict records inside their window: set its maxmemory-policy to noeviction, or give the layer an archive and its policies ArchiveLookup::AllKeys or RequireTimestamped",
            ),
            Self::PolicyMissing => f.write_str("the layer needs a policy"),
            Self::EmptySecret => f.write_str("the scope secret must not be empty"),
            Self::BadUri(uri) => write!(f, "{uri:?} is no URI"),
        }
    }
}

impl Error for ConfigError {}
