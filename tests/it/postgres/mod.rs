//! What is special to the PostgreSQL store and archive.

#[cfg(feature = "conformance")]
mod conformance;
