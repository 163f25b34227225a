//! Idempotency keys for axum services that move money.
//!
//! A client that repeats a request gets the first answer, or a clear no: never
//! a second execution that the server could have known about. Not under
//! concurrency, not after a crash, not for another tenant, and, with an
//! [archive], not thirty hours later.
//!
//! # Use
//!
//! ```
//! use axum::{Router, routing::post};
//! use axum_idempotency::{
//!     IdempotencyLayer, Policy, PrincipalSource, archive::MemoryArchive, store::MemoryStore,
//! };
//!
//! # fn app() -> Result<Router, axum_idempotency::ConfigError> {
//! let idempotency = IdempotencyLayer::builder(MemoryStore::new())
//!     .archive(MemoryArchive::new())
//!     .policy(Policy::builder(PrincipalSource::bearer()).build()?)
//!     .build()?;
//!
//! let app = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .layer(idempotency);
//! # Ok(app)
//! # }
//! # app().expect("a valid configuration");
//! ```
//!
//! # Rules a route
//!
//! One layer, other rules where a route wants them. The principal is the one
//! thing a policy cannot do without; [`PolicyBuilder`] lists the rest with its
//! defaults.
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::post};
//! use axum_idempotency::{
//!     ArchiveLookup, IdempotencyLayer, InFlight, Policy, Principal, PrincipalSource, Ttl,
//!     archive::MemoryArchive, store::MemoryStore,
//! };
//!
//! /// What the authentication layer leaves in the request.
//! #[derive(Clone)]
//! struct Account { id: String }
//!
//! # fn app() -> Result<Router, Box<dyn std::error::Error>> {
//! let account = PrincipalSource::extension(|account: &Account| Principal::new(&account.id));
//! let charges = IdempotencyLayer::builder(MemoryStore::new())
//!     .archive(MemoryArchive::new())
//!     .policy(
//!         Policy::builder(account.clone())
//!             .in_flight(InFlight::Wait(Duration::from_secs(5)))
//!             .build()?,
//!     )
//!     .documentation("https://api.example.com/docs/idempotency")
//!     .build()?;
//! let payouts = charges.with_policy(
//!     Policy::builder(account)
//!         .ttl(Ttl::new(Duration::from_secs(7 * 86_400))?)
//!         .archive_lookup(ArchiveLookup::RequireTimestamped)
//!         .build()?,
//! )?;
//!
//! let app = Router::new()
//!     .route("/charges", post(|| async { "charged" }).layer(charges))
//!     .route("/payouts", post(|| async { "paid out" }).layer(payouts));
//! # Ok(app)
//! # }
//! # app().expect("a valid configuration");
//! ```
//!
//! # Webhooks
//!
//! Events that a provider delivers, and delivers again: [`webhook`] has the
//! policies of those that are known, and what has to be verified before.
//!
//! # Where the layer goes
//!
//! The last `.layer` of a router is the outermost:
//! `.layer(idempotency).layer(authentication).layer(cors)`. That is inside the
//! layer that authenticates, so that a repeat is authorised again;
//! inside compression and CORS, which belong to each client; outside whatever
//! rewrites responses for transport. A CORS layer has to allow the request
//! header `Idempotency-Key` and to expose `Idempotent-Replayed` and
//! `Retry-After`:
//!
//! ```
//! use axum::http::{
//!     HeaderName, HeaderValue, Method,
//!     header::{AUTHORIZATION, CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER},
//! };
//! use tower_http::cors::CorsLayer;
//!
//! let key = HeaderName::from_static("idempotency-key");
//! let replayed = HeaderName::from_static("idempotent-replayed");
//! let cors = CorsLayer::new()
//!     .allow_origin(HeaderValue::from_static("https://app.example.com"))
//!     .allow_methods([Method::POST])
//!     .allow_headers([AUTHORIZATION, CONTENT_TYPE, key])
//!     .expose_headers([replayed, RETRY_AFTER, LOCATION, LINK]);
//! ```
//!
//! # What a handler should know
//!
//! - It does not end with its client: from the claim on, the request goes on
//!   in a task of its own when the client hangs up. Task-locals set outside the
//!   layer are lost then, so pass what it needs in request extensions.
//! - It may run again when an earlier attempt ended without an outcome (a
//!   crash, a lapsed lease). [`Idempotency::attempt`] tells.
//! - `Accept-Encoding` does not reach it: what is recorded is the identity
//!   form.
//! - Its panic is recorded as a 500, because nobody knows whether the effect
//!   happened. [`Recording`] overrides what is kept, response by response.
//! - Where its effect is in the store's own database, it can commit both together,
//!   effect and record: with `enlist` of a store in SQLite or PostgreSQL.
//!
//! # Headers that are never replayed
//!
//! Hop-by-hop headers and those that `Connection` names, `content-length`
//! (recomputed), `date`, `set-cookie`, `www-authenticate`, `proxy-*`,
//! `server-timing`, `alt-svc`, `access-control-*`, trace and request ids
//! (`traceparent`, `tracestate`, `baggage`, `x-request-id`, `request-id`,
//! `x-correlation-id`, `x-trace-id`, `x-b3-*`, `x-amzn-trace-id`,
//! `x-amzn-requestid`, `x-cloud-trace-context`) and rate limits (`ratelimit`,
//! `ratelimit-*`, `x-ratelimit-*`, `x-rate-limit-*`). All others are recorded,
//! repeated ones in order.
//!
//! # The other side
//!
//! A retry is only as good as its key. [`client`] gives each request of a
//! `reqwest` client one, repeats it under that key, honours `Retry-After` and
//! the `retry` of the server's problem documents, and stops before the window
//! ends.
//!
//! # What the guarantee does not cover
//!
//! - **A crash between the effect and its record**, unless they commit together:
//!   see `Work` in [`store`]. The next attempt runs and
//!   is told that it is the second; [`Abandoned::Refuse`] answers
//!   `idempotency_outcome_unknown` instead. What must never happen twice also
//!   needs a unique constraint on a business reference, which outlives every
//!   key.
//! - **A late retry with a key that does not tell its age**, such as a `UUIDv4`,
//!   after TTL and sweep: under the default [`ArchiveLookup::TimestampedKeys`]
//!   it runs again. [`ArchiveLookup::AllKeys`] asks the archive about it.
//! - **Expired keys without an archive**: they are unknown, and run again.
//! - **A store that loses what it confirmed**, such as a memory store that
//!   restarts. What Redis can lose, and what is answered then, is told
//!   [beside the store](store::redis#what-redis-can-lose).
//! - **A rotated token**, where the bearer token is the principal: it is
//!   another principal, with other keys.
//!
//! # Operations
//!
//! What happened to this key, and what was in flight at 02:14? [`inspect`] asks store
//! and archive; the command `idempotency` (feature `cli`) and [`console`] (feature
//! `console`) do it for those who carry the pager, and the
//! [runbook](guide::runbook) says what to do. Each request has a span of `tracing`,
//! called `idempotency`, with its [outcome](RequestOutcome), its scoped key, its
//! attempt, and where its time went; [`metrics`] has the counters and gauges.
//!
//! # Guides
//!
//! [`guide`] has a page for each question that comes before the first request: scope,
//! TTL, archive, stores, security, a comparison with others, a store of your own.
//!
//! # Features
//!
//! | feature | brings |
//! | --- | --- |
//! | none (default) | the layer, the memory store and archive, the sweeper |
//! | `sqlite` | [`store::sqlite::SqliteStore`] and [`archive::SqliteArchive`] |
//! | `postgres` | [`store::postgres::PostgresStore`] and [`archive::PostgresArchive`] |
//! | `redis` | [`store::redis::RedisStore`] |
//! | `client` | [`client`]: keys and retries for `reqwest`, by way of `reqwest-middleware` |
//! | `conformance` | [`conformance`]: the suite that a store of your own can be tested with |
//! | `metrics` | [`metrics`]: counters, gauges and histograms through the facade of that name |
//! | `console` | [`console`]: a read-only page for operators, to mount behind your own authentication |
//! | `cli` | the command `idempotency` |
//! | `utoipa` | a policy as types of utoipa, for an `OpenAPI` document: [`Policy::document`] |
//! | `full` | all of them |
//!
//! Modelled on draft-ietf-httpapi-idempotency-key-header-07, an expired
//! Internet-Draft.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(panic = "abort")]
compile_error!(
    "axum-idempotency needs panic = \"unwind\": a handler's panic is caught and recorded, \
     so that a retry does not run again"
);

