//! Effects that commit with their records, in processes that die on the way.

mod charges;
mod crashes;
#[cfg(feature = "postgres")]
mod cut_off;
mod replies;

use super::{Service, Site, http::Request};

/// The named tests over each store that effects can commit with.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::sqlite()).await;
            })*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::postgres()).await;
            })*
        }
    };
}

use on_both;

/// A request whose effect commits with its record, in this way.
fn work(service: &Service, key: &str, how: &str) -> Request {
    service.post(&format!("/work{how}")).key(key).body("charge")
}

/// Two retries get the same answer, and it tells of the one effect.
async fn has_one_effect_and_one_answer(site: &Site, key: &str, how: &str) {
    let service = site.testbed().await;
    let first = super::settled(&work(&service, key, how)).await;
    assert_eq!(first.status, 201, "{first}");
    assert_eq!(first.json()["execution"], 1, "{first}");
    for _ in 0..2 {
        work(&service, key, how).send().await.must_replay(&first);
    }
    assert_eq!(service.executions(key).await, 1);
    assert_eq!(service.total().await, 1);
}
