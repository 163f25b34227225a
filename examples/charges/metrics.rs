//! What the layer counts, for Prometheus.

use std::time::Duration;

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use axum_idempotency::metrics::{LATENCY_BUCKETS_MS, ROW_BUCKETS, describe};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

use super::support::BoxError;

/// Installs the recorder, and adds `GET /metrics`. It tells how busy the service
/// is: in production serve it on a port that only your Prometheus reaches.
pub(crate) fn install(router: Router) -> Result<Router, BoxError> {
    let recorder = buckets(PrometheusBuilder::new())?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    describe();
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let metrics = get(async move || {
        let text = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        (text, handle.render())
    });
    Ok(router.route("/metrics", metrics))
}

/// With buckets a percentile can be told over all processes.
fn buckets(builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
    builder
        .set_buckets_for_metric(Matcher::Suffix("_ms".to_owned()), LATENCY_BUCKETS_MS)?
        .set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), ROW_BUCKETS)
}
