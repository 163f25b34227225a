//! What the next process knows of what the last one did.

use super::{
    Site,
    late::{is_swept, short, tells_of},
    ulid,
};

on_every_durable_store!(
    everything_replays_after_a_restart,
    a_longer_ttl_opens_no_gap,
);

async fn everything_replays_after_a_restart(site: Site) {
    let service = site.testbed().await;
    let targets = [
        "/binary",
        "/cookies",
        "/empty",
        "/echo?stream=1&size=200000",
        "/echo?status=500",
        "/echo?panic=1",
        "/v1/echo?size=5000",
    ];
    let mut answers = Vec::new();
    for target in targets {
        answers.push(service.post(target).key(target).body("charge").send().await);
    }
    service.stop().await;
    let service = site.testbed().await;
    for (target, first) in targets.iter().zip(&answers) {
        let replay = service.post(target).key(target).body("charge").send().await;
        replay.must_replay(first);
    }
    assert_eq!(service.total().await, 7);
}

async fn a_longer_ttl_opens_no_gap(site: Site) {
    let site = short(site, "100ms");
    let service = site.testbed().await;
    let key = ulid();
    let first = service.post("/echo?status=201").key(&key).send().await;
    is_swept(&service).await;
    service.stop().await;
    // To a TTL of a day the key looks too young to have expired.
    let service = site.set("TTL", "24h").testbed().await;
    let late = service.post("/echo?status=201").key(&key).send().await;
    tells_of(&late, &first, true);
    assert_eq!(service.executions(&key).await, 1);
}
