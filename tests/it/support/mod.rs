//! What the tests share: backends, a service whose handler they step, a
//! client, and a store that fails on demand.
//!
//! Nothing here sleeps. A test waits for what it needs to have happened, at a
//! [`Gate`] or on a count, and fails when that takes [`PATIENCE`].

mod answer;
mod ask;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) mod attempt;
mod backend;
mod faulty;
mod faulty_inspect;
mod gate;
mod logs;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod script;
pub(crate) mod servers;
mod shop;
mod spans;
#[cfg(feature = "sqlite")]
mod sqlite;
mod work;

use std::{future::Future, time::Duration};

pub(crate) use self::{
    answer::Answer,
    ask::{Ask, Started},
    backend::{Backend, scoped, ulid_of},
    faulty::{FaultyArchive, FaultyStore},
    gate::Gate,
    logs::Logs,
    script::{Fault, Script, Verb},
    shop::{Line, Opening, Shop},
    spans::{Fields, Spans},
    work::{Seen, Work},
};

/// How long a test may wait for anything at all before it counts as stuck.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Runs a test, and fails it when it is stuck.
pub(crate) async fn in_time(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(PATIENCE, test).await;
    ended.expect("the test waits for something that does not happen");
}

/// The same for a runtime whose clock is paused: a day goes by at once when
/// everybody waits for something that does not happen.
pub(crate) async fn within_a_day(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_hours(24), test).await;
    ended.expect("the test waits for something that does not happen");
}

/// Makes a test on each backend of each function, which gets the backend.
macro_rules! on_every_backend {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $test() {
                    let backend = $crate::support::Backend::memory();
                    $crate::support::in_time(super::$test(backend)).await;
                }
            )+
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    let backend = $crate::support::Backend::sqlite().await;
                    $crate::support::in_time(super::$test(backend)).await;
                }
            )+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    let backend = $crate::support::Backend::postgres().await;
                    $crate::support::in_time(super::$test(backend)).await;
                }
            )+
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(
                #[tokio::test]
                async fn $test() {
                    let backend = $crate::support::Backend::redis().await;
                    $crate::support::in_time(super::$test(backend)).await;
                }
            )+
        }
    };
}

/// Makes a test of each function on a memory store whose clock is that of a
/// paused runtime: time passes when nobody has anything else to do.
macro_rules! on_tokio_time {
    ($($test:ident),+ $(,)?) => {
        mod on_tokio_time {
            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    let backend = $crate::support::Backend::on_tokio_time();
                    $crate::support::within_a_day(super::$test(backend)).await;
                }
            )+
        }
    };
}

pub(crate) use {on_every_backend, on_tokio_time};
