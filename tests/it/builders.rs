//! Policies and layers that cannot work are not built, and say why.

use std::time::Duration;

use axum_idempotency::{
    ArchiveLookup, ConfigError, IdempotencyLayer, InFlight, KeySource, Policy, PolicyBuilder,
    PrincipalSource, Retry, ScopeSecret, Ttl, store::MemoryStore,
};
use http::{Method, StatusCode};

use crate::support::{Backend, on_every_backend};

on_every_backend!(
    durations_without_end_are_taken_as_very_long,
    a_policy_that_asks_about_every_key_needs_an_archive,
);

fn policy() -> PolicyBuilder {
    Policy::builder(PrincipalSource::bearer())
}

#[test]
fn a_policy_that_cannot_work_says_why() {
    let second = Duration::from_secs(1);
    let pointer = |pointer: &str| KeySource::BodyPointer(pointer.to_owned());
    for (policy, error, text) in [
        (policy().methods([]), ConfigError::NoMethods, "no method"),
        (
            policy().methods([Method::POST, Method::GET]),
            ConfigError::SafeMethod(Method::GET),
            "GET",
        ),
        (
            policy().methods([Method::HEAD]),
            ConfigError::SafeMethod(Method::HEAD),
            "HEAD",
        ),
        (
            policy().methods([Method::OPTIONS]),
            ConfigError::SafeMethod(Method::OPTIONS),
            "OPTIONS",
        ),
        (
            policy().lease(Duration::ZERO),
            ConfigError::LeaseTooShort,
            "10 ms",
        ),
        (
            policy().lease(Duration::from_millis(9)),
            ConfigError::LeaseTooShort,
            "10 ms",
        ),
        (
            policy().lease(2 * second).max_lease(second),
            ConfigError::LeaseOverMaxLease,
            "max_lease",
        ),
        (
            policy().max_lease(Ttl::DEFAULT.get()),
            ConfigError::MaxLeaseOverTtl,
            "TTL",
        ),
        (
            policy().store_timeout(Duration::ZERO),
            ConfigError::StoreTimeoutZero,
            "store timeout",
        ),
        (
            policy().in_flight(InFlight::Wait(Duration::ZERO)),
            ConfigError::WaitZero,
            "InFlight::Reject",
        ),
        (
            policy().request_limit(0),
            ConfigError::BodyLimitZero,
            "body limit",
        ),
        (
            policy().response_limit(0),
            ConfigError::BodyLimitZero,
            "body limit",
        ),
        (
            policy().response_deadline(Duration::ZERO),
            ConfigError::ResponseDeadlineZero,
            "response deadline",
        ),
        (
            policy().key_source(pointer("id")),
            ConfigError::BadPointer("id".to_owned()),
            "\"id\"",
        ),
        (
            policy().resource_id_pointer("data.id"),
            ConfigError::BadPointer("data.id".to_owned()),
            "\"data.id\"",
        ),
        (
            policy().late_status(StatusCode::OK),
            ConfigError::LateStatus(StatusCode::OK),
            "200",
        ),
        (
            policy().late_status(StatusCode::SERVICE_UNAVAILABLE),
            ConfigError::LateStatus(StatusCode::SERVICE_UNAVAILABLE),
            "4xx",
        ),
    ] {
        let refused = policy.build().expect_err(text);
        assert_eq!(refused, error);
        assert!(
            refused.to_string().contains(text),
            "{refused} does not name {text}"
        );
    }
}

#[test]
fn a_layer_that_cannot_work_says_why() {
    let layer = || IdempotencyLayer::builder(MemoryStore::new());
    let with_policy = || layer().policy(policy().build().unwrap());
    let bad_uri = |uri: &str| ConfigError::BadUri(uri.to_owned());
    for (layer, error, text) in [
        (layer(), ConfigError::PolicyMissing, "policy"),
        (
            with_policy().scope_secret(ScopeSecret::new("")),
            ConfigError::EmptySecret,
            "secret",
        ),
        (
            with_policy().documentation("no uri"),
            bad_uri("no uri"),
            "\"no uri\"",
        ),
        (
            with_policy().documentation("https://x/>; rel=\"evil\""),
            bad_uri("https://x/>; rel=\"evil\""),
            "no URI",
        ),
        (with_policy().documentation(""), bad_uri(""), "no URI"),
        (
            with_policy().problem_type_base("not a uri/"),
            bad_uri("not a uri/"),
            "\"not a uri/\"",
        ),
    ] {
        let refused = layer.build().expect_err(text);
        assert_eq!(refused, error);
        assert!(
            refused.to_string().contains(text),
            "{refused} does not name {text}"
        );
    }
    let works = with_policy()
        .problem_type_base("urn:example:problem:")
        .documentation("/docs/keys#retries");
    assert!(works.build().is_ok(), "a relative link is a link");
}

