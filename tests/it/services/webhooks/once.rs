//! Each event once, and what is told of it.

use serde_json::json;

use super::{HOOKS, Hook, STRIPE, is_processed, processed, ran};
use crate::services::{Site, races::storm};

on_every_store!(
    an_event_is_processed_once_and_its_duplicates_are_acknowledged,
    an_event_in_fifty_parallel_deliveries_is_processed_once,
    a_body_that_is_no_json_is_refused_and_a_good_delivery_of_its_event_runs,
    a_delivery_without_an_id_is_processed_each_time,
    one_id_of_two_providers_is_two_events,
    nothing_is_known_of_what_never_came,
);

async fn an_event_is_processed_once_and_its_duplicates_are_acknowledged(site: Site) {
    let service = site.start("webhooks").await;
    for hook in HOOKS {
        let delivery = hook.deliver(&service, "evt_1");
        let first = delivery.send().await;
        ran(&first);
        // Providers sign, and often write, each delivery anew.
        let resent = json!({"id": "evt_1", "type": "order.paid", "attempt": 2});
        let resent = hook.with_id(&service, "evt_1").json(&resent);
        for duplicate in [delivery.header("stripe-signature", "another"), resent] {
            duplicate.send().await.must_replay(&first);
        }
        is_processed(&site, hook, "evt_1", 1).await;
        let told = hook.ask(&service, "evt_1").await;
        let told = hook.is_told_as(&told, "evt_1", "completed");
        assert_eq!(told["archived"], false);
    }
}

async fn an_event_in_fifty_parallel_deliveries_is_processed_once(site: Site) {
    let service = site.start("webhooks").await;
    for hook in HOOKS {
        let delivery = hook.deliver(&service, "evt_1");
        let answers = storm(vec![delivery.clone(); 50]).await;
        let (acknowledged, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 200);
        for answer in refused {
            answer.problem(409, "idempotency_request_in_progress");
            assert!(answer.header("retry-after").is_some(), "{answer}");
        }
        let fresh = acknowledged.iter().filter(|answer| !answer.is_replay());
        assert_eq!(fresh.count(), 1, "one delivery runs");
        is_processed(&site, hook, "evt_1", 1).await;
        assert!(delivery.send().await.is_replay());
    }
}

async fn a_body_that_is_no_json_is_refused_and_a_good_delivery_of_its_event_runs(site: Site) {
    let service = site.start("webhooks").await;
    for hook in HOOKS {
        for body in [
            b"".as_slice(),
            b"no json",
            b"{\"id\":\"evt_1\"",
            b"{\"id\":\"evt_1\",\"a\":\"\xff\"}",
        ] {
            let refused = hook.with_id(&service, "evt_1").body(body).send().await;
            if hook.id_in.is_none() {
                let problem = refused.problem(400, "idempotency_key_invalid");
                assert_eq!(problem["reason"], "bad_syntax", "{refused}");
            } else {
                assert_eq!(refused.status, 400, "{refused}");
                assert_eq!(refused.json(), json!({"code": "not_json"}));
            }
            assert!(!refused.is_replay(), "a failure was recorded: {refused}");
            assert_eq!(hook.ask(&service, "evt_1").await.status, 404);
        }
        is_processed(&site, hook, "evt_1", 0).await;
        let mended = hook.deliver(&service, "evt_1");
        let first = mended.send().await;
        ran(&first);
        mended.send().await.must_replay(&first);
        is_processed(&site, hook, "evt_1", 1).await;
        hook.is_told_as(&hook.ask(&service, "evt_1").await, "evt_1", "completed");
    }
}

async fn a_delivery_without_an_id_is_processed_each_time(site: Site) {
    let service = site.start("webhooks").await;
    for hook in HOOKS {
        let without = hook
            .post(&service)
            .json(&json!({"type": "ping", "id": null}));
        for _ in 0..2 {
            ran(&without.send().await);
        }
        if let Some(count) = processed(&site, hook, None).await {
            assert_eq!(count, 2, "of {}", hook.provider);
        }
    }
    service.has_logged("a request without a key").await;
}

async fn one_id_of_two_providers_is_two_events(site: Site) {
    let service = site.start("webhooks").await;
    for (number, hook) in HOOKS.into_iter().enumerate() {
        for unasked in &HOOKS[number..] {
            assert_eq!(unasked.ask(&service, "1").await.status, 404);
        }
        ran(&hook.deliver(&service, "1").send().await);
        hook.is_told_as(&hook.ask(&service, "1").await, "1", "completed");
        is_processed(&site, hook, "1", 1).await;
    }
}

async fn nothing_is_known_of_what_never_came(site: Site) {
    let service = site.start("webhooks").await;
    ran(&STRIPE.deliver(&service, "evt_1").send().await);
    let too_long = "e".repeat(256);
    for id in ["evt_2", "EVT_1", "evt_1 ", " ", &too_long] {
        let unknown = STRIPE.ask(&service, id).await;
        assert_eq!(unknown.status, 404, "{id:?}: {unknown}");
        assert_eq!(unknown.json(), json!({"code": "never_seen"}));
    }
    let elsewhere = Hook {
        provider: "acme",
        ..STRIPE
    };
    assert_eq!(elsewhere.ask(&service, "evt_1").await.status, 404);
    for target in ["/events/stripe/%FF", "/events/stripe", "/events/stripe/"] {
        let refused = service.get(target).send().await.status;
        assert!((400..500).contains(&refused), "{target}: {refused}");
    }
    let got = service.get(STRIPE.path).send().await;
    assert_eq!(got.status, 405, "{got}");
}
