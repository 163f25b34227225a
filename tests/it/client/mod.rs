//! The client's middleware against this crate's own layer, and against answers
//! of other servers.

mod bodies;
mod expired;
mod keys;
mod retries;
mod secrecy;
mod settings;
mod statuses;
mod support;
mod waits;
mod way;
mod window;
