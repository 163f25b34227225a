//! The other side of the wire: keys, and retries that stay inside the window
//! of a server.
//!
//! [`IdempotencyMiddleware`] is a middleware for [`reqwest`], by way of
//! [`reqwest_middleware`]. It works with every server that honours the header
//! `Idempotency-Key`, and knows what this crate's own answers mean.
//!
//! # Use
//!
//! ```no_run
//! use axum_idempotency::client::IdempotencyMiddleware;
//! use reqwest_middleware::ClientBuilder;
//!
//! # async fn charge() -> Result<(), Box<dyn std::error::Error>> {
//! let http = reqwest::Client::builder()
//!     .timeout(std::time::Duration::from_secs(30))
//!     .build()?;
//! let client = ClientBuilder::new(http)
//!     .with(IdempotencyMiddleware::new())
//!     .build();
//!
//! let charge = client.post("http://shop.example/v1/charges");
//! let charge = charge.body(r#"{"amount":4500}"#).send().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Give the client a timeout: without one, a server that says nothing is waited
//! for without end, and no retry comes.
//!
//! # With a key of your own
//!
//! A caller that can crash itself makes the key before it sends, and stores it
//! with its intent, in one transaction with the order that is to be charged.
//! The middleware's own key lives as long as the call: whoever restarts, or
//! drops the call, and sends the operation under another key has charged twice. Restored from the
//! store, the key is judged by its age; past the window nothing is sent, since
//! the server may have forgotten it.
//!
//! ```no_run
//! use std::time::Duration;
//! use axum_idempotency::client::{IdempotencyMiddleware, Key, KeyExpired, WindowPassed};
//! use reqwest_middleware::ClientBuilder;
//!
//! # async fn pay_out(stored_key: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let idempotency = IdempotencyMiddleware::builder()
//!     .window(Duration::from_secs(7 * 86_400))
//!     .margin(Duration::from_secs(3_600))
//!     .attempts(8)
//!     .backoff(Duration::from_millis(500), Duration::from_secs(30))
//!     .total_time(Duration::from_secs(600))
//!     .build()?;
//! let client = ClientBuilder::new(reqwest::Client::new())
//!     .with(idempotency)
//!     .build();
//!
//! // Made by `Key::generate` and stored when the payout was ordered.
//! let key = Key::new(stored_key)?;
//! let payout = client.post("http://shop.example/v1/payouts");
//! let payout = payout.body(r#"{"amount":4500}"#).with_extension(key);
//! match payout.send().await {
//!     Ok(response) => println!("{}", response.status()),
//!     Err(error) => match KeyExpired::from_error(&error) {
//!         Some(expired) => println!("look up {:?}", expired.resource_id),
//!         None if WindowPassed::from_error(&error).is_some() => println!("look it up"),
//!         None => println!("send it later, under the key that is stored"),
//!     },
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The key
//!
//! One ULID for each logical request, the same over all its attempts, in a
//! header that is marked as sensitive. A key header that the request has
//! already is left as it is, or refused ([`UnusableKey`]) where the server would
//! refuse it; without one, a [`Key`] among the request's extensions is used. Methods that are not covered pass through untouched.
//!
//! # What is retried
//!
//! | what came | what follows |
//! | --- | --- |
//! | no connection, a broken one, a timeout | the same request again |
//! | a problem document whose `retry` is `same-key-later` | the same again |
//! | 425, 429, 502, 503 or 504 without a `retry` that is known | the same again, unless `Idempotent-Replayed` says that it is what was recorded |
//! | a problem document with `fix`, `new-key` or `reconcile` | it is the answer |
//! | a problem document with the code `idempotency_key_expired` | [`KeyExpired`] |
//! | any other response, 408 and 500 included | it is the answer: a server that records it would only replay it |
//!
//! Before the next attempt passes what `Retry-After` asks for (seconds or a
//! date, RFC 9110 section 10.2.3), never less, and a backoff with jitter. The
//! last response is returned as it came, its body whole; the last error as
//! [`RetriesExhausted`]. Both hold the [`Key`], and [`GaveUp::of_response`] tells a
//! response that still says "later" from an answer. A body that is a stream is sent
//! once, with its key. A response whose body breaks off while you read it is
//! yours to repeat: under the key in its extensions.
//!
//! # The bounds
//!
//! A number of attempts, a total time, and the window: the time for which the
//! server answers for a key. No attempt starts once less than the margin is
//! left of it, counted from the time in the key (a ULID, a `UUIDv7`), else from
//! the first send. No wait begins that would end past a bound. What is sent past the window may be executed a second time,
//! by a server that keeps no archive.
//!
//! # Where the rules come from
//!
//! draft-ietf-httpapi-idempotency-key-header-07: a client uses a key of its own
//! for each request and goes by the requirements that the server publishes
//! (2.5); a retry after completion gets the first result, success or error
//! (2.6); a client corrects a request before it repeats it, except after a 409
//! for one that is still in progress, and for other statuses follows the
//! server's documentation (2.7). What this crate's server documents is the
//! `retry` of its problem documents.

mod body;
mod builder;
mod error;
mod key;
mod middleware;
mod verdict;
mod wait;
mod window;

pub use self::{
    builder::{IdempotencyMiddlewareBuilder, SettingsError},
    error::{GaveUp, KeyExpired, KnownOutcome, RetriesExhausted, UnusableKey, WindowPassed},
    key::Key,
    middleware::IdempotencyMiddleware,
};
