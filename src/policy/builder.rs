//! The options of a policy, their defaults, and the checks that keep a wrong
//! combination from being built.

use std::{collections::BTreeSet, time::Duration};

use http::{HeaderName, Method, StatusCode};

use super::{
    ConfigError, Duplicate, HeaderRules, InFlight, KeySource, MissingKey, Policy, PrincipalSource,
    StoreDown, source::check_pointer,
};
use crate::{
    claim::{Abandoned, ArchiveLookup},
    fingerprint::FingerprintOptions,
    key::KeySyntax,
    scope::Scope,
    ttl::Ttl,
};

/// Collects the options of a [`Policy`]; [`PolicyBuilder::build`] checks them.
///
/// ```
/// use std::time::Duration;
/// use axum_idempotency::{InFlight, Policy, PrincipalSource, Ttl};
///
/// let policy = Policy::builder(PrincipalSource::bearer())
///     .ttl(Ttl::new(Duration::from_secs(7 * 86_400))?)
///     .in_flight(InFlight::Wait(Duration::from_secs(5)))
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyBuilder {
    policy: Policy,
    lease: Option<Duration>,
    max_lease: Option<Duration>,
}

impl PolicyBuilder {
    pub(super) fn new(principal: PrincipalSource) -> Self {
        Self {
            policy: Policy {
                principal,
                key_source: KeySource::Header(DEFAULT_KEY_HEADER),
                key_syntax: KeySyntax::default(),
                missing_key: MissingKey::default(),
                methods: vec![Method::POST, Method::PATCH],
                scope: Scope::default(),
                fingerprint: FingerprintOptions::default(),
                ttl: Ttl::default(),
                lease: DEFAULT_LEASE,
                max_lease: DEFAULT_MAX_LEASE,
                in_flight: InFlight::default(),
                duplicate: Duplicate::default(),
                abandoned: Abandoned::default(),
                archive_lookup: ArchiveLookup::default(),
                store_down: StoreDown::default(),
                store_timeout: DEFAULT_STORE_TIMEOUT,
                request_limit: DEFAULT_BODY_LIMIT,
                response_limit: DEFAULT_BODY_LIMIT,
                response_deadline: DEFAULT_RESPONSE_DEADLINE,
                keep_bodies: true,
                keeps_only_success: false,
                forgotten_statuses: BTreeSet::from([425, 429]),
                headers: HeaderRules::default(),
                resource_id_pointer: DEFAULT_RESOURCE_ID_POINTER.to_owned(),
                late_status: StatusCode::CONFLICT,
                replay_header: DEFAULT_REPLAY_HEADER,
                expires_header: None,
            },
            lease: None,
            max_lease: None,
        }
    }

    /// Where the key is read from. Default: the header `Idempotency-Key`.
    pub fn key_source(mut self, source: KeySource) -> Self {
        self.policy.key_source = source;
        self
    }

