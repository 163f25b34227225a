//! A master of a cluster that dies.

use axum_idempotency::store::redis::RedisStore;
use tokio::time::Instant;

use super::{LAPSING, Load, Repeats, Services};
use crate::support::{in_time, redis::Cluster, scoped};

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