/// The README's code is compiled as it stands.
#[cfg(all(
    doctest,
    feature = "sqlite",
    feature = "postgres",
    feature = "redis",
    feature = "client",
    feature = "console"
))]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod archive;
mod archivist;
mod body;
pub mod canonical;
pub mod claim;
#[cfg(feature = "client")]
pub mod client;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod connect;
#[cfg(feature = "console")]
pub mod console;
mod detached;
mod fingerprint;
mod flights;
mod flow;
// Built for the documentation alone, and tested where all that it names is there.
#[cfg(feature = "metrics")]
mod gauges;
#[cfg(all(doc, any(not(doctest), feature = "full")))]
pub mod guide;
mod handle;
mod handler;
mod identity;
mod in_force;
pub mod inspect;
mod key;
mod layer;
mod leases;
#[cfg(feature = "metrics")]
mod metered;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
mod metrics;
mod outcome;
#[cfg(feature = "postgres")]
mod partition;
mod pending;
mod policy;
mod record;
mod rejection;
mod request_outcome;
mod resource;
mod scope;
pub mod store;
mod sweep;
pub mod timestamp;
mod ttl;
pub mod webhook;
pub mod worker;

pub use crate::{
    claim::{Abandoned, ArchiveLookup},
    clock::{Clock, ManualClock, SystemClock},
    fingerprint::{Comparison, Fingerprint, FingerprintInput, FingerprintOptions},
    handler::{Idempotency, IdempotencyMissing, Recording},
    key::{IdempotencyKey, KeyError, KeySyntax},
    layer::{
        Found, FoundState, IdempotencyLayer, IdempotencyLayerBuilder, IdempotencyService,
        ResponseFuture, ShutdownTimedOut,
    },
    policy::{
        ConfigError, Duplicate, InFlight, KeySource, MissingKey, Policy, PolicyBuilder,
        PrincipalSource, StoreDown,
    },
    record::{
        Completion, ExpiredRecord, KeptResponse, OwnerToken, Record, RecordState, ResourceId,
        Tombstone,
    },
    rejection::{LateRetry, Rejection, Retry},
    request_outcome::RequestOutcome,
    scope::{InvalidScopedKey, Principal, Scope, ScopeSecret, ScopedKey},
    sweep::{RunningSweeper, Sweeper, Swept},
    ttl::{Ttl, TtlBuilder, TtlError},
};
