//! Inbound webhooks: each event is processed once, however often its provider
//! delivers it.
//!
//! A [`Webhook`] knows where a provider puts the id of an event, how long it may
//! deliver it again, and what it makes of an answer. It becomes a [`Policy`]:
//!
//! ```
//! use axum::{Router, routing::post};
//! use axum_idempotency::{
//!     IdempotencyLayer, archive::MemoryArchive, store::MemoryStore, webhook::Webhook,
//! };
//!
//! # fn app() -> Result<Router, axum_idempotency::ConfigError> {
//! let events = IdempotencyLayer::builder(MemoryStore::new())
//!     .archive(MemoryArchive::new())
//!     .policy(Webhook::stripe().build()?)
//!     .build()?;
//! let app = Router::new().route("/hooks/stripe", post(|| async { "done" }).layer(events));
//! # Ok(app)
//! # }
//! # app().expect("a valid configuration");
//! ```
//!
//! Give the layer a [sweeper](crate::IdempotencyLayer::sweeper): it moves events
//! into the archive when their time is over.
//!
//! # What a delivery gets
//!
//! | delivery | answer |
//! | --- | --- |
//! | the first | the handler's |
//! | a duplicate while the first runs | 409 with `Retry-After`: the first may still fail |
//! | a duplicate of one that succeeded (2xx) | that answer again, or an empty 200; nothing runs |
//! | after a failure (any other status, a panic) | the handler runs again |
//! | after a crash, once the lease is over | the handler runs, and is told that it is the second attempt |
//! | later than the retention, with a known outcome | an empty 200; nothing runs |
//! | later than the retention, without one | the handler runs, and is told that it is at least the second attempt |
//! | without an id | the handler runs, with a warning in the log, or 400 under [`Webhook::refuse_missing_id`] |
//! | with an id that cannot be used, or a body that cannot be parsed | 400; nothing runs |
//!
//! A handler has to be ready for a second attempt, since no provider delivers
//! exactly once: [`Idempotency::attempt`](crate::Idempotency::attempt) tells.
//! Providers promise no order of events either.
//!
//! # Rules
//!
//! 1. **Verify the signature outside this layer.** Whoever can send an id that
//!    is not verified can burn it, and the real event is then taken for a
//!    duplicate. See [below](#verifying-outside).
//! 2. Ids are those of a provider and, by default, of an endpoint, because an
//!    event that several endpoints subscribe is delivered to each under one id.
//!    They never meet the keys of clients.
//! 3. The payload is not compared: providers change it between deliveries. A
//!    policy that is told to compare it after all refuses a changed one, with
//!    422.
//! 4. Ids carry no time, so the archive is asked about every one that is not in
//!    the store: [`ArchiveLookup::AllKeys`], and a layer without an archive is
//!    not built. Under [`ArchiveLookup::TimestampedKeys`] nothing is asked, and
//!    a delivery later than the retention runs again.
//! 5. The body of a delivery may have 1 MiB; where a provider sends more, raise
//!    [`PolicyBuilder::request_limit`] by way of [`Webhook::policy`].
//!
//! # Verifying outside
//!
//! The signature is over the raw bytes, which the verifying layer reads, to a
//! limit, and passes on as they are. For Standard Webhooks, with the crate
//! `standardwebhooks`:
//!
//! ```
//! use std::sync::Arc;
//! use axum::{
//!     Router,
//!     body::{Body, to_bytes},
//!     extract::{Request, State},
//!     http::StatusCode,
//!     middleware::{Next, from_fn_with_state},
//!     response::Response,
//!     routing::post,
//! };
//! use axum_idempotency::{
//!     IdempotencyLayer, archive::MemoryArchive, store::MemoryStore, webhook::Webhook,
//! };
//!
//! const LARGEST_EVENT: usize = 1024 * 1024;
//!
//! type Verifier = Arc<standardwebhooks::Webhook>;
//!
//! async fn verify(
//!     State(verifier): State<Verifier>,
//!     request: Request,
//!     next: Next,
//! ) -> Result<Response, StatusCode> {
//!     let (parts, body) = request.into_parts();
//!     let body = to_bytes(body, LARGEST_EVENT)
//!         .await
//!         .map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
//!     verifier
//!         .verify(&body, &parts.headers)
//!         .map_err(|_| StatusCode::UNAUTHORIZED)?;
//!     Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
//! }
//!
//! # const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
//! # fn app() -> Result<Router, Box<dyn std::error::Error>> {
//! let verifier = Arc::new(standardwebhooks::Webhook::new(SECRET)?);
//! let events = IdempotencyLayer::builder(MemoryStore::new())
//!     .archive(MemoryArchive::new())
//!     .policy(Webhook::standard().build()?)
//!     .build()?;
//! let app = Router::new()
//!     .route("/hooks", post(|| async { "done" }))
//!     .layer(events)
//!     // The last layer is the outermost: nothing unverified gets past it.
//!     .layer(from_fn_with_state(verifier, verify));
//! # Ok(app)
//! # }
//! #
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! #     use tower::ServiceExt as _;
//! #     let app = app().expect("a valid configuration");
//! #     let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
//! #     let now = i64::try_from(now.as_secs()).expect("a time before the end of it");
//! #     let signer = standardwebhooks::Webhook::new(SECRET).expect("a secret");
//! #     let send = |signed: &'static [u8]| {
//! #         let signature = signer.sign("msg_1", now, signed).expect("a signature");
//! #         let request = Request::post("/hooks")
//! #             .header("webhook-id", "msg_1")
//! #             .header("webhook-timestamp", now)
//! #             .header("webhook-signature", signature)
//! #             .body(Body::from("{}"));
//! #         app.clone().oneshot(request.expect("a request"))
//! #     };
//! #     let forged = send(b"{ }").await.expect("an answer");
//! #     assert_eq!(forged.status(), StatusCode::UNAUTHORIZED);
//! #     for replayed in [false, true] {
//! #         let answer = send(b"{}").await.expect("an answer");
//! #         assert_eq!(answer.status(), StatusCode::OK);
//! #         assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
//! #     }
//! # }
//! ```

