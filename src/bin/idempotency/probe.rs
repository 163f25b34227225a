//! A late retry, the whole way: archived, sent, refused.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::post};
use axum_idempotency::{
    ArchiveLookup, Fingerprint, IdempotencyKey, IdempotencyLayer, Policy, Principal,
    PrincipalSource, ResourceId, Scope, ScopedKey, Tombstone, Ttl, archive::Archive,
    connect::Connection,
};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower_service::Service as _;

use super::{
    fault::Fault,
    partitions::longest_published_ttl,
    time::before,
    verify::{Check, LATE_RETRY, Verdict},
};

/// Archives a row as of a request 30 hours ago, then sends its retry.
pub(crate) async fn late_retry(connection: &Connection) -> Result<Check, Fault> {
    let Some(archive) = connection.archive() else {
        return Ok(Check {
            name: LATE_RETRY,
            verdict: Verdict::NotChecked,
            found: "there is no archive".to_owned(),
        });
    };
    let text = uuid::Uuid::new_v4().to_string();
    let row = probe_row(connection, &IdempotencyKey::new(&text)?).await?;
    archive.insert(std::slice::from_ref(&row)).await?;
    let (status, answer, runs) = send(connection, archive, &text).await?;
    let fault = fault_of(status, &answer, runs);
    let key = row.key;
    Ok(Check {
        name: LATE_RETRY,
        verdict: Verdict::of(fault.is_none()),
        found: match fault {
            None => format!("the retry of {key} got 409 idempotency_key_expired, nothing ran"),
            Some(fault) => format!("the retry of {key}: {fault}"),
        },
    })
}

async fn probe_row(connection: &Connection, key: &IdempotencyKey) -> Result<Tombstone, Fault> {
    let now = connection.store().now().await?;
    let principal = Principal::constant(PRINCIPAL);
    let endpoint = (&Method::POST, PATH);
    Ok(Tombstone {
        key: ScopedKey::derive(None, Scope::Principal, &principal, endpoint, key),
        // Of no request: whatever it is, a late retry is refused.
        fingerprint: Fingerprint::from_bytes([0_u8].as_slice()),
        status: STATUS,
        resource_id: ResourceId::new(RESOURCE),
        created_at: before(now, Duration::from_hours(30)),
        // In a partition that is there anyway.
        expired_at: now,
    })
}

/// Through a layer over the same store and archive: status, answer, and how
/// often the handler ran.
async fn send(
    connection: &Connection,
    archive: Arc<dyn Archive>,
    key: &str,
) -> Result<(u16, Value, u32), Fault> {
    // A layer publishes its TTL: one that others use changes nothing for them.
    let ttl = match longest_published_ttl(connection).await? {
        Some(published) => Ttl::new(published)?,
        None => Ttl::DEFAULT,
    };
    let max_lease = MAX_LEASE.min(ttl.get() / 2);
    let policy = Policy::builder(PrincipalSource::constant(PRINCIPAL))
        .archive_lookup(ArchiveLookup::AllKeys)
        .ttl(ttl)
        .max_lease(max_lease)
        .lease(LEASE.min(max_lease))
        .build()?;
    let layer = IdempotencyLayer::builder_dyn(connection.store())
        .archive_dyn(archive)
        .policy(policy)
        .build()?;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let handler = post(async move || {
        counted.fetch_add(1, Ordering::SeqCst);
        "ran"
    });
    let mut app = Router::new().route(PATH, handler).layer(layer.clone());
    let request = Request::post(PATH)
        .header("idempotency-key", key)
        .body(Body::from("{}"))?;
    let ready = poll_fn(
        |context| -> std::task::Poll<Result<(), std::convert::Infallible>> {
            <Router as tower_service::Service<Request<Body>>>::poll_ready(&mut app, context)
        },
    );
    ready.await?;
    let response = app.call(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    let shutdown = layer.shutdown(PATIENCE).await;
    shutdown.map_err(|error| Fault::caused_by("the probe did not come to an end", error))?;
    let answer = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok((status, answer, runs.load(Ordering::SeqCst)))
}

fn fault_of(status: u16, answer: &Value, runs: u32) -> Option<String> {
    let expected = [
        ("code", Value::from("idempotency_key_expired")),
        ("original_status", Value::from(STATUS)),
        ("resource_id", Value::from(RESOURCE)),
    ];
    if runs > 0 {
        return Some(format!("it ran a second time, and was answered {status}"));
    }
    if status != 409 {
        let code = &answer["code"];
        return Some(format!("answered {status} {code}, 409 expected"));
    }
    let wrong = expected.iter().find(|(name, value)| answer[name] != *value);
    wrong.map(|(name, value)| format!("{name} is {}, {value} expected", answer[name]))
}

const PRINCIPAL: &str = "idempotency-verify";
const PATH: &str = "/verify";
const STATUS: u16 = 201;
const RESOURCE: &str = "verify_probe";
const LEASE: Duration = Duration::from_secs(10);
const MAX_LEASE: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_secs(10);
