//! What is special about the Redis store.

mod conformance;
