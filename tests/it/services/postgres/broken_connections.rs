//! Every connection to the server breaks, again and again, under load.

use std::time::Duration;

use super::{
    load::{Load, Terms},
    two,
};
use crate::{
    services::Site,
    support::postgres::{Cluster, Proxy},
};

#[tokio::test]
async fn connections_that_break_under_load_lose_no_answer_and_repeat_no_effect() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::before(&cluster.url());
    let site = Site::over(proxy.url());
    let (one, other) = two(&site).await;
    let terms = Terms {
        lease: Duration::from_secs(30),
        patience: Duration::from_secs(15),
        takeover: false,
        handler_fails: true,
    };
    let load = Load::begin(terms, &[&one, &other]);
    // Never the same moment: the clients do not wait for each other.
    for cut in 0..30 {
        load.is_answered(5 + cut % 7).await;
        proxy.cut();
    }
    load.is_answered(60).await;
    load.judge(&[&one, &other]).await;
}