async fn a_policy_that_asks_about_every_key_needs_an_archive(backend: Backend) {
    let all_keys = || {
        let policy = policy().archive_lookup(ArchiveLookup::AllKeys);
        policy.build().expect("the policy by itself can work")
    };
    let without = IdempotencyLayer::builder(backend.process()).policy(all_keys());
    let refused = without.build().expect_err("there is no archive to ask");
    assert_eq!(refused, ConfigError::ArchiveMissing);
    assert!(refused.to_string().contains("archive"), "{refused}");
    let shop = backend.shop().without_archive().open().await;
    let refused = shop.layer.with_policy(all_keys()).map(drop);
    assert_eq!(refused, Err(ConfigError::ArchiveMissing));
    let shop = backend.shop().open().await;
    assert!(
        shop.layer.with_policy(all_keys()).is_ok(),
        "there is one to ask"
    );
}

/// Whoever wants no limit at all writes `Duration::MAX`.
async fn durations_without_end_are_taken_as_very_long(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| {
            policy
                .response_deadline(Duration::MAX)
                .store_timeout(Duration::MAX)
                .in_flight(InFlight::Wait(Duration::MAX))
        })
        .open()
        .await;
    let handler = shop.work.hold();
    let first = shop.post("/charges").key("k").start();
    handler.reached().await;
    let waiting = shop.post("/charges").key("k").start();
    handler.open();
    let first = first.answer().await;
    first.expect_run(1);
    waiting.answer().await.expect_replay_of(&first);
    shop.store.next(
        crate::support::Verb::Claim,
        crate::support::Fault::AnswerLost,
    );
    let unknown = shop.post("/charges").key("another").send().await;
    unknown.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
    shop.store.answered(crate::support::Verb::Release, 1).await;
    assert_eq!(shop.layer.shutdown(Duration::MAX).await, Ok(()));
}

#[test]
fn what_is_not_set_fits_what_is() {
    let minute = Duration::from_mins(1);
    let short = Ttl::new(minute).unwrap();
    assert!(policy().ttl(short).build().is_ok(), "a short TTL alone");
    assert!(
        policy().max_lease(Duration::from_secs(5)).build().is_ok(),
        "a short max_lease alone"
    );
    assert!(
        policy().lease(20 * minute).build().is_ok(),
        "a long lease alone"
    );
    let refused = policy().ttl(short).lease(2 * minute).build();
    assert_eq!(refused.map(drop), Err(ConfigError::MaxLeaseOverTtl));
}

#[test]
fn a_policy_tells_its_window_and_its_rules() {
    let text = policy()
        .ttl(Ttl::new(7 * DAY).unwrap())
        .in_flight(InFlight::Wait(Duration::from_secs(5)))
        .late_status(StatusCode::GONE)
        .forget_statuses([StatusCode::BAD_GATEWAY])
        .expires_header("idempotency-expires".parse().unwrap())
        .build()
        .unwrap()
        .describe();
    for said in [
        "`Idempotency-Key` header, required on POST and PATCH",
        "1 to 255 characters",
        "for 7 days",
        "410 `idempotency_key_expired`",
        "waits up to 5 seconds",
        "30 seconds",
        "1048576 bytes",
        "425, 429, 502",
        "`Idempotent-Replayed: true`",
        "`Idempotency-Expires`",
        "503 `idempotency_store_unavailable`",
    ] {
        assert!(text.contains(said), "{said:?} is not in:\n{text}");
    }
}

const DAY: Duration = Duration::from_hours(24);