use std::{borrow::Cow, fmt, sync::Arc};

use http::{HeaderName, HeaderValue, Method, request::Parts};

use crate::{
    claim::ArchiveLookup,
    fingerprint::FingerprintOptions,
    policy::{
        ConfigError, Duplicate, KeySource, MissingKey, Policy, PolicyBuilder, PrincipalSource,
    },
    scope::{Principal, Scope},
    ttl::Ttl,
};

mod adyen;
mod providers;

pub use self::adyen::{Adyen, AdyenItem};

/// How one provider delivers its events. Made by the constructor of the
/// provider, or by [`Webhook::new`] for one that has none.
///
/// ```
/// use axum_idempotency::{KeySource, Ttl, webhook::Webhook};
///
/// let acme = Webhook::new(
///     "acme",
///     KeySource::BodyPointer("/event/id".to_owned()),
///     Ttl::floor_for(std::time::Duration::from_secs(86_400))?,
/// )
/// .account_header("x-acme-merchant".parse()?)
/// .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Webhook {
    provider: Cow<'static, str>,
    id: KeySource,
    retention: Ttl,
    account: Option<Arc<FindAccount>>,
    missing: MissingKey,
    lookup: ArchiveLookup,
}

type FindAccount = dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync;

impl Webhook {
    /// The webhooks of a provider: its name, which keeps its ids from those of
    /// others, where the id of an event is, and how long it is remembered. That
    /// has to be longer than the provider delivers an event again, resends by
    /// hand included.
    pub fn new(provider: impl Into<Cow<'static, str>>, id: KeySource, retention: Ttl) -> Self {
        Self {
            provider: provider.into(),
            id,
            retention,
            account: None,
            missing: MissingKey::RunAndWarn,
            lookup: ArchiveLookup::AllKeys,
        }
    }

