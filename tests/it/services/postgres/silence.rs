//! A server that stops answering, and goes on later as if nothing had been.

use std::time::Duration;

use super::{
    load::{Load, Terms},
    two,
};
use crate::{
    services::Site,
    support::postgres::{Cluster, Proxy},
};

/// No lease runs out in the meantime: every answer there was is the only one
/// there ever is.
#[tokio::test]
async fn a_server_that_falls_silent_under_load_loses_no_answer_and_repeats_no_effect() {
    let mut cluster = Cluster::start().await;
    let site = Site::over(cluster.url()).set("LEASE", "30s");
    let (one, other) = two(&site).await;
    let terms = Terms {
        lease: Duration::from_secs(30),
        patience: STORE + LONGEST_SILENCE,
        takeover: false,
        handler_fails: true,
    };
    let load = Load::begin(terms, &[&one, &other]);
    for _ in 0..2 {
        load.is_answered(60).await;
        cluster.pause().await;
        load.is_refused(10).await;
        cluster.resume();
    }
    load.is_answered(60).await;
    load.judge(&[&one, &other]).await;
}

/// The one that is cut off sleeps through its leases, and the other takes over:
/// what the first learns when it is back is fenced.
#[tokio::test]
async fn a_service_that_is_cut_off_for_longer_than_its_leases_has_no_second_truth() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::before(&cluster.url());
    let lease = |site: Site| site.set("LEASE", "2s");
    let cut_off = lease(Site::over(proxy.url())).testbed().await;
    let other = lease(Site::over(cluster.url())).testbed().await;
    let terms = Terms {
        lease: Duration::from_secs(2),
        patience: STORE + LONGEST_SILENCE,
        takeover: true,
        handler_fails: true,
    };
    let load = Load::begin(terms, &[&cut_off, &other]);
    for _ in 0..2 {
        load.is_answered(60).await;
        proxy.stall();
        load.is_refused(10).await;
        load.is_answered(60).await;
        proxy.resume();
    }
    load.is_answered(60).await;
    load.judge(&[&other, &cut_off]).await;
}

/// The calls to the store that a request may wait for in vain: claim and
/// completion.
const STORE: Duration = Duration::from_secs(10);

/// The handler waits for the server as long as that is silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
