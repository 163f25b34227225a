//! Slots that move between the masters of a cluster.

use axum_idempotency::store::redis::RedisStore;

use super::{Load, Repeats, Services};
use crate::support::{in_time, redis::Cluster};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_and_no_client_notices() {
    in_time(async {
        let cluster = Cluster::start().await;
        let masters = cluster.masters().await;
        let services = Services::over([cluster.url(), cluster.url()]).await;
        let mut load = Load::on(services).await;
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            cluster.move_slots(masters[from], masters[to], 60).await;
            load.goes_well().await;
        }
        let after = load.stop().await;
        after.runs_nothing_twice();
        after.keeps_its_word(Repeats::Replays).await;
    })
    .await;
}

/// All records are in one slot, and it is between two masters: a claim of a key
/// that is not at the old one is sent on (`ASK`), and what is moved meanwhile is
/// waited for (`TRYAGAIN`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_between_two_masters_serves_its_keys() {
    in_time(async {
        let cluster = Cluster::start().await;
        let prefix = "{all}:";
        let from = cluster.slot_owner(prefix).await;
        let masters = cluster.masters().await;
        let to = *masters.iter().find(|node| **node != from).unwrap();
        let store = || RedisStore::builder().url(cluster.url()).prefix(prefix);
        let mut load = Load::on(Services::with([store(), store()]).await).await;
        let moving = cluster.begin_move(prefix, to).await;
        load.goes_well().await;
        cluster.move_keys(&moving).await;
        load.goes_well().await;
        cluster.finish_move(moving).await;
        assert_eq!(cluster.slot_owner(prefix).await, to);
        load.goes_well().await;
        let back = cluster.begin_move(prefix, from).await;
        cluster.finish_move(back).await;
        load.goes_well().await;
        let after = load.stop().await;
        after.runs_nothing_twice();
        after.keeps_its_word(Repeats::Replays).await;
    })
    .await;
}
