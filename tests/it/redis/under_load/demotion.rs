//! A server that becomes a replica, and keeps its connections.

use super::{Load, Repeats, Services};
use crate::support::{
    in_time,
    redis::{Proxy, Server},
    servers::{Patience, port},
};

/// The old master hands over what it has. Its clients stay with it, until they
/// are told that it takes no more; the address leads to the new one by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_demoted_server_find_the_new_master_at_its_address() {
    in_time(async {
        let old = Server::start().await;
        let new = Server::replica_of(&old).await;
        let address = Proxy::before(&old.url());
        let services = Services::over([address.url(), address.url()]).await;
        let mut load = Load::on(services).await;
        let new_port = new.port().to_string();
        old.cli(&["FAILOVER", "TO", "127.0.0.1", &new_port]).await;
        let patience = Patience::for_it("the replica is the master");
        while new.info("replication").await["role"] != "master" {
            patience.a_moment().await;
        }
        load.refuses_fresh_keys().await;
        address.lead_to(&new.url());
        load.goes_well().await;
        let after = load.stop().await;
        after.runs_nothing_twice();
        after.keeps_its_word(Repeats::Replays).await;
        assert_eq!(old.info("replication").await["role"], "slave");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_a_replica_for_a_while_serves_afterwards() {
    in_time(async {
        let mut server = Server::start().await;
        let services = Services::over([server.url(), server.url()]).await;
        let mut load = Load::on(services).await;
        for _ in 0..2 {
            server.loses_its_master(port::free()).await;
            load.refuses_fresh_keys().await;
            server.promote().await;
            load.goes_well().await;
        }
        let after = load.stop().await;
        after.runs_nothing_twice();
        after.keeps_its_word(Repeats::Replays).await;
    })
    .await;
}
