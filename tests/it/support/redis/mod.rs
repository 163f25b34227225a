//! Redis for tests.

/// The server that is there for all tests.
pub(crate) fn server_url() -> String {
    std::env::var("REDIS_URL").unwrap_or_else(|_| {
        panic!("REDIS_URL is not set: run tests/run.sh, or tests/redis.sh cargo test ...")
    })
}

/// What the names of one test's keys begin with.
pub(crate) fn prefix() -> String {
    format!("t-{}:", uuid::Uuid::new_v4())
}
