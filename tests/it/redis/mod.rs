//! What is special about the Redis store.

use axum_idempotency::store::redis::RedisStore;

mod conformance;
mod crash_points;
mod crowds;
mod inspect;
mod loss;
mod memory_limit;
mod places;
mod round_trips;
mod setup;
mod sweep;
mod under_load;

async fn open(url: &str) -> RedisStore {
    open_with_prefix(url, "").await
}

async fn open_with_prefix(url: &str, prefix: &str) -> RedisStore {
    let opened = RedisStore::builder().url(url).prefix(prefix).open().await;
    opened.unwrap_or_else(|error| panic!("{url} does not open: {error}"))
}