    /// Whether a bare key is taken beside a quoted one. Default:
    /// [`KeySyntax::Lenient`].
    pub fn key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.policy.key_syntax = syntax;
        self
    }

    /// Lets a request without a key pass through, unprotected. By default it
    /// is a 400. A key that is present but unusable is a 400 in both cases.
    pub fn key_optional(self) -> Self {
        self.missing_key(MissingKey::Run)
    }

    /// What a request without a key gets. Default: [`MissingKey::Refuse`].
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        self.policy.missing_key = missing;
        self
    }

    /// The methods that are covered; others pass through untouched. Default:
    /// POST and PATCH. GET, HEAD and OPTIONS are refused.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.policy.methods = methods.into_iter().collect();
        self
    }

    /// The namespace in which a key is unique. Default: [`Scope::Principal`].
    pub fn scope(mut self, scope: Scope) -> Self {
        self.policy.scope = scope;
        self
    }

    /// What tells a repeat from a reuse. Default: [`FingerprintOptions::raw`].
    pub fn fingerprint(mut self, options: FingerprintOptions) -> Self {
        self.policy.fingerprint = options;
        self
    }

    /// How long a live record is kept. Default: 24 hours.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.policy.ttl = ttl;
        self
    }

    /// How long a record belongs to its attempt unless the lease is renewed,
    /// which happens while the handler runs: so, how long a key is blocked
    /// after a crash. Default: 30 s, or the longest lease where that is less.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long a handler may run at all; then it is aborted and its client
    /// gets `idempotency_outcome_unknown`. Default: 10 min, or half the TTL
    /// where that is less.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = Some(max_lease);
        self
    }

    /// What a duplicate gets while the first request runs. Default:
    /// [`InFlight::Reject`].
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.policy.in_flight = in_flight;
        self
    }

    /// What a duplicate gets once the first request is done. Default:
    /// [`Duplicate::Replay`].
    pub fn duplicate(mut self, duplicate: Duplicate) -> Self {
        self.policy.duplicate = duplicate;
        self
    }

    /// What a retry gets when the first attempt lapsed without an outcome.
    /// Default: [`Abandoned::TakeOver`].
    pub fn abandoned(mut self, abandoned: Abandoned) -> Self {
        self.policy.abandoned = abandoned;
        self
    }

    /// When a fresh key is looked up in the archive. Default:
    /// [`ArchiveLookup::TimestampedKeys`].
    pub fn archive_lookup(mut self, lookup: ArchiveLookup) -> Self {
        self.policy.archive_lookup = lookup;
        self
    }

    /// What a request gets while the store cannot be reached. Default:
    /// [`StoreDown::Closed`].
    pub fn store_down(mut self, store_down: StoreDown) -> Self {
        self.policy.store_down = store_down;
        self
    }

    /// How long a call to the store or the archive may take before it counts
    /// as unreachable. Default: 5 s.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.policy.store_timeout = timeout;
        self
    }

    /// Largest request body, in bytes; over it 413. Default: 1 MiB.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.policy.request_limit = bytes;
        self
    }

    /// Largest response body that is kept, in bytes. A larger one goes to its
    /// client, and a retry gets `idempotency_response_not_kept`. Default:
    /// 1 MiB.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.policy.response_limit = bytes;
        self
    }

    /// How long a response body may take to be complete; a slower one goes on
    /// to its client as it comes and is not kept. Default: 10 s.
    pub fn response_deadline(mut self, deadline: Duration) -> Self {
        self.policy.response_deadline = deadline;
        self
    }

    /// Keeps no response at all, for a route that shows a secret once: a retry
    /// gets `idempotency_response_not_kept` with the resource id.
    pub fn keep_no_bodies(mut self) -> Self {
        self.policy.keep_bodies = false;
        self
    }

    /// Statuses after which a retry runs again, beside 425 and 429. Choose
    /// only those that prove that nothing happened.
    pub fn forget_statuses(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        let statuses = statuses.into_iter().map(|status| status.as_u16());
        self.policy.forgotten_statuses.extend(statuses);
        self
    }

    /// Records successes (2xx) only. After any other status, a panic or an error
    /// of the service a retry runs again: for a sender that repeats what failed,
    /// and a handler that may run again after a failure.
    pub fn keep_only_success(mut self) -> Self {
        self.policy.keeps_only_success = true;
        self
    }

    /// Statuses that are recorded after all, such as 429.
    pub fn keep_statuses(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        for status in statuses {
            self.policy.forgotten_statuses.remove(&status.as_u16());
        }
        self
    }

    /// Response headers that are not recorded, beside the
    /// [built-in list](crate#headers-that-are-never-replayed).
    pub fn never_replay(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.policy.headers.never_replay(names);
        self
    }

    /// Response headers that are recorded although the built-in list leaves
    /// them out. Headers that frame the message never are.
    pub fn replay(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.policy.headers.replay(names);
        self
    }

    /// Where the resource id stands in a JSON response, when the handler does
    /// not name it. Default: `/id`.
    pub fn resource_id_pointer(mut self, pointer: impl Into<String>) -> Self {
        self.policy.resource_id_pointer = pointer.into();
        self
    }

    /// The status of `idempotency_key_expired`. Default: 409.
    pub fn late_status(mut self, status: StatusCode) -> Self {
        self.policy.late_status = status;
        self
    }

    /// The header that marks a replay, with the value `true`. Default:
    /// `Idempotent-Replayed`.
    pub fn replay_header(mut self, name: HeaderName) -> Self {
        self.policy.replay_header = name;
        self
    }

    /// States in this response header when the record expires, as a structured
    /// field Date (RFC 9651 section 3.3.7). Default: no such header.
    pub fn expires_header(mut self, name: HeaderName) -> Self {
        self.policy.expires_header = Some(name);
        self
    }

    /// The policy.
    ///
    /// # Errors
    ///
    /// The first combination that cannot work; see [`ConfigError`].
    pub fn build(self) -> Result<Policy, ConfigError> {
        let Self {
            mut policy,
            lease,
            max_lease,
        } = self;
        let ttl = policy.ttl.get();
        let unset = DEFAULT_MAX_LEASE.min(ttl / 2);
        policy.max_lease = max_lease.unwrap_or_else(|| unset.max(lease.unwrap_or_default()));
        policy.lease = lease.unwrap_or_else(|| DEFAULT_LEASE.min(policy.max_lease));
        // Whoever wants no limit at all may say so.
        policy.store_timeout = policy.store_timeout.min(LONGEST_TIMEOUT);
        policy.response_deadline = policy.response_deadline.min(LONGEST_TIMEOUT);
        if let InFlight::Wait(longest) = policy.in_flight {
            policy.in_flight = InFlight::Wait(longest.min(LONGEST_TIMEOUT));
        }
        policy.check()?;
        Ok(policy)
    }
}

