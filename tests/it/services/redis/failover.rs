//! The services on a cluster whose slots move, and whose masters die.

use std::time::Duration;

use futures_util::future::join_all;

use super::{
    load::Load,
    seen::{Rules, must_hold},
};
use crate::{
    services::{Service, Site, http::Waiting, settled, ulid, until},
    support::{redis::Cluster, scoped},
};

fn over(cluster: &Cluster) -> Site {
    Site::over(cluster.url())
        .set("ARCHIVE_URL", "sqlite:archive.db")
        .set("ARCHIVE_LOOKUP", "all")
}

/// Whoever asks is sent on, and notices nothing.
#[tokio::test]
async fn slots_may_move_under_load() {
    let cluster = Cluster::start().await;
    let site = over(&cluster);
    let (one, other) = tokio::join!(site.testbed(), site.testbed());
    let rules = Rules {
        lease: Duration::from_secs(30),
        ttl: DAY,
    };
    let load = Load::begin(&[&one, &other], rules);
    let masters = cluster.masters().await;
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        load.settles(30).await;
        cluster.move_slots(masters[from], masters[to], 300).await;
    }
    load.settles(30).await;
    assert_eq!(load.broken(), 0, "the services run");
    let mut seen = load.end().await;
    must_hold(&mut seen, &one, 0).await;
    let refused = seen.iter().filter(|seen| seen.is_refused());
    assert_eq!(refused.count(), 0, "refused for a slot that moved");
}

/// Redis answers before its replica has what was written: a master that dies
/// may take its last moments along.
#[tokio::test]
async fn a_master_that_dies_under_load_delays_its_own_keys_alone() {
    let mut cluster = Cluster::start().await;
    let site = over(&cluster).set("LEASE", "1s").set("MAX_LEASE", "20s");
    let (one, other) = tokio::join!(site.testbed(), site.testbed());
    let load = Load::begin(&[&one, &other], RULES);
    load.settles(60).await;
    let dying = cluster.masters().await[1];
    let (its, others) = keys(&cluster, dying).await;
    // They outlive many a lease, and the failover.
    let (long, fresh) = others.split_at(others.len() / 2);
    let mut running = Vec::new();
    for key in long {
        let slow = one.post("/echo?status=201&delay_ms=4000").key(key);
        running.push(slow.begin().await);
        one.has_executed(key, 1).await;
    }

    cluster.kill_master(dying).await;
    load.loses();
    let its_own = its.iter().map(|key| goes_through(&one, key));
    let fresh = fresh.iter().map(async |key| {
        let answer = other.post("/echo?status=201").key(key).send().await;
        assert_eq!(
            answer.status, 201,
            "the key of a master that is up: {answer}"
        );
        assert_eq!(other.executions(key).await, 1);
    });
    tokio::join!(join_all(its_own), join_all(fresh));
    cluster.wait_until_failed_over().await;
    load.settles(60).await;
    assert_eq!(load.broken(), 0, "the services run");
    let mut seen = load.end().await;
    must_hold(&mut seen, &one, 1).await;
    for (key, answer) in long
        .iter()
        .zip(join_all(running.into_iter().map(Waiting::answer)).await)
    {
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 201, "{answer}");
        assert_eq!(answer.json()["attempt"], 1, "{answer}");
        let retry = other.post("/echo?status=201&delay_ms=4000").key(key);
        settled(&retry).await.must_replay(&answer);
        assert_eq!(one.executions(key).await, 1, "its lease was renewed");
    }
    let took_over = cluster.slot_owner(&name(&its[0])).await;
    for refused in seen.iter().filter(|seen| seen.is_refused()) {
        let owner = cluster.slot_owner(&name(refused.key())).await;
        assert_eq!(
            owner,
            took_over,
            "{} was refused for another",
            refused.key()
        );
    }
    cluster.restart(dying).await;
}

/// A node that is silent for good, with nobody to take over: what runs under
/// keys of the others is renewed and not alarmed.
#[tokio::test]
async fn a_silent_master_takes_no_lease_of_the_others_away() {
    let cluster = Cluster::start().await;
    let site = over(&cluster).set("LEASE", "1s").set("MAX_LEASE", "20s");
    let (service, other) = tokio::join!(site.testbed(), site.testbed());
    let silent = cluster.masters().await[1];
    // With its first request a process publishes its TTL, at one of the nodes.
    let warmed = other.post("/echo").key(&ulid()).send().await;
    assert_eq!(warmed.status, 200, "{warmed}");
    let (its, others) = keys(&cluster, silent).await;
    let slow = |service: &Service, key: &str| {
        let slow = service.post("/echo?status=201&delay_ms=4000");
        slow.key(key).body("charge")
    };
    let mut running = Vec::new();
    for key in others.iter().chain(&its) {
        running.push(slow(&service, key).begin().await);
    }
    for key in others.iter().chain(&its) {
        service.has_executed(key, 1).await;
    }
    for node in cluster.replicas(silent).await.into_iter().chain([silent]) {
        cluster.node(node).pause().await;
    }
    let answers = running.drain(..others.len()).map(Waiting::answer);
    for (key, answer) in others.iter().zip(join_all(answers).await) {
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 201, "{answer}");
        assert_eq!(answer.json()["attempt"], 1, "{answer}");
        slow(&other, key).send().await.must_replay(&answer);
        assert_eq!(service.executions(key).await, 1);
    }
    let log = std::fs::read_to_string(&service.log).expect("the log");
    for key in &others {
        let name = name(key);
        let alarms = log.lines().filter(|line| line.contains(&name));
        assert_eq!(
            alarms.collect::<Vec<_>>(),
            Vec::<&str>::new(),
            "a false alarm"
        );
    }
}

/// Some keys of a master, and some of the others.
async fn keys(cluster: &Cluster, master: usize) -> (Vec<String>, Vec<String>) {
    let (mut its, mut others) = (Vec::new(), Vec::new());
    while its.len() < 4 || others.len() < 12 {
        let key = ulid();
        match cluster.slot_owner(&name(&key)).await {
            owner if owner == master => its.push(key),
            _ => others.push(key),
        }
    }
    (its, others)
}

/// The name of a key in Redis.
fn name(key: &str) -> String {
    scoped("acct_1", key).to_string()
}

/// With no more than delay.
async fn goes_through(service: &Service, key: &str) {
    let request = service.post("/echo?status=201").key(key).body("charge");
    let made = until("the key goes through", async || {
        let answer = settled(&request).await;
        if answer.status == 503 {
            answer.problem(503, "idempotency_store_unavailable");
            return None;
        }
        Some(answer)
    })
    .await;
    assert_eq!(made.status, 201, "{made}");
    request.send().await.must_replay(&made);
    assert_eq!(service.executions(key).await, 1);
}

const DAY: Duration = Duration::from_hours(24);

const RULES: Rules = Rules {
    lease: Duration::from_secs(1),
    ttl: DAY,
};
