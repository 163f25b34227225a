//! Crashes, stops, several processes.

use futures_util::future::join_all;
use serde_json::json;

use super::{GITHUB, HOOKS, STRIPE, is_processed, ran};
use crate::services::{Site, eventually, races::storm, settled};

on_every_durable_store!(
    what_was_processed_survives_a_crash,
    events_that_met_a_crash_are_processed_by_their_redeliveries,
    an_event_that_two_processes_get_at_once_is_processed_once,
    a_clean_stop_forgets_nothing,
    the_key_of_a_client_never_meets_an_event,
);

async fn what_was_processed_survives_a_crash(site: Site) {
    let service = site.start("webhooks").await;
    let mut first = Vec::new();
    for hook in HOOKS {
        first.push(hook.deliver(&service, "evt_1").send().await);
    }
    service.kill().await;
    let service = site.start("webhooks").await;
    for (hook, first) in HOOKS.into_iter().zip(&first) {
        ran(first);
        hook.is_told_as(&hook.ask(&service, "evt_1").await, "evt_1", "completed");
        hook.deliver(&service, "evt_1")
            .send()
            .await
            .must_replay(first);
        is_processed(&site, hook, "evt_1", 1).await;
    }
}

async fn events_that_met_a_crash_are_processed_by_their_redeliveries(site: Site) {
    let site = site.set("LEASE", "1s");
    let service = site.start("webhooks").await;
    let ids: Vec<_> = (0..60).map(|number| format!("evt_{number}")).collect();
    let deliveries = ids.iter().map(|id| {
        let delivery = STRIPE.deliver(&service, id);
        tokio::spawn(async move { delivery.try_send().await })
    });
    let deliveries: Vec<_> = deliveries.collect();
    let some = || deliveries.iter().filter(|one| one.is_finished()).count() >= 5;
    eventually("some are answered", async || some()).await;
    service.kill().await;
    let service = site.start("webhooks").await;
    // Where effect and record are in one database, they are committed together.
    let together = !site.store_url.starts_with("redis");
    for (id, delivery) in ids.iter().zip(join_all(deliveries).await) {
        let first = delivery.expect("no panic");
        let again = settled(&STRIPE.deliver(&service, id)).await;
        assert_eq!(again.status, 200, "{again}");
        if let Ok(first) = &first {
            again.must_replay(first);
        }
        STRIPE.is_told_as(&STRIPE.ask(&service, id).await, id, "completed");
        if together || first.is_ok() {
            is_processed(&site, STRIPE, id, 1).await;
        }
    }
}

async fn an_event_that_two_processes_get_at_once_is_processed_once(site: Site) {
    let (one, other) = tokio::join!(site.start("webhooks"), site.start("webhooks"));
    for number in 0..10 {
        let id = format!("evt_{number}");
        let deliveries = [&one, &other].map(|service| vec![GITHUB.deliver(service, &id); 5]);
        for answer in storm(deliveries.concat()).await {
            if answer.status != 200 {
                answer.problem(409, "idempotency_request_in_progress");
            }
        }
        for service in [&one, &other] {
            let duplicate = GITHUB.deliver(service, &id).send().await;
            assert!(duplicate.is_replay(), "{duplicate}");
            GITHUB.is_told_as(&GITHUB.ask(service, &id).await, &id, "completed");
        }
        is_processed(&site, GITHUB, &id, 1).await;
    }
}

async fn a_clean_stop_forgets_nothing(site: Site) {
    let service = site.start("webhooks").await;
    let ids: Vec<_> = (0..20).map(|number| format!("evt_{number}")).collect();
    let deliveries = ids.iter().map(|id| STRIPE.deliver(&service, id));
    let answers = storm(deliveries.collect()).await;
    service.stop().await;
    let service = site.start("webhooks").await;
    for (id, first) in ids.iter().zip(&answers) {
        ran(first);
        STRIPE.deliver(&service, id).send().await.must_replay(first);
        is_processed(&site, STRIPE, id, 1).await;
    }
    service.stop().await;
}

async fn the_key_of_a_client_never_meets_an_event(site: Site) {
    let (hooks, charges) = tokio::join!(site.start("webhooks"), site.start("charges"));
    let charge = |tenant: &str, reference: &str| {
        let body = json!({"amount": 1, "currency": "gbp", "client_reference": reference});
        charges.post("/v1/charges").tenant(tenant).json(&body)
    };
    for hook in HOOKS {
        let event = hook.deliver(&hooks, "evt_1");
        let made = charge(hook.provider, "o-1").key("evt_1").send().await;
        assert_eq!(made.status, 201, "{made}");
        assert_eq!(hook.ask(&hooks, "evt_1").await.status, 404);
        ran(&event.send().await);
        ran(&hook.deliver(&hooks, "evt_2").send().await);
        let made = charge(hook.provider, "o-2").key("evt_2").send().await;
        assert_eq!(made.status, 201, "{made}");
        assert!(event.send().await.is_replay());
    }
}
