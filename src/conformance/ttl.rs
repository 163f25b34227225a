//! The TTLs that processes publish, so that none of them trusts a record to be
//! young that another's shorter TTL may have archived.

use std::time::Duration;

use uuid::Uuid;

use super::{Fixture, support::*};
use crate::store::{Store, TtlNotice};

/// Publishes TTLs in hours and returns the smallest in force, in hours.
async fn publish(store: &dyn Store, process: Uuid, smallest: u32, largest: u32) -> u64 {
    let notice = TtlNotice {
        process,
        smallest: smallest * HOUR,
        largest: largest * HOUR,
    };
    let in_force: Duration = ok(store.publish_ttl(notice).await, "a notice");
    in_force.as_secs() / HOUR.as_secs()
}

pub(super) async fn a_lone_process_hears_its_own(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let got = publish(store, Uuid::new_v4(), 24, 72).await;
    same(&got, &24, "the smallest TTL in force, in hours");
}

pub(super) async fn the_smallest_of_all_processes_is_in_force(fixture: &dyn Fixture) {
    let (here, there) = (fixture.store(), fixture.elsewhere().await);
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    publish(&*here, a, 24, 48).await;
    let got = publish(&*there, b, 12, 48).await;
    same(
        &got,
        &12,
        "what the process with the smaller TTL hears, in hours",
    );
    let got = publish(&*here, a, 24, 48).await;
    same(&got, &12, "what the other hears, in hours");
}

pub(super) async fn a_process_replaces_its_notice(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let process = Uuid::new_v4();
    for hours in [24, 12, 36] {
        let got = publish(store, process, hours, 48).await;
        same(
            &got,
            &u64::from(hours),
            "the smallest TTL in force, in hours",
        );
    }
}

pub(super) async fn a_stopped_process_counts_while_its_records_may_live(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let (stopped, running) = (Uuid::new_v4(), Uuid::new_v4());
    publish(store, stopped, 1, 24).await;
    fixture.advance(23 * HOUR).await;
    let got = publish(store, running, 2, 24).await;
    same(&got, &1, "the smallest TTL within the largest, in hours");
    fixture.advance(2 * HOUR).await;
    let got = publish(store, running, 2, 24).await;
    same(&got, &2, "the smallest TTL after that, in hours");
}

pub(super) async fn the_largest_ttl_of_any_process_decides(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let (long, short) = (Uuid::new_v4(), Uuid::new_v4());
    publish(store, long, 1, 7 * 24).await;
    fixture.advance(3 * DAY).await;
    let got = publish(store, short, 2, 24).await;
    same(
        &got,
        &1,
        "the smallest TTL within the other's largest, in hours",
    );
    fixture.advance(5 * DAY).await;
    let got = publish(store, short, 2, 24).await;
    same(&got, &2, "the smallest TTL after that, in hours");
}

pub(super) async fn a_notice_that_is_published_again_stays_in_force(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let (steady, other) = (Uuid::new_v4(), Uuid::new_v4());
    for _ in 0..4 {
        publish(store, steady, 1, 24).await;
        fixture.advance(20 * HOUR).await;
    }
    let got = publish(store, other, 2, 24).await;
    same(&got, &1, "the smallest TTL in force, in hours");
}

pub(super) async fn a_notice_is_kept_to_the_microsecond(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let smallest = Duration::from_micros(1_500_001);
    let notice = TtlNotice {
        process: Uuid::new_v4(),
        smallest,
        largest: HOUR,
    };
    let got = ok(store.publish_ttl(notice).await, "a notice");
    same(&got, &smallest, "the smallest TTL in force");
}
