//! A master of a cluster that dies.

use std::sync::Arc;

use axum_idempotency::{archive::MemoryArchive, store::redis::RedisStore};
use tokio::time::Instant;

use super::{LAPSING, Load, Repeats, Services};
use crate::support::{
    Backend, Fault, FaultyArchive, FaultyStore, Shop, Verb, in_time, redis::Cluster, scoped,
};

/// What the killed master had answered and not passed on is lost. Completed, it
/// is in the archive. Under way, it runs again, and only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_takes_along_only_what_was_under_way() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let store = || RedisStore::builder().url(cluster.url());
        let services = Services::leasing(LAPSING, [store(), store()]).await;
        let mut load = Load::on(services).await;
        let dying = cluster.masters().await[0];
        let replica = cluster.replicas(dying).await[0];
        let killed = Instant::now();
        cluster.kill_master(dying).await;
        cluster.wait_until_failed_over().await;
        let failed_over = Instant::now();
        load.goes_well().await;
        let after = load.stop().await;
        let twice = after.runs_twice_only_what_was_lost_under_way(&(killed..failed_over));
        for key in twice {
            let owner = cluster.slot_owner(&scoped("alice", &key).to_string()).await;
            assert_eq!(owner, replica, "{key} was on a master that lives");
        }
        after.keeps_its_word(Repeats::ReplaysOrArchive).await;
    })
    .await;
}

/// 1. A master dies that has no replica: its slots are nobody's.
/// 2. The keys of the other masters are served as before, those of its are not,
///    and none of them runs.
/// 3. It comes back, empty, and all are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_other_masters_go_on_while_one_is_down() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let masters = cluster.masters().await;
        let (dying, living) = (masters[0], masters[1]);
        let of_a_master = async |node| {
            let prefix = prefix_of(&cluster, node).await;
            let store = || RedisStore::builder().url(cluster.url()).prefix(&prefix);
            Load::on(Services::leasing(LAPSING, [store(), store()]).await).await
        };
        let (mut dead, mut alive) = (of_a_master(dying).await, of_a_master(living).await);
        let replica = cluster.replicas(dying).await[0];
        cluster.kill_replica(replica).await;
        let killed = Instant::now();
        cluster.kill_master(dying).await;
        dead.is_refused().await;
        let effects = dead.ledger().effects();
        alive.goes_well().await;
        dead.is_refused().await;
        alive.goes_well().await;
        assert_eq!(
            dead.ledger().effects(),
            effects,
            "it ran without its record"
        );
        cluster.restart(dying).await;
        let back = Instant::now();
        dead.goes_well().await;
        alive.goes_well().await;
        let (dead, alive) = (dead.stop().await, alive.stop().await);
        alive.runs_nothing_twice();
        alive.keeps_its_word(Repeats::Replays).await;
        dead.runs_twice_only_what_was_lost_under_way(&(killed..back));
        let counts = dead.keeps_its_word(Repeats::ReplaysOrArchive).await;
        assert!(counts.archived > 0, "nothing was lost: {counts:?}");
    })
    .await;
}

/// A prefix under which all keys are those of this node.
async fn prefix_of(cluster: &Cluster, node: usize) -> String {
    for number in 0.. {
        let prefix = format!("{{{number}}}:");
        if cluster.slot_owner(&prefix).await == node {
            return prefix;
        }
    }
    unreachable!("a master has slots")
}

/// 1. A master dies for good. Claims of its keys get no answer, and each leaves a
///    release to be told.
/// 2. The completion of a key of another master failed once: it is told without
///    waiting for those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_does_not_wait_for_a_master_that_is_not_its() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let masters = cluster.masters().await;
        let archive = FaultyArchive::over(Arc::new(MemoryArchive::new()));
        let (near, far) = (
            service(&cluster, &archive).await,
            service(&cluster, &archive).await,
        );
        let dead = keys_of(&cluster, masters[0], 6).await;
        let alive = keys_of(&cluster, masters[1], 2).await;
        for shop in [&near, &far] {
            let warm = shop.post("/charges").key(&alive[0]).send().await;
            assert_eq!(warm.status, 201);
        }
        let replica = cluster.replicas(masters[0]).await[0];
        cluster.kill_replica(replica).await;
        cluster.kill_master(masters[0]).await;
        let refused = dead
            .iter()
            .map(|key| near.post("/charges").key(key).start());
        for refused in refused.collect::<Vec<_>>() {
            assert_eq!(refused.answer().await.status, 503);
        }
        // At once, and when it is told first behind the client's back.
        near.store.next(Verb::Complete, Fault::DOWN);
        near.store.next(Verb::Complete, Fault::DOWN);
        let first = near.post("/charges").key(&alive[1]).send().await;
        let ledger = super::Ledger::default();
        let repeat = super::load::answer(&far, &alive[1], &ledger).await;
        repeat.expect_replay_of(&first);
    })
    .await;
}

async fn service(cluster: &Cluster, archive: &FaultyArchive) -> Shop {
    let store = RedisStore::open(&cluster.url()).await.expect("a cluster");
    let store = FaultyStore::over(Arc::new(store));
    let opening = Backend::memory().shop().over(store);
    opening.archive(archive.clone()).in_memory()
}

async fn keys_of(cluster: &Cluster, master: usize, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for number in 0.. {
        let key = format!("order-{number}");
        if cluster.slot_owner(&scoped("alice", &key).to_string()).await == master {
            keys.push(key);
        }
        if keys.len() == count {
            break;
        }
    }
    keys
}
