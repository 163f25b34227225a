//! The process aborts at every point of the way.

use super::{Site, has_one_effect_and_one_answer, on_both, work};
use crate::services::{settled, ulid};

on_both!(
    aborted_as_the_transaction_has_begun,
    aborted_with_the_record_locked,
    aborted_with_the_effect_written,
    aborted_after_the_commit,
);

async fn aborted_as_the_transaction_has_begun(site: Site) {
    aborted_before_the_commit(site, "begun").await;
}

async fn aborted_with_the_record_locked(site: Site) {
    aborted_before_the_commit(site, "locked").await;
}

async fn aborted_with_the_effect_written(site: Site) {
    aborted_before_the_commit(site, "written").await;
}

/// The commit itself, on PostgreSQL, is among what is cut off.
#[tokio::test]
async fn in_sqlite_aborted_within_the_commit() {
    aborted_before_the_commit(Site::sqlite(), "committing").await;
}

/// Neither effect nor record: the next attempt has both.
async fn aborted_before_the_commit(site: Site, step: &str) {
    let (site, key) = aborted(site, step).await;
    let service = site.testbed().await;
    assert_eq!(service.executions(&key).await, 0, "an effect by itself");
    let again = settled(&work(&service, &key, &abort(step))).await;
    assert_eq!(again.json()["attempt"], 2, "{again}");
    has_one_effect_and_one_answer(&site, &key, &abort(step)).await;
}

async fn aborted_after_the_commit(site: Site) {
    let (site, key) = aborted(site, "committed").await;
    let service = site.testbed().await;
    assert_eq!(service.executions(&key).await, 1, "the effect is lost");
    // At once: there is no lease to wait for.
    let told = work(&service, &key, &abort("committed")).send().await;
    assert!(told.is_replay(), "{told}");
    assert_eq!(told.json()["attempt"], 1, "{told}");
    has_one_effect_and_one_answer(&site, &key, &abort("committed")).await;
}

async fn aborted(site: Site, step: &str) -> (Site, String) {
    let site = site.set("LEASE", "1s");
    let service = site.testbed().await;
    let key = ulid();
    let died = work(&service, &key, &abort(step)).try_send().await;
    died.expect_err("it aborts before it answers");
    assert_eq!(service.exit_code().await, None, "SIGABRT");
    (site, key)
}

fn abort(step: &str) -> String {
    format!("?abort={step}")
}
