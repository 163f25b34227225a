//! What the routes answer whose effects commit with their records.

use super::{Site, on_both, work};
use crate::services::ulid;

on_both!(
    a_panic_after_the_commit_changes_nothing,
    work_of_any_status_is_recorded_but_not_that_which_runs_again,
);

async fn a_panic_after_the_commit_changes_nothing(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let first = work(&service, &key, "?panic=1").send().await;
    assert_eq!(first.status, 201, "{first}");
    work(&service, &key, "?panic=1")
        .send()
        .await
        .must_replay(&first);
    assert_eq!(service.executions(&key).await, 1);
}

async fn work_of_any_status_is_recorded_but_not_that_which_runs_again(site: Site) {
    let service = site.testbed().await;
    for status in [200, 402, 500] {
        let (key, how) = (ulid(), format!("?status={status}"));
        let first = work(&service, &key, &how).send().await;
        assert_eq!(first.status, status, "{first}");
        work(&service, &key, &how).send().await.must_replay(&first);
        assert_eq!(service.executions(&key).await, 1);
    }
    let key = ulid();
    for _ in 0..2 {
        let refused = work(&service, &key, "?status=429").send().await;
        assert_eq!(refused.status, 503, "{refused}");
        assert!(!refused.is_replay(), "{refused}");
        assert_eq!(service.executions(&key).await, 0, "an effect was kept");
    }
}

#[tokio::test]
async fn a_store_in_memory_cannot() {
    let service = Site::memory().testbed().await;
    let refused = work(&service, &ulid(), "").send().await;
    assert_eq!(refused.status, 501, "{refused}");
    assert_eq!(service.total().await, 0);
}
