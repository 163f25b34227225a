//! The providers: where each puts the id of an event, and for how long it may
//! deliver it. Each constructor names the documentation it was read from.

use http::HeaderName;

use super::Webhook;
use crate::{policy::KeySource, ttl::Ttl};

impl Webhook {
    /// [Standard Webhooks](https://github.com/standard-webhooks/standard-webhooks),
    /// whoever sends them: the header `webhook-id`.
    ///
    /// - **Delivered again** for as long as the sender chooses; the
    ///   specification's example schedule makes ten attempts over 75 h 36 min.
    ///   Remembered for 5 days.
    /// - **Answer within** 15 to 30 s, as the specification suggests to senders.
    /// - The five minutes for which the specification would remember ids guard
    ///   against a replay inside the tolerance of the timestamp, not against
    ///   retries, each of which has a timestamp of its own.
    /// - A 410 tells the sender to disable the endpoint.
    pub fn standard() -> Self {
        Self::new("standard-webhooks", header("webhook-id"), Ttl::days(5))
    }

    /// [Svix](https://docs.svix.com/retries): the header `svix-id`, else
    /// `webhook-id`.
    ///
    /// - **Delivered again** up to 7 times over 27 h 36 min, and by hand.
    ///   Remembered for 7 days.
    /// - **Answer within** 15 s.
    /// - A redirect counts as a failure. An endpoint that fails for 5 days is
    ///   disabled.
    pub fn svix() -> Self {
        let id = first_of([header("svix-id"), header("webhook-id")]);
        Self::new("svix", id, Ttl::days(7))
    }

    /// [Stripe](https://docs.stripe.com/webhooks): the event's `id` (`evt_…`) in
    /// the body.
    ///
    /// - **Delivered again** for up to 3 days in live mode, three times within
    ///   hours in a sandbox. Undelivered events can be listed, and processed, for
    ///   30 days. Remembered for 30 days.
    /// - One change can make two events, each with an id of its own. Where that
    ///   matters the handler has to compare the object's id and the type.
    /// - Events come in no particular order.
    pub fn stripe() -> Self {
        Self::new("stripe", pointer("/id"), Ttl::days(30))
    }

    /// [GitHub](https://docs.github.com/en/webhooks): the header
    /// `X-GitHub-Delivery`.
    ///
    /// - **Delivered again** only by hand or through the API, for 3 days, under
    ///   the same id. Remembered for 7 days.
    /// - **Answer within** 10 s, or 30 s for an Enterprise Server.
    /// - A redelivery of an event that succeeded is acknowledged and runs
    ///   nothing; of one that failed it runs.
    pub fn github() -> Self {
        Self::new("github", header("x-github-delivery"), Ttl::days(7))
    }

    /// [Shopify](https://shopify.dev/docs/apps/build/webhooks): the header
    /// `X-Shopify-Webhook-Id`, for the shop in `X-Shopify-Shop-Domain`.
    ///
    /// - **Delivered again** 8 times over 4 hours. Remembered for 3 days.
    /// - **Answer within** 5 s, so a retry often comes while the first delivery
    ///   is still at work: it gets the 409 and is sent again.
    /// - The payload of a retry is the original one; `X-Shopify-Triggered-At`
    ///   tells how old it is.
    /// - Eight failures in a row delete a subscription that belongs to one shop.
    /// - The preview of Shopify Events has the id in `shopify-webhook-id`: for it
    ///   there is [`Webhook::new`].
    pub fn shopify() -> Self {
        Self::new("shopify", header("x-shopify-webhook-id"), Ttl::days(3)).account_header(SHOP)
    }

    /// Shopify, by what happened instead of by delivery: the header
    /// `X-Shopify-Event-Id` together with `X-Shopify-Topic` and, where the
    /// subscription has one, `X-Shopify-Name`; else as [`Webhook::shopify`].
    ///
    /// One action of a merchant has one event id for all its topics and
    /// subscriptions. So a second subscription of the same topic and name to this
    /// endpoint is a duplicate here, and another topic is not.
    pub fn shopify_by_event() -> Self {
        let event = || [header("x-shopify-event-id"), header("x-shopify-topic")];
        let named = event().into_iter().chain([header("x-shopify-name")]);
        let id = first_of([all_of(named), all_of(event())]);
        Self::new("shopify-events", id, Ttl::days(3)).account_header(SHOP)
    }

