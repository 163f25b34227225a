//! The one test binary.

mod conformance;
mod sqlite;
mod vectors;
