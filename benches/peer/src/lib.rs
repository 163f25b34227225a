//! Nothing: see `benches/added.rs`.
