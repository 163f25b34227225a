//! Deliveries as the providers' documentation shows them.

use std::time::Duration;

use axum_idempotency::webhook::Webhook;

use super::DAY;
use crate::support::{Ask, Shop};

/// What one provider sends.
pub(super) struct Delivery {
    pub webhook: Webhook,
    pub headers: &'static [(&'static str, &'static str)],
    pub body: &'static str,
    /// The id of the event in it.
    pub id: &'static str,
    /// How long it may come again, by itself or by hand.
    pub window: Duration,
}

impl Delivery {
    pub(super) fn to(&self, shop: &Shop) -> Ask {
        let ask = shop.post("/hooks").body(self.body);
        let headers = self.headers.iter();
        headers.fold(ask, |ask, (name, value)| ask.header(name, value))
    }
}

const UUID: &str = "f8b63ec1-0c5f-4ac7-8b2f-2f2a3dca1a6a";
const HOUR: Duration = Duration::from_hours(1);

pub(super) fn deliveries() -> Vec<Delivery> {
    let groups = [in_headers(), of_shops(), in_json(), in_forms()];
    groups.into_iter().flatten().collect()
}

/// Those with an id in a header.
fn in_headers() -> Vec<Delivery> {
    vec![
        Delivery {
            webhook: Webhook::standard(),
            headers: &[
                ("webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"),
                ("webhook-timestamp", "1674087231"),
                (
                    "webhook-signature",
                    "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
                ),
            ],
            body: r#"{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52"}}"#,
            id: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
            window: 76 * HOUR,
        },
        Delivery {
            webhook: Webhook::svix(),
            headers: &[("svix-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")],
            body: r#"{"test":2432232314}"#,
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
            window: 5 * DAY,
        },
        Delivery {
            webhook: Webhook::svix(),
            headers: &[("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJel")],
            body: r#"{"test":2432232314}"#,
            id: "msg_p5jXN8AQM9LWM0D4loKWxJel",
            window: 28 * HOUR,
        },
        Delivery {
            webhook: Webhook::github(),
            headers: &[
                ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
                ("x-github-event", "issues"),
            ],
            body: r#"{"action":"opened","issue":{"id":73464126}}"#,
            id: "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            window: 3 * DAY,
        },
        Delivery {
            webhook: Webhook::gitlab(),
            headers: &[
                ("idempotency-key", UUID),
                ("webhook-id", "another"),
                ("x-gitlab-event", "Push Hook"),
                (
                    "x-gitlab-event-uuid",
                    "13792a34-cac6-4fda-95a8-c58e00a3954e",
                ),
            ],
            body: r#"{"object_kind":"push"}"#,
            id: UUID,
            window: 2 * DAY,
        },
        Delivery {
            webhook: Webhook::gitlab(),
            headers: &[("webhook-id", "f5e5f430-f57b-4e6e-9fac-d9128cd7232f")],
            body: r#"{"object_kind":"push"}"#,
            id: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
            window: 2 * DAY,
        },
    ]
}

/// Shopify's.
fn of_shops() -> Vec<Delivery> {
    vec![
        Delivery {
            webhook: Webhook::shopify(),
            headers: &[
                (
                    "x-shopify-webhook-id",
                    "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
                ),
                ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
                ("x-shopify-topic", "orders/create"),
                ("x-shopify-shop-domain", "example.myshopify.com"),
            ],
            body: r#"{"id":820982911946154508,"email":"jon@example.com"}"#,
            id: "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
            window: 4 * HOUR,
        },
        Delivery {
            webhook: Webhook::shopify_by_event(),
            headers: &[
                (
                    "x-shopify-webhook-id",
                    "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
                ),
                ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
                ("x-shopify-topic", "orders/create"),
                ("x-shopify-shop-domain", "example.myshopify.com"),
            ],
            body: r#"{"id":820982911946154508}"#,
            id: "36:98880550-7158-44d4-b7cd-2c97c8a091b5,13:orders/create",
            window: 4 * HOUR,
        },
        Delivery {
            webhook: Webhook::shopify_by_event(),
            headers: &[
                ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
                ("x-shopify-topic", "orders/create"),
                ("x-shopify-name", "eu"),
                ("x-shopify-shop-domain", "example.myshopify.com"),
            ],
            body: r#"{"id":820982911946154508}"#,
            id: "36:98880550-7158-44d4-b7cd-2c97c8a091b5,13:orders/create,2:eu",
            window: 4 * HOUR,
        },
    ]
}

