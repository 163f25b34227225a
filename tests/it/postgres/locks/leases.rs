//! The leases of running handlers, one of which is locked.

use std::{sync::Arc, time::Duration};

use axum_idempotency::ScopedKey;
use tokio::{sync::mpsc, time::Instant};

use super::{Fixture, Hold, in_time};
use crate::support::{Backend, FaultyStore, Gate, Shop, Verb, Work, scoped};

const LEASE: Duration = Duration::from_millis(1_500);

/// A service whose handlers run until the gate opens or their lease is lost.
struct Scene {
    shop: Shop,
    gate: Gate,
    lost: mpsc::UnboundedReceiver<ScopedKey>,
}

async fn serve(fixture: &Fixture) -> Scene {
    let gate = Gate::closed();
    let (tell, lost) = mpsc::unbounded_channel();
    let work = Work::answering({
        let gate = gate.clone();
        move |seen| {
            let (gate, tell) = (gate.clone(), tell.clone());
            async move {
                let idempotency = seen.idempotency();
                tokio::select! {
                    () = gate.pass() => {}
                    () = idempotency.lease_lost() => {
                        let _the_test_is_over = tell.send(idempotency.scoped_key());
                        gate.pass().await;
                    }
                }
                seen.charge()
            }
        }
    });
    let store = FaultyStore::over(Arc::new(fixture.store.clone()));
    let shop = Backend::memory().shop().over(store).without_archive();
    let shop = shop.work(work).policy(|policy| policy.lease(LEASE));
    Scene {
        shop: shop.open().await,
        gate,
        lost,
    }
}

#[tokio::test]
async fn a_handler_is_told_when_its_locked_lease_lapses_and_the_others_go_on() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut scene = serve(&fixture).await;
        let held = scoped("alice", "k-1");
        let asks = ["k-0", "k-1", "k-2"].map(|key| scene.shop.post("/charges").key(key).start());
        scene.shop.work.begun(3).await;
        let mut lock = Hold::Locked.on(&fixture, held).await;

        assert_eq!(scene.lost.recv().await, Some(held));
        // It is counted from the start of the call that granted it, which was a
        // little before the store's grant.
        let left = "SELECT extract(milliseconds FROM lease_until - clock_timestamp())::integer \
                    FROM idempotency_keys WHERE scoped_key = ";
        let left: i32 = lock.get(&format!("{left}'{held}'")).await;
        assert!(left < 200, "told {left} ms before it lapses");

        // For two more leases nobody else is told, and nobody hurries.
        let (calls, since) = (scene.shop.store.calls(Verb::Renew), Instant::now());
        scene.shop.store.answered(Verb::Renew, calls + 24).await;
        let took = since.elapsed();
        assert!(took > LEASE / 12 * 22, "24 renewals in {took:?}");
        assert!(scene.lost.try_recv().is_err(), "another lease was lost");
        let live = "SELECT count(*) FROM idempotency_keys WHERE lease_until > clock_timestamp()";
        assert_eq!(lock.get::<i64>(live).await, 2);

        lock.run("ROLLBACK").await;
        scene.gate.open();
        for ask in asks {
            assert_eq!(ask.answer().await.status, 201);
        }
        assert_eq!(lock.get::<i64>(live).await, 0, "all are completed");
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_goes_before_the_lease_does_is_not_noticed() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut scene = serve(&fixture).await;
        let ask = scene.shop.post("/charges").key("k").start();
        scene.shop.work.begun(1).await;
        for _ in 0..3 {
            let mut lock = Hold::Updated.on(&fixture, scoped("alice", "k")).await;
            // Until it was asked for in vain, and is asked for again.
            let calls = scene.shop.store.calls(Verb::Renew);
            scene.shop.store.answered(Verb::Renew, calls + 2).await;
            lock.run("COMMIT").await;
            let calls = scene.shop.store.calls(Verb::Renew);
            scene.shop.store.answered(Verb::Renew, calls + 1).await;
        }
        assert!(scene.lost.try_recv().is_err(), "its lease was lost");
        scene.gate.open();
        assert_eq!(ask.answer().await.status, 201);
    })
    .await;
}
