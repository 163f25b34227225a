//! A replica that lags behind, and becomes the master.

use axum_idempotency::{Retry, store::redis::RedisStore};
use tokio::time::Instant;

use super::{LAPSING, Load, Repeats, Services, load::answer};
use crate::support::{
    in_time,
    redis::{Proxy, Server},
    servers::port,
};

/// 1. A replica follows, and then hears no more of its master.
/// 2. The master serves more requests, and dies.
/// 3. The replica becomes the master; the services find it at the old address.
///
/// What was completed since is answered from the archive, also where the replica
/// knows of the claim. What was under way runs again beside the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lagging_replica_has_not_got_is_answered_from_the_archive() {
    in_time(async {
        let mut master = Server::start().await;
        let mut replica = Server::replica_of(&master).await;
        let address = Proxy::before(&master.url());
        let store = || RedisStore::builder().url(address.url());
        let services = Services::leasing(LAPSING, [store(), store()]).await;
        let mut load = Load::on(services).await;
        replica.loses_its_master(port::free()).await;
        load.goes_well().await;
        let under_way = load.ledger().hold();
        under_way.reached().await;

        let killed = Instant::now();
        master.kill().await;
        load.is_archived_but(1).await;
        replica.promote().await;
        address.lead_to(&replica.url());
        let led = Instant::now();
        load.runs_one_again().await;
        under_way.open();
        load.goes_well().await;
        let after = load.stop().await;
        let twice = after.runs_twice_only_what_was_lost_under_way(&(killed..led));
        assert_eq!(twice.len(), 1, "what else was under way was archived");
        let counts = after.keeps_its_word(Repeats::ReplaysOrArchive).await;
        assert!(counts.archived > 0, "nothing was lost: {counts:?}");
    })
    .await;
}

/// The replica has the claim and not the completion. Until the lease lapses there
/// is an attempt for all it knows; from then on the archive is asked.
#[tokio::test]
async fn a_completion_that_is_lost_without_its_claim_is_answered_once_the_lease_has_lapsed() {
    in_time(async {
        let mut master = Server::start().await;
        let mut replica = Server::replica_of(&master).await;
        let address = Proxy::before(&master.url());
        let store = || RedisStore::builder().url(address.url());
        let services = Services::leasing(LAPSING, [store(), store()]).await;
        let [near, far] = &*services.shops else {
            panic!("two processes");
        };
        let handler = near.work.hold();
        let first = near.post("/charges").key("k").start();
        handler.reached().await;
        master.is_followed_by(&replica).await;
        replica.loses_its_master(port::free()).await;
        handler.open();
        let first = first.answer().await;
        assert_eq!(first.status, 201);

        master.kill().await;
        replica.promote().await;
        address.lead_to(&replica.url());
        for process in [near, far] {
            let retry = answer(process, "k", &services.ledger).await;
            retry.expect_problem(409, "idempotency_response_not_kept", Retry::Reconcile);
            let document = retry.json();
            assert_eq!(document["original_status"], 201);
            assert_eq!(document["resource_id"], first.json()["id"]);
        }
        assert_eq!(services.ledger.effects(), 1, "it ran again");
    })
    .await;
}
