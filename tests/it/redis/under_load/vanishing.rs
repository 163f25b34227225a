//! A master that falls silent for good, with nobody to close its connections: a
//! machine without power, or beyond a network that is cut.

use tokio::time::Instant;

use super::{LAPSING, Load, Repeats, Services, services::impatient};
use crate::support::{
    in_time,
    redis::{Cluster, Proxy, Server},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_is_left_when_its_address_leads_to_another() {
    in_time(async {
        let master = Server::start().await;
        let mut replica = Server::replica_of(&master).await;
        let address = Proxy::before(&master.url());
        let store = || impatient(address.url());
        let services = Services::leasing(LAPSING, [store(), store()]).await;
        let mut load = Load::on(services).await;
        let silent = Instant::now();
        master.pause().await;
        load.is_refused().await;
        replica.promote().await;
        address.lead_to(&replica.url());
        let led = Instant::now();
        load.goes_well().await;
        let after = load.stop().await;
        after.runs_twice_only_what_was_lost_under_way(&(silent..led));
        after.keeps_its_word(Repeats::ReplaysOrArchive).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_of_a_cluster_is_left_for_its_replica() {
    in_time(async {
        let cluster = Cluster::start().await;
        let store = || impatient(cluster.url());
        let services = Services::leasing(LAPSING, [store(), store()]).await;
        let mut load = Load::on(services).await;
        let silent = Instant::now();
        cluster.node(cluster.masters().await[0]).pause().await;
        cluster.wait_until_failed_over().await;
        let failed_over = Instant::now();
        load.goes_well().await;
        let after = load.stop().await;
        after.runs_twice_only_what_was_lost_under_way(&(silent..failed_over));
        after.keeps_its_word(Repeats::ReplaysOrArchive).await;
    })
    .await;
}
