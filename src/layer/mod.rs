//! The tower layer and its service.

mod builder;
mod find;
mod future;
mod problem;
mod service;

pub use self::{
    builder::{IdempotencyLayer, IdempotencyLayerBuilder, ShutdownTimedOut},
    find::{Found, FoundState},
    future::ResponseFuture,
    service::IdempotencyService,
};
