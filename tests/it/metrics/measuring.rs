//! What keeps a running sweeper from measuring, and what that keeps from nothing
//! else; and that it ends.

use std::{sync::Arc, time::Duration};

use axum_idempotency::{Sweeper, store::Store};
use tokio::time::sleep;

use super::{KEY, Measured, PRINCIPAL, gauges};
use crate::support::{Backend, Fault, Logs, Verb, on_tokio_time};

on_tokio_time!(
    a_backlog_that_cannot_be_told_keeps_its_value_and_is_warned_of_once,
    an_archive_that_cannot_be_measured_keeps_its_value_and_the_backlog_is_told,
    an_archive_that_never_answers_does_not_stop_the_backlog,
    a_sweep_by_hand_that_fails_is_counted,
    a_sweeper_that_is_stopped_holds_its_store_no_longer,
);

const WARNING: &str = "the gauges could not be measured";
const ROUND: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);

fn warnings(logs: &Logs) -> usize {
    logs.text().matches(WARNING).count()
}

/// 1. A row waits, and the sweeps cannot move it.
/// 2. The store cannot tell how many wait, for ten rounds; one more does.
/// 3. It can again, and then it cannot once more.
async fn a_backlog_that_cannot_be_told_keeps_its_value_and_is_warned_of_once(backend: Backend) {
    let measured = Measured::begin();
    let logs = Logs::capture();
    let shop = backend.shop().in_memory();
    let (store, archive) = (backend.process(), backend.archive());
    archive.always(Verb::Insert, Fault::DOWN);
    gauges::runs(&shop, KEY).await;
    backend.clock.advance(2 * DAY);
    let running = Sweeper::new(store.clone()).archive(archive.clone()).start();
    sleep(Duration::from_secs(1)).await;
    measured.scrape().has(gauges::BACKLOG, &[], 1.0);

    store.always(Verb::Inspect, Fault::DOWN);
    gauges::runs(&shop, "second").await;
    backend.clock.advance(2 * DAY);
    sleep(10 * ROUND).await;
    let scrape = measured.scrape();
    scrape.has(gauges::BACKLOG, &[], 1.0);
    scrape.has(gauges::ROWS, &[], 0.0);
    assert_eq!(warnings(&logs), 1, "{}", logs.text());

    store.heal(Verb::Inspect);
    sleep(ROUND).await;
    measured.scrape().has(gauges::BACKLOG, &[], 2.0);
    store.always(Verb::Inspect, Fault::DOWN);
    sleep(2 * ROUND).await;
    assert_eq!(warnings(&logs), 2, "it has failed anew: {}", logs.text());
    let text = logs.text();
    let warned = text.lines().find(|line| line.contains(WARNING));
    assert!(warned.is_some_and(|line| line.contains("WARN")), "{text}");
    for secret in [KEY, PRINCIPAL] {
        assert!(!text.contains(secret), "{secret} is logged: {text}");
    }
    running.stop().await;
}

async fn an_archive_that_cannot_be_measured_keeps_its_value_and_the_backlog_is_told(
    backend: Backend,
) {
    let measured = Measured::begin();
    let logs = Logs::capture();
    let shop = backend.shop().in_memory();
    let (store, archive) = (backend.process(), backend.archive());
    let running = Sweeper::new(store).archive(archive.clone()).start();
    sleep(Duration::from_secs(1)).await;
    measured.scrape().has(gauges::ROWS, &[], 0.0);

    archive.always(Verb::Inspect, Fault::DOWN);
    gauges::runs(&shop, KEY).await;
    backend.clock.advance(2 * DAY);
    sleep(Duration::from_mins(20)).await;
    let scrape = measured.scrape();
    scrape.has(gauges::ARCHIVED, &[], 1.0);
    scrape.has(gauges::ROWS, &[], 0.0);
    assert!(warnings(&logs) >= 1, "nobody was warned: {}", logs.text());
    archive.always(Verb::Insert, Fault::DOWN);
    gauges::runs(&shop, "second").await;
    backend.clock.advance(2 * DAY);
    sleep(ROUND).await;
    measured.scrape().has(gauges::BACKLOG, &[], 1.0);

    // It is asked again soon, not only when its sizes would have been due.
    archive.heal(Verb::Inspect);
    sleep(Duration::from_mins(3)).await;
    measured.scrape().has(gauges::ROWS, &[], 1.0);
    running.stop().await;
}

async fn an_archive_that_never_answers_does_not_stop_the_backlog(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().in_memory();
    let (store, archive) = (backend.process(), backend.archive());
    archive.always(Verb::Inspect, Fault::Hangs);
    archive.always(Verb::Insert, Fault::DOWN);
    let running = Sweeper::new(store).archive(archive.clone()).start();
    for (rows, key) in [(1.0, KEY), (2.0, "second")] {
        gauges::runs(&shop, key).await;
        backend.clock.advance(2 * DAY);
        sleep(Duration::from_mins(3)).await;
        measured.scrape().has(gauges::BACKLOG, &[], rows);
    }
    assert!(archive.calls(Verb::Inspect) >= 2, "it is asked again");
    running.stop().await;
}

async fn a_sweep_by_hand_that_fails_is_counted(backend: Backend) {
    let measured = Measured::begin();
    let shop = backend.shop().in_memory();
    let archive = backend.archive();
    archive.next(Verb::Insert, Fault::DOWN);
    gauges::runs(&shop, KEY).await;
    backend.clock.advance(2 * DAY);
    let sweeper = Sweeper::new(backend.process()).archive(archive.clone());
    let failed = sweeper.sweep_once().await;
    failed.expect_err("the archive does not answer");
    measured.scrape().has(gauges::ERRORS, &[], 1.0);
    sweeper.sweep_once().await.expect("it answers");
    let scrape = measured.scrape();
    scrape.has(gauges::ERRORS, &[], 1.0);
    scrape.has(gauges::ARCHIVED, &[], 1.0);
}

/// Even where the sweeps have ended before: then only the gauges, which wait for
/// the store, are left to be stopped.
async fn a_sweeper_that_is_stopped_holds_its_store_no_longer(backend: Backend) {
    let shop = backend.shop().in_memory();
    let (store, archive) = (backend.process(), backend.archive());
    store.always(Verb::Inspect, Fault::Hangs);
    archive.always(Verb::Insert, Fault::Panics);
    gauges::runs(&shop, KEY).await;
    backend.clock.advance(2 * DAY);
    let held: Arc<dyn Store> = Arc::new(store.clone());
    let sweeper = Sweeper::new_dyn(Arc::clone(&held)).archive(archive.clone());
    let running = sweeper.start();
    store.begun(Verb::Inspect, 1).await;
    archive.begun(Verb::Insert, 1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&held), 2, "the gauges wait for the store");
    running.stop().await;
    assert_eq!(
        Arc::strong_count(&held),
        1,
        "something still asks the store"
    );
}
