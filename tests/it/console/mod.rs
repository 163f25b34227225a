//! The console for operators: over HTTP on every store, and in a browser.

mod browser;
mod driver;
mod faults;
mod files;
mod http;
mod keys;
mod overview;
mod routes;
mod secrecy;
mod stage;
mod traffic;
