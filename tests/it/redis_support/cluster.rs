//! Clusters whose nodes crash and whose slots move.

use std::collections::BTreeSet;

use super::Client;
use crate::support::{in_time, redis::Cluster};

#[tokio::test]
async fn a_cluster_has_three_masters_with_a_replica_each() {
    in_time(async {
        let cluster = Cluster::start().await;
        let masters = cluster.masters().await;
        assert_eq!(masters.len(), 3);
        let mut nodes: BTreeSet<_> = masters.iter().copied().collect();
        for master in masters {
            let replicas = cluster.replicas(master).await;
            assert_eq!(replicas.len(), 1);
            nodes.extend(replicas);
        }
        assert_eq!(nodes, (0..6).collect());
        let owner = cluster.slot_owner("a").await;
        cluster.cli(&["SET", "a", "b"]).await;
        assert_eq!(cluster.node(owner).cli(&["GET", "a"]).await, "b");

        let urls: Vec<_> = (0..6).map(|number| cluster.node(number).url()).collect();
        drop(cluster);
        for url in urls {
            assert!(Client::connect(&url).await.is_err(), "nothing outlives it");
        }
    })
    .await;
}

#[tokio::test]
async fn the_slots_of_a_killed_master_are_its_replicas() {
    in_time(async {
        let mut cluster = Cluster::start().await;
        let owner = cluster.slot_owner("a").await;
        let replica = cluster.replicas(owner).await[0];
        cluster.node(owner).cli(&["SET", "a", "b"]).await;
        let (master, follower) = (cluster.node(owner), cluster.node(replica));
        master.is_followed_by(follower).await;
        // In a task of its own, as beside a load.
        let killed = tokio::spawn(async move {
            cluster.kill_master(owner).await;
            cluster.wait_until_failed_over().await;
            cluster
        });
        let mut cluster = killed.await.unwrap();
        assert_eq!(cluster.slot_owner("a").await, replica);
        assert_eq!(cluster.cli(&["GET", "a"]).await, "b");
        assert_eq!(cluster.masters().await.len(), 3);

        cluster.restart(owner).await;
        assert_eq!(cluster.replicas(replica).await, [owner]);
        assert_eq!(cluster.slot_owner("a").await, replica);
        // The same for one that only stops answering.
        cluster.node(replica).pause().await;
        cluster.wait_until_failed_over().await;
        assert_eq!(cluster.slot_owner("a").await, owner);
        assert_eq!(cluster.cli(&["GET", "a"]).await, "b");
    })
    .await;
}

#[tokio::test]
async fn slots_move_with_their_keys() {
    in_time(async {
        let cluster = Cluster::start().await;
        let masters = cluster.masters().await;
        let (from, to) = (masters[0], masters[1]);
        let keys: Vec<_> = (0..60).map(|number| format!("key-{number}")).collect();
        for key in &keys {
            cluster.cli(&["SET", key, key, "EX", "1000"]).await;
        }
        let size = async |node| cluster.node(node).cli(&["DBSIZE"]).await;
        let (before, after) = (size(from).await, size(to).await);
        cluster.move_slots(from, to, 1_000).await;
        assert_ne!(before, size(from).await);
        assert_ne!(after, size(to).await);
        for key in &keys {
            assert_eq!(&cluster.cli(&["GET", key]).await, key);
            let left: u32 = cluster.cli(&["TTL", key]).await.parse().unwrap();
            assert!(left > 900, "{left}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_slot_moves_step_by_step() {
    in_time(async {
        let cluster = Cluster::start().await;
        let (old, new, late) = ("{slot}:old", "{slot}:new", "{slot}:late");
        let from = cluster.slot_owner(old).await;
        let masters = cluster.masters().await;
        let to = *masters.iter().find(|node| **node != from).unwrap();
        cluster.cli(&["SET", old, "1"]).await;
        let moving = cluster.begin_move(old, to).await;

        // Keys that are there are served, and others are asked for elsewhere.
        let ask = async |key| cluster.node(from).try_cli(&["GET", key]).await;
        assert_eq!(ask(old).await.unwrap(), "1");
        assert!(ask(new).await.unwrap_err().contains("ASK"));
        cluster.cli(&["SET", new, "2"]).await;
        cluster.move_keys(&moving).await;
        assert!(ask(old).await.unwrap_err().contains("ASK"));
        assert_eq!(cluster.slot_owner(old).await, from);
        cluster.cli(&["SET", late, "3"]).await;

        cluster.finish_move(moving).await;
        assert!(ask(old).await.unwrap_err().contains("MOVED"));
        assert_eq!(cluster.slot_owner(old).await, to);
        for (key, value) in [(old, "1"), (new, "2"), (late, "3")] {
            assert_eq!(cluster.node(to).cli(&["GET", key]).await, value);
        }
    })
    .await;
}