/// Those with an id in a JSON body.
fn in_json() -> Vec<Delivery> {
    vec![
        Delivery {
            webhook: Webhook::stripe(),
            headers: &[(
                "stripe-signature",
                "t=1492774577,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd",
            )],
            body: r#"{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","api_version":"2019-02-19","created":1686089970,"data":{"object":{"id":"seti_1NG8Du2eZvKYlo2C9XMqbR0x","object":"setup_intent"}},"livemode":false,"pending_webhooks":0,"request":{"id":null,"idempotency_key":null},"type":"setup_intent.created"}"#,
            id: "evt_1NG8Du2eZvKYlo2CUI79vXWy",
            window: 29 * DAY,
        },
        Delivery {
            webhook: Webhook::slack(),
            headers: &[
                ("x-slack-retry-num", "1"),
                ("x-slack-retry-reason", "http_timeout"),
            ],
            body: r#"{"token":"z26uFbvR1xHJEdHE1OQiO6t8","team_id":"T123ABC456","event":{"type":"reaction_added","event_ts":"1234567890.123456"},"type":"event_callback","event_id":"Ev123ABC456","event_time":1234567890}"#,
            id: "Ev123ABC456",
            window: 24 * HOUR,
        },
        Delivery {
            webhook: Webhook::square(),
            headers: &[
                ("square-retry-number", "1"),
                ("square-retry-reason", "http_timeout"),
            ],
            body: r#"{"merchant_id":"6SSW7HV8K2ST5","type":"payment.updated","event_id":"6a8f5f28-54a1-4eb0-a98a-3111513fd4fc","data":{"type":"payment","id":"hYy9pRFVxpDsO1FB05SunFWUe9JZY"}}"#,
            id: "6a8f5f28-54a1-4eb0-a98a-3111513fd4fc",
            window: 72 * HOUR,
        },
        Delivery {
            webhook: Webhook::paypal(),
            headers: &[(
                "paypal-transmission-id",
                "b2384410-f8d2-11e4-8bf3-77339302725b",
            )],
            body: r#"{"id":"WH-2WR32451HC0233532-67976317FL4543714","event_version":"1.0","event_type":"PAYMENT.SALE.COMPLETED","resource":{"id":"80021663DE681814L"}}"#,
            id: "WH-2WR32451HC0233532-67976317FL4543714",
            window: 3 * DAY,
        },
    ]
}

/// Twilio's.
fn in_forms() -> Vec<Delivery> {
    vec![
        Delivery {
            webhook: Webhook::twilio(),
            headers: &[(
                "i-twilio-idempotency-token",
                "c6e9eb0f-3f0a-4b0f-a7d7-6b7fb0e0b8c9",
            )],
            body: "MessageSid=SM1&MessageStatus=delivered",
            id: "c6e9eb0f-3f0a-4b0f-a7d7-6b7fb0e0b8c9",
            window: Duration::from_secs(15),
        },
        Delivery {
            webhook: Webhook::twilio(),
            headers: &[],
            body: "AccountSid=AC1&From=%2B15017122661&MessageSid=SM2b6f&MessageStatus=delivered",
            id: "6:SM2b6f,9:delivered",
            window: Duration::from_secs(15),
        },
        Delivery {
            webhook: Webhook::twilio(),
            headers: &[],
            body: "AccountSid=AC1&CallSid=CA9d&CallStatus=in-progress",
            id: "4:CA9d,11:in-progress",
            window: Duration::from_secs(15),
        },
        Delivery {
            webhook: Webhook::twilio(),
            headers: &[],
            body: "AccountSid=AC1&MessageSid=SM2b6f&Body=Hi+there",
            id: "SM2b6f",
            window: Duration::from_secs(15),
        },
    ]
}
