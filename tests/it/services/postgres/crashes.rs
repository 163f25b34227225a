//! `kill -9` of the server, and of the services, under load.

use std::time::Duration;

use super::{
    load::{Load, Terms},
    two,
};
use crate::{
    services::{Service, Site},
    support::postgres::Cluster,
};

/// No lease runs out while the server is away: every answer there was is the
/// only one there ever is.
#[tokio::test]
async fn a_server_that_crashes_under_load_loses_no_answer_and_repeats_no_effect() {
    let mut cluster = Cluster::start().await;
    let site = Site::over(cluster.url()).set("LEASE", "20s");
    let (one, other) = two(&site).await;
    let terms = Terms {
        lease: Duration::from_secs(20),
        patience: STORE + HANDLERS_POOL,
        takeover: false,
        handler_fails: true,
    };
    let load = Load::begin(terms, &[&one, &other]);
    for _ in 0..4 {
        load.is_answered(60).await;
        cluster.kill().await;
        load.is_refused(20).await;
        cluster.restart().await;
    }
    load.is_answered(60).await;
    load.judge(&[&one, &other]).await;
}

#[tokio::test]
async fn services_that_are_killed_under_load_lose_no_answer_and_run_nothing_inside_a_lease() {
    let cluster = Cluster::start().await;
    let site = Site::over(cluster.url()).set("LEASE", "2s");
    let (mut one, mut other) = two(&site).await;
    let terms = Terms {
        lease: Duration::from_secs(2),
        patience: STORE,
        takeover: true,
        handler_fails: false,
    };
    let load = Load::begin(terms, &[&one, &other]);
    for _ in 0..3 {
        load.is_answered(60).await;
        one = killed_and_restarted(&site, &load, one).await;
        load.is_answered(60).await;
        other = killed_and_restarted(&site, &load, other).await;
    }
    load.is_answered(60).await;
    load.judge(&[&one, &other]).await;
}

async fn killed_and_restarted(site: &Site, load: &Load, service: Service) -> Service {
    let old = service.address;
    service.kill().await;
    let new = site.testbed().await;
    load.replace(old, &new);
    new
}

/// The calls to the store that a request may wait for in vain: claim and
/// completion.
const STORE: Duration = Duration::from_secs(10);

/// How long the handler waits for a connection of its own.
const HANDLERS_POOL: Duration = Duration::from_secs(5);
