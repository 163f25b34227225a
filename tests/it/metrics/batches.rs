//! What goes to a store together: rows of group-committed batches.

use std::time::Duration;

use axum::response::IntoResponse as _;
use http::StatusCode;

use super::{KEY, Measured, PRINCIPAL};
use crate::support::{Ask, Backend, Fault, Shop, Verb, Work, in_time, on_tokio_time};

on_tokio_time!(
    outcomes_that_are_archived_first_are_batches_of_rows_and_archived,
    an_outcome_that_the_archive_refuses_is_not_archived,
);

fn ask(shop: &Shop, key: &str) -> Ask {
    shop.post("/charges").from(PRINCIPAL).key(key)
}

async fn outcomes_that_are_archived_first_are_batches_of_rows_and_archived(backend: Backend) {
    let measured = Measured::begin();
    let store = backend.process().keeping_until_expired();
    let shop = backend.shop().over(store).in_memory();
    ask(&shop, KEY).send().await.expect_run(1);
    let scrape = measured.scrape();
    assert_eq!(scrape.batches("archive"), (1.0, 1.0), "{scrape:?}");
    scrape.has("idempotency_archived_total", &[], 1.0);

    // A replay archives nothing.
    ask(&shop, KEY).send().await;
    let scrape = measured.scrape();
    assert_eq!(scrape.batches("archive"), (1.0, 1.0), "{scrape:?}");
}

async fn an_outcome_that_the_archive_refuses_is_not_archived(backend: Backend) {
    let measured = Measured::begin();
    let store = backend.process().keeping_until_expired();
    let shop = backend.shop().over(store).in_memory();
    shop.archive.always(Verb::Insert, Fault::DOWN);
    ask(&shop, KEY).send().await.expect_run(1);
    measured
        .scrape()
        .has("idempotency_archived_total", &[], 0.0);
    shop.archive.heal(Verb::Insert);
    let told = shop.layer.shutdown(Duration::from_mins(1)).await;
    told.expect("nothing is left to be told");
    measured
        .scrape()
        .has("idempotency_archived_total", &[], 1.0);
}

#[tokio::test]
async fn operations_of_one_transaction_of_sqlite_are_a_batch() {
    in_time(async {
        let backend = Backend::sqlite().await;
        let measured = Measured::begin();
        let shop = backend.shop().open().await;
        ask(&shop, "first").send().await.expect_run(1);
        let (batches, rows) = measured.scrape().batches("transaction");
        assert!(batches >= 2.0, "a claim and a completion: {batches}");

        ask(&shop, KEY).send().await.expect_run(2);
        let scrape = measured.scrape();
        let alone = (batches + 2.0, rows + 2.0);
        assert_eq!(scrape.batches("transaction"), alone, "{scrape:?}");
    })
    .await;
}

#[tokio::test]
async fn operations_of_one_statement_of_postgresql_are_a_batch() {
    in_time(async {
        let backend = Backend::postgres().await;
        let measured = Measured::begin();
        let shop = backend.shop().open().await;
        // An old key's claim is renewed once the archive does not know it.
        let old = backend.ulid_made_before(Duration::from_hours(48));
        ask(&shop, &old).send().await.expect_run(1);
        let scrape = measured.scrape();
        for statement in ["claim", "renew", "complete"] {
            let batches = scrape.batches(statement);
            assert_eq!(batches, (1.0, 1.0), "{statement}: {scrape:?}");
        }

        let work = Work::answering(|_| async { StatusCode::TOO_MANY_REQUESTS.into_response() });
        let forgetful = backend.shop().work(work).open().await;
        ask(&forgetful, KEY).send().await;
        let scrape = measured.scrape();
        assert_eq!(scrape.batches("release"), (1.0, 1.0), "{scrape:?}");
        assert_eq!(scrape.batches("claim"), (2.0, 2.0), "{scrape:?}");
        assert_eq!(scrape.batches("complete"), (1.0, 1.0), "{scrape:?}");
    })
    .await;
}
