//! The command `idempotency`, as a process of its own over each store.

/// The named tests, once over each store, with an archive.
macro_rules! on_every_place {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                let place = crate::cli::place::Place::sqlite();
                crate::support::in_time(super::$test(place)).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                let place = crate::cli::place::Place::postgres();
                crate::support::in_time(super::$test(place)).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $test() {
                let place = crate::cli::place::Place::redis();
                crate::support::in_time(super::$test(place)).await;
            })*
        }
    };
}

mod errors;
mod forget;
mod help;
mod in_flight;
mod keys;
mod migrate;
mod partitions;
mod place;
mod records;
mod stats;
mod sweep;
mod verify;

use self::place::{Place, Ran};