    /// A header that names the account of the provider's an event belongs to,
    /// such as a shop or a merchant, where ids are unique only within one. A
    /// delivery without it, or with two, is a 401.
    pub fn account_header(self, name: HeaderName) -> Self {
        self.account(move |parts| {
            let mut values = parts.headers.get_all(&name).iter();
            let value = values.next().map(HeaderValue::as_bytes)?;
            let is_one = values.next().is_none() && !value.is_empty();
            is_one.then(|| value.to_vec())
        })
    }

    /// The same from whatever else the head of a request tells, such as an
    /// extension that the verifying layer has set. `None` is a 401.
    pub fn account(
        mut self,
        find: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.account = Some(Arc::new(find));
        self
    }

    /// How long an event is remembered with its answer. Default: that of the
    /// provider's constructor.
    pub fn retention(mut self, retention: Ttl) -> Self {
        self.retention = retention;
        self
    }

    /// Answers 400 `idempotency_key_missing` to a delivery without an id.
    /// Default: it runs, and a warning is logged.
    pub fn refuse_missing_id(mut self) -> Self {
        self.missing = MissingKey::Refuse;
        self
    }

    /// When the archive is asked. Default: [`ArchiveLookup::AllKeys`], which
    /// needs one.
    pub fn archive_lookup(mut self, lookup: ArchiveLookup) -> Self {
        self.lookup = lookup;
        self
    }

    /// Who the ids belong to where no account is told: to ask
    /// [`IdempotencyLayer::find`](crate::IdempotencyLayer::find) about one.
    pub fn principal(&self) -> Principal {
        Principal::constant(self.provider.as_bytes())
    }

    /// The same for an account of the provider's.
    pub fn principal_of(&self, account: impl AsRef<[u8]>) -> Principal {
        principal_of(&self.provider, account.as_ref())
    }

    /// The policy with everything set, for further adjustment:
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum_idempotency::{InFlight, webhook::Webhook};
    ///
    /// let policy = Webhook::github()
    ///     .policy()
    ///     .in_flight(InFlight::Wait(Duration::from_secs(5)))
    ///     .build()?;
    /// # Ok::<(), axum_idempotency::ConfigError>(())
    /// ```
    ///
    /// It covers POST, and its keys are unique per endpoint
    /// ([`Scope::PrincipalAndEndpoint`]).
    pub fn policy(&self) -> PolicyBuilder {
        let principal = match &self.account {
            None => PrincipalSource::constant(self.provider.as_bytes()),
            Some(find) => {
                let (provider, find) = (self.provider.clone(), Arc::clone(find));
                PrincipalSource::from_fn(move |parts| {
                    find(parts).map(|account| principal_of(&provider, &account))
                })
            }
        };
        Policy::builder(principal)
            .key_source(self.id.clone())
            .missing_key(self.missing)
            .methods([Method::POST])
            .scope(Scope::PrincipalAndEndpoint)
            .fingerprint(FingerprintOptions::none())
            .ttl(self.retention)
            .duplicate(Duplicate::Acknowledge)
            .keep_only_success()
            .archive_lookup(self.lookup)
    }

    /// The policy.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadProvider`], and what [`PolicyBuilder::build`] finds.
    pub fn build(&self) -> Result<Policy, ConfigError> {
        let provider = &self.provider;
        if provider.is_empty() || provider.contains(char::is_control) {
            return Err(ConfigError::BadProvider(provider.to_string()));
        }
        self.policy().build()
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("provider", &self.provider)
            .field("id", &self.id)
            .field("retention", &self.retention)
            .field("account", &self.account.is_some())
            .field("missing", &self.missing)
            .field("lookup", &self.lookup)
            .finish()
    }
}

/// A zero byte is in no provider's name, so that none with an account is called
/// like one without.
fn principal_of(provider: &str, account: &[u8]) -> Principal {
    Principal::constant([provider.as_bytes(), b"\0", account].concat())
}
