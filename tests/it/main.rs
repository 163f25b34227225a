//! The one test binary.

mod conformance;
mod memory_store;
mod sqlite;
mod vectors;
