//! The tower layer and its service.

mod builder;
mod future;
mod problem;
mod service;

pub use self::{
    builder::{IdempotencyLayer, IdempotencyLayerBuilder, ShutdownTimedOut},
    future::ResponseFuture,
    service::IdempotencyService,
};
