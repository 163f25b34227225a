//! The one test binary: the stores against their contract, and the crate over
//! HTTP on every store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod archive_first;
mod archive_lookup;
mod builders;
mod claim_results;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "client")]
mod client;
mod completions;
mod conformance;
#[cfg(feature = "console")]
mod console;
mod context;
mod expires_header;
mod expiry;
mod extractor;
mod failures;
mod fingerprints;
mod framing;
mod guide;
mod hang_ups;
mod headers;
mod jobs;
mod key_times;
mod keys;
mod leases;
mod memory_store;
mod metrics;
mod ops;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_support;
mod preparation;
mod principals;
mod problem_documents;
mod published;
mod ranks;
mod reconcile;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_support;
mod rejections;
mod request_bodies;
mod response_bodies;
mod secrecy;
mod services;
mod settle;
mod shutdown;
mod spans;
mod speculative;
mod sqlite;
mod status_policy;
mod store_down;
mod storms;
mod takeover;
mod truths;
mod ttl_in_force;
mod ttls;
mod vectors;
mod waiting;
mod webhooks;
mod wire;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod work;
mod workers;