impl Policy {
    fn check(&self) -> Result<(), ConfigError> {
        if self.methods.is_empty() {
            return Err(ConfigError::NoMethods);
        }
        let safe = [Method::GET, Method::HEAD, Method::OPTIONS];
        if let Some(method) = self.methods.iter().find(|method| safe.contains(method)) {
            return Err(ConfigError::SafeMethod(method.clone()));
        }
        if self.lease < SHORTEST_LEASE {
            return Err(ConfigError::LeaseTooShort);
        }
        if self.lease > self.max_lease {
            return Err(ConfigError::LeaseOverMaxLease);
        }
        if self.max_lease >= self.ttl.get() {
            return Err(ConfigError::MaxLeaseOverTtl);
        }
        if self.store_timeout.is_zero() {
            return Err(ConfigError::StoreTimeoutZero);
        }
        if self.in_flight == InFlight::Wait(Duration::ZERO) {
            return Err(ConfigError::WaitZero);
        }
        if self.request_limit == 0 || self.response_limit == 0 {
            return Err(ConfigError::BodyLimitZero);
        }
        if self.response_deadline.is_zero() {
            return Err(ConfigError::ResponseDeadlineZero);
        }
        if !self.late_status.is_client_error() {
            return Err(ConfigError::LateStatus(self.late_status));
        }
        self.key_source.check()?;
        check_pointer(&self.resource_id_pointer)
    }
}

const DEFAULT_KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const DEFAULT_REPLAY_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_MAX_LEASE: Duration = Duration::from_mins(10);
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// What no request lives to see, and still fits into a clock.
const LONGEST_TIMEOUT: Duration = Ttl::MAX.get();
const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_RESPONSE_DEADLINE: Duration = Duration::from_secs(10);
const DEFAULT_BODY_LIMIT: usize = 1024 * 1024;
const DEFAULT_RESOURCE_ID_POINTER: &str = "/id";
