//! What is counted and timed: each metric, on the way of a request or beside it,
//! with its value; the catalogue against the documents and the sources; and no key
//! or principal anywhere.

#![allow(clippy::float_cmp, reason = "counts are whole")]

mod batches;
mod catalogue;
mod gauges;
mod leases;
mod measuring;
mod requests;

use std::{collections::BTreeMap, fmt};

use axum_idempotency::{
    RequestOutcome,
    metrics::{CATALOGUE, Kind, LATENCY_BUCKETS_MS, ROW_BUCKETS, describe},
};
use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::support::{Backend, scoped};

/// Whose requests are made, and under which key: no scrape may show them.
const PRINCIPAL: &str = "sk_live_alice";
const KEY: &str = "order-4711";

/// Measures what happens on this thread while this lives: the whole test, which
/// runs on one.
struct Measured {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Measured {
    fn begin() -> Self {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_ms".to_owned()), LATENCY_BUCKETS_MS)
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), ROW_BUCKETS)
            });
        let recorder = builder.expect("there are buckets").build_recorder();
        // The guard wants it to outlive the test.
        let recorder = Box::leak(Box::new(recorder));
        let measured = Self {
            handle: recorder.handle(),
            _guard: metrics::set_default_local_recorder(recorder),
        };
        describe();
        measured
    }

    /// All there is, as a Prometheus would read it.
    fn scrape(&self) -> Scrape {
        Scrape::read(&self.handle.render())
    }
}

/// What one record counts once it was swept. Where outcomes are archived first, a
/// record leaves by itself, by the server's clock; the test's clock moves past that
/// one, so that the sweep finds it.
fn archived(backend: &Backend) -> f64 {
    if backend.archives_first() { 2.0 } else { 1.0 }
}

/// One scrape, in which every series is one of the catalogue's.
struct Scrape(Vec<Series>);

struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    #[track_caller]
    fn read(text: &str) -> Self {
        shows_no_secret(text);
        let lines = text.lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let series: Vec<_> = lines.map(Series::read).collect();
        for series in &series {
            series.is_of_the_catalogue();
        }
        Self(series)
    }

    /// The value of a series with these labels; `None` when it is not there.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: BTreeMap<_, _> = labels
            .iter()
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect();
        let mut all = self.0.iter();
        let found = all.find(|series| series.name == name && series.labels == wanted);
        found.map(|series| series.value)
    }

    #[track_caller]
    fn has(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let there = self.value(name, labels);
        assert_eq!(there, Some(value), "{name} {labels:?} in {self:#?}");
    }

    /// Requests had these outcomes, and no others.
    #[track_caller]
    fn counts(&self, outcomes: &[(RequestOutcome, f64)]) {
        let requests = self.0.iter();
        let requests = requests.filter(|series| series.name == "idempotency_requests_total");
        let counted: BTreeMap<_, _> = requests
            .map(|series| (series.labels["outcome"].clone(), series.value.to_string()))
            .collect();
        let expected: BTreeMap<_, _> = outcomes
            .iter()
            .map(|(outcome, requests)| (outcome.as_str().to_owned(), requests.to_string()))
            .collect();
        assert_eq!(counted, expected, "requests by outcome");
    }

    /// How many calls of the store ended so.
    fn calls(&self, call: &str, result: &str) -> f64 {
        let labels = [("call", call), ("result", result)];
        let calls = self.value("idempotency_store_call_duration_ms_count", &labels);
        calls.unwrap_or_default()
    }

    /// The batches of one statement, and the rows in them.
    fn batches(&self, statement: &str) -> (f64, f64) {
        let labels = [("statement", statement)];
        let part = |part: &str| {
            let name = format!("idempotency_batch_rows_{part}");
            self.value(&name, &labels).unwrap_or_default()
        };
        (part("count"), part("sum"))
    }
}

/// Without buckets, which say too much.
impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series = self.0.iter();
        let series = series.filter(|series| !series.labels.contains_key("le"));
        let entry = |series: &Series| ((series.name.clone(), series.labels.clone()), series.value);
        f.debug_map().entries(series.map(entry)).finish()
    }
}

impl Series {
    /// One line, `name{label="value"} 1`. No label's value needs to be quoted.
    fn read(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').expect("the end of the labels");
        let pairs = labels.split(',').filter(|pair| !pair.is_empty());
        let labels = pairs.map(|pair| {
            let (label, value) = pair.split_once('=').expect("a label and its value");
            (label.to_owned(), value.trim_matches('"').to_owned())
        });
        Self {
            name: name.to_owned(),
            labels: labels.collect(),
            value: value.parse().expect("a number"),
        }
    }

    #[track_caller]
    fn is_of_the_catalogue(&self) {
        let parts = ["_bucket", "_count", "_sum"];
        let is_it = |name: &str, kind| match kind {
            Kind::Histogram => parts
                .iter()
                .any(|part| self.name.strip_suffix(part) == Some(name)),
            Kind::Counter | Kind::Gauge => self.name == name,
        };
        let mut all = CATALOGUE.iter();
        let metric = all.find(|metric| is_it(metric.name, metric.kind));
        let metric = metric.unwrap_or_else(|| panic!("{} is not in the catalogue", self.name));
        let labels = self.labels.keys().filter(|label| *label != "le");
        let mut labels: Vec<_> = labels.map(String::as_str).collect();
        let mut expected = metric.labels.to_vec();
        labels.sort_unstable();
        expected.sort_unstable();
        assert_eq!(labels, expected, "labels of {}", self.name);
    }
}

/// Neither the key nor the principal, nor what stands for them in the store.
#[track_caller]
fn shows_no_secret(scrape: &str) {
    let record = scoped(PRINCIPAL, KEY).to_string();
    let digest = record.strip_prefix("idem:v1:").expect("a scoped key");
    for secret in [KEY, PRINCIPAL, digest, "idem:v1:"] {
        assert!(!scrape.contains(secret), "{secret} is shown: {scrape}");
    }
}
