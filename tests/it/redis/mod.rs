//! What is special about the Redis store.

mod conformance;
mod crash_points;
mod loss;
mod places;
