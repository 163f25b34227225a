//! A handler's effect and the record of its outcome in one transaction: both are
//! there or neither, and what was recorded is what its client gets.

mod base;
mod bodies;
mod commits;
mod cut_off;
mod fencing;
mod jobs;
mod leaving;
mod refusals;
mod unprotected;

use std::future::Future;

use axum::response::{IntoResponse as _, Response};
use axum_idempotency::RecordState;
use http::header::SET_COOKIE;

use self::base::{Base, Work};
use crate::support::{Backend, Opening, Seen, Shop, Work as Handler};

/// A database with a store and the handlers' own table in it.
struct Place {
    base: Base,
    backend: Backend,
}

impl Place {
    async fn sqlite() -> Self {
        let (base, backend) = Base::sqlite().await;
        Self { base, backend }
    }

    async fn postgres() -> Self {
        let (base, backend) = Base::postgres().await;
        Self { base, backend }
    }

    /// A service whose handlers commit with its store's records.
    fn shop(&self) -> Opening {
        let store = self.backend.process().with_its_identity();
        self.backend.shop().over(store)
    }

    /// One whose handler does this.
    fn shop_of<F>(&self, handler: impl Fn(Base, Seen) -> F + Send + Sync + 'static) -> Opening
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let base = self.base.clone();
        let handler = Handler::answering(move |seen| handler(base.clone(), seen));
        self.shop().work(handler)
    }

    /// One that charges once a key.
    fn charging(&self) -> Opening {
        self.shop_of(async |base, seen| charge(&base, &seen).await)
    }

    /// Another process, which charges without more ado.
    async fn other(&self) -> Shop {
        self.backend.shop().open().await
    }

    async fn is_completed(&self, key: &str) -> bool {
        let record = self.backend.record(key).await;
        record.is_some_and(|record| matches!(record.state, RecordState::Completed(_)))
    }

    /// There is no effect, and no outcome.
    async fn expect_nothing(&self, key: &str) {
        assert_eq!(self.base.effects().await, 0, "an effect without its record");
        assert!(!self.is_completed(key).await, "a record without its effect");
    }
}

/// Charges under the request's key, and commits that with its record.
async fn charge(base: &Base, seen: &Seen) -> Response {
    let idempotency = seen.idempotency();
    let mut work = base.begin(&idempotency).await;
    work.have_effect(idempotency.key().as_str()).await;
    work.commit(charged(seen)).await
}

/// A charge, with something that is never replayed.
fn charged(seen: &Seen) -> Response {
    let cookie = [(SET_COOKIE, "session=1")];
    (cookie, seen.charge()).into_response()
}

/// Makes a test on each database of each function.
macro_rules! on_both {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    let place = $crate::work::Place::sqlite().await;
                    $crate::support::in_time(super::$test(place)).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    let place = $crate::work::Place::postgres().await;
                    $crate::support::in_time(super::$test(place)).await;
                }
            )+
        }
    };
}

use on_both;