    /// [Slack's Events API](https://docs.slack.dev/apis/events-api): `event_id`
    /// (`Ev…`) in the body.
    ///
    /// - **Delivered again** at once, after a minute and after five; with Delayed
    ///   Events also hourly for a day. Remembered for 2 days.
    /// - **Answer within** 3 s, so a retry often comes while the first delivery
    ///   is still at work: it gets the 409 and is sent again.
    /// - `url_verification`, by which Slack checks an endpoint, has no id: leave
    ///   [`Webhook::refuse_missing_id`] off.
    /// - A retry must not be dropped for its `x-slack-retry-num`: the first
    ///   delivery may have come to nothing.
    pub fn slack() -> Self {
        Self::new("slack", pointer("/event_id"), Ttl::days(2))
    }

    /// [GitLab](https://docs.gitlab.com/user/project/integrations/webhooks/): the
    /// header `Idempotency-Key` (since 17.4), else `webhook-id` (since 19.0).
    ///
    /// - **Delivered again** by hand, for the 2 days that recent events are kept,
    ///   under the same id. Remembered for 4 days.
    /// - **Answer within** 10 s on GitLab.com.
    /// - Four failures in a row disable a webhook for a while, forty for good.
    /// - The key is a bare UUID, which [`KeySyntax::Strict`](crate::KeySyntax)
    ///   would refuse. It never meets the `Idempotency-Key` of a client.
    /// - `X-Gitlab-Webhook-UUID` names the webhook and `X-Gitlab-Event-UUID` is
    ///   shared by hooks that set off each other: neither names a delivery.
    pub fn gitlab() -> Self {
        let id = first_of([header("idempotency-key"), header("webhook-id")]);
        Self::new("gitlab", id, Ttl::days(4))
    }

    /// [Square](https://developer.squareup.com/docs/webhooks/overview):
    /// `event_id` in the body.
    ///
    /// - **Delivered again** 11 times over 24 hours, or over 72 by older pages.
    ///   Remembered for 4 days.
    /// - **Answer within** 10 s.
    /// - Events come in no particular order. An endpoint is disabled after three
    ///   weeks without a 2xx.
    pub fn square() -> Self {
        Self::new("square", pointer("/event_id"), Ttl::days(4))
    }

    /// [PayPal](https://developer.paypal.com/api/rest/webhooks/): the event's
    /// `id` (`WH-…`) in the body.
    ///
    /// - **Delivered again** up to 25 times over 3 days. Remembered for 7 days.
    /// - The header `PAYPAL-TRANSMISSION-ID` names the transmission. It is for
    ///   the check of the signature and tells no duplicates.
    pub fn paypal() -> Self {
        Self::new("paypal", pointer("/id"), Ttl::days(7))
    }

    /// [Twilio's](https://www.twilio.com/docs/usage/webhooks) voice and messaging
    /// webhooks: the header `I-Twilio-Idempotency-Token`, else in the form
    /// `MessageSid` with `MessageStatus`, `CallSid` with `CallStatus`, or
    /// `MessageSid` alone, as of an incoming message.
    ///
    /// - **Delivered again** once by default and up to five times, all within
    ///   15 s. Remembered for 1 day.
    /// - **Answer within** 15 s. What the handler answers is what Twilio does next,
    ///   and a duplicate is answered with the same.
    /// - Twilio can be told to use GET, which is never covered: choose POST.
    /// - Without the token, two requests in one state of a call are taken for
    ///   one: give each step of a call an endpoint of its own.
    pub fn twilio() -> Self {
        let id = first_of([
            header("i-twilio-idempotency-token"),
            all_of([field("MessageSid"), field("MessageStatus")]),
            all_of([field("CallSid"), field("CallStatus")]),
            field("MessageSid"),
        ]);
        Self::new("twilio", id, Ttl::days(1))
    }
}

fn header(name: &'static str) -> KeySource {
    KeySource::Header(HeaderName::from_static(name))
}

pub(super) fn pointer(pointer: &str) -> KeySource {
    KeySource::BodyPointer(pointer.to_owned())
}

fn field(name: &str) -> KeySource {
    KeySource::FormField(name.to_owned())
}

fn first_of(sources: impl IntoIterator<Item = KeySource>) -> KeySource {
    KeySource::FirstOf(sources.into_iter().collect())
}

pub(super) fn all_of(sources: impl IntoIterator<Item = KeySource>) -> KeySource {
    KeySource::AllOf(sources.into_iter().collect())
}

const SHOP: HeaderName = HeaderName::from_static("x-shopify-shop-domain");
