//! What watches the service, `examples/ops`: rules, their tests, the scrape
//! configuration and the dashboard, by `promtool` and against the catalogue.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use axum_idempotency::metrics::{CATALOGUE, Kind};
use serde_json::Value;

/// Where the annotations of an alert point to.
const RUNBOOK: &str =
    "https://docs.rs/axum-idempotency/latest/axum_idempotency/guide/runbook/index.html#";

/// The sections of the runbook that an alert may send its reader to.
const SECTIONS: [&str; 5] = [
    "watch",
    "drain-a-backlog",
    "add-a-missing-partition",
    "retire-a-month",
    "reconcile-after-an-incident",
];

/// The six names of the runbook's checklist.
const CHECKLIST: [&str; 6] = [
    "idempotency_expired_backlog",
    "idempotency_archived_total",
    "idempotency_archive_newest_partition_days",
    "idempotency_expired_replay_total",
    "idempotency_archive_lookup_duration_ms",
    "idempotency_archive_bytes",
];

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/ops")
        .join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[track_caller]
fn promtool(arguments: &[&str], file: &str) {
    let ran = Command::new("promtool")
        .args(arguments)
        .arg(path(file))
        .output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("promtool is missing: it comes with Debian's package prometheus")
        }
        Err(error) => panic!("promtool does not start: {error}"),
    };
    assert!(
        ran.status.success(),
        "promtool {} {file}:\n{}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// One rule of `alerts.yml`.
#[derive(Debug)]
struct Alert {
    name: String,
    /// Its lines, without comments.
    lines: Vec<String>,
}

impl Alert {
    fn all() -> Vec<Self> {
        let mut alerts: Vec<Self> = Vec::new();
        for line in text("alerts.yml").lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("- alert: ") {
                let name = name.to_owned();
                let lines = Vec::new();
                alerts.push(Self { name, lines });
            } else if line.starts_with("- name: ") || line.starts_with('#') {
            } else if let Some(alert) = alerts.last_mut() {
                alert.lines.push(line.to_owned());
            }
        }
        assert!(
            alerts.len() >= 10,
            "alerts.yml is not read as it is written"
        );
        alerts
    }

    /// The value of a field, on its line and those after it.
    fn field(&self, name: &str) -> String {
        let prefix = format!("{name}:");
        let mut lines = self
            .lines
            .iter()
            .skip_while(|line| !line.starts_with(&prefix));
        let first = lines.next();
        let first = first.unwrap_or_else(|| panic!("{} has no {name}", self.name));
        let value = first[prefix.len()..].trim();
        if value != ">-" {
            return value.to_owned();
        }
        let is_next = |line: &&String| FIELDS.iter().any(|field| line.starts_with(field));
        let folded: Vec<_> = lines.take_while(|line| !is_next(line)).cloned().collect();
        folded.join(" ")
    }
}

const FIELDS: [&str; 7] = [
    "for:",
    "labels:",
    "severity:",
    "annotations:",
    "summary:",
    "description:",
    "runbook_url:",
];

/// The metrics that an expression names, as it names them.
fn named(expression: &str) -> BTreeSet<&str> {
    expression
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("idempotency_"))
        .collect()
}

/// The metric of the catalogue behind a series: a histogram is seen by its parts.
fn metric_of(series: &str) -> Option<&'static str> {
    let is_it = |name: &str, kind| match kind {
        Kind::Histogram => ["_bucket", "_count", "_sum"]
            .iter()
            .any(|part| series.strip_suffix(part) == Some(name)),
        Kind::Counter | Kind::Gauge => series == name,
    };
    let mut all = CATALOGUE.iter();
    all.find(|metric| is_it(metric.name, metric.kind))
        .map(|metric| metric.name)
}

fn dashboard() -> Value {
    serde_json::from_str(&text("grafana-dashboard.json")).expect("the dashboard is JSON")
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().expect("panels")
}

fn targets(panel: &Value) -> &[Value] {
    panel["targets"].as_array().map_or(&[], Vec::as_slice)
}

fn expressions(dashboard: &Value) -> Vec<&str> {
    let targets = panels(dashboard).iter().flat_map(targets);
    targets
        .map(|target| target["expr"].as_str().expect("an expression"))
        .collect()
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    promtool(&["check", "rules"], "alerts.yml");
}

#[test]
fn every_rule_passes_its_unit_tests() {
    promtool(&["test", "rules"], "alerts.test.yml");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_scrape_configuration() {
    promtool(&["check", "config"], "prometheus.yml");
}

#[test]
fn every_alert_says_how_urgent_it_is_and_what_to_do() {
    for alert in Alert::all() {
        let name = &alert.name;
        let severity = alert.field("severity");
        assert!(
            ["page", "ticket", "info"].contains(&severity.as_str()),
            "{name}: severity {severity}"
        );
        assert!(!alert.field("for").is_empty(), "{name} says no for");
        assert!(!alert.field("summary").is_empty(), "{name} has no summary");
        let description = alert.field("description");
        assert!(description.len() > 100, "{name} explains too little");
        let url = alert.field("runbook_url");
        let section = url.strip_prefix(RUNBOOK);
        assert!(
            section.is_some_and(|section| SECTIONS.contains(&section)),
            "{name} points to no section of the runbook: {url}"
        );
    }
}

#[test]
fn the_runbook_has_every_section_that_an_alert_points_to() {
    let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/runbook.md");
    let runbook = fs::read_to_string(runbook).expect("the runbook");
    let titles = runbook.lines().filter_map(|line| line.strip_prefix("# "));
    let anchors: Vec<_> = titles
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    for section in SECTIONS {
        assert!(
            anchors.iter().any(|anchor| anchor == section),
            "the runbook has no section {section}: {anchors:?}"
        );
    }
}

#[test]
fn every_alert_has_a_test_that_fires_and_one_that_stays_silent() {
    let tests = text("alerts.test.yml");
    let lines: Vec<_> = tests.lines().map(str::trim).collect();
    let expected: Vec<_> = lines
        .windows(2)
        .filter_map(|pair| Some((pair[0].strip_prefix("alertname: ")?, pair[1])))
        .collect();
    let alerts = Alert::all();
    for alert in &alerts {
        for (what, expects) in [("fires", "exp_alerts:"), ("stays silent", "exp_alerts: []")] {
            assert!(
                expected.contains(&(alert.name.as_str(), expects)),
                "no test in which {} {what}",
                alert.name
            );
        }
    }
    // A misspelt name would stay silent for ever.
    for (name, _) in expected {
        assert!(
            alerts.iter().any(|alert| alert.name == name),
            "a test of {name}, which is no alert"
        );
    }
}

#[test]
fn rules_and_dashboard_name_only_metrics_of_the_catalogue() {
    let alerts: Vec<_> = Alert::all()
        .iter()
        .map(|alert| alert.field("expr"))
        .collect();
    let dashboard = dashboard();
    let mut all: Vec<&str> = alerts.iter().map(String::as_str).collect();
    all.extend(expressions(&dashboard));
    for expression in all {
        let named = named(expression);
        assert!(!named.is_empty(), "names no metric: {expression}");
        for series in named {
            assert!(
                metric_of(series).is_some(),
                "{series} is not in the catalogue: {expression}"
            );
        }
    }
}

#[test]
fn every_name_of_the_checklist_has_an_alert_and_every_metric_a_panel() {
    let alerts: Vec<_> = Alert::all()
        .iter()
        .map(|alert| alert.field("expr"))
        .collect();
    let alerted: BTreeSet<_> = alerts.iter().flat_map(|expr| named(expr)).collect();
    let alerted: BTreeSet<_> = alerted.into_iter().filter_map(metric_of).collect();
    for name in CHECKLIST {
        assert!(alerted.contains(name), "no alert watches {name}");
    }
    let dashboard = dashboard();
    let shown = expressions(&dashboard).into_iter().flat_map(named);
    let shown: BTreeSet<_> = shown.filter_map(metric_of).collect();
    for metric in CATALOGUE {
        assert!(
            shown.contains(metric.name),
            "no panel shows {}",
            metric.name
        );
    }
}

#[test]
fn the_dashboard_is_tied_to_no_server() {
    let dashboard = dashboard();
    assert!(dashboard.get("id").is_none(), "an id of somebody's server");
    assert!(
        dashboard["schemaVersion"].as_u64() >= Some(41),
        "an old schema"
    );
    let variables = dashboard["templating"]["list"].as_array();
    let names: Vec<_> = variables.expect("variables").iter().collect();
    let is_source = |v: &&&Value| v["name"] == "datasource" && v["type"] == "datasource";
    assert!(
        names.iter().any(|v| is_source(&v)),
        "no data source to choose"
    );
    asks_only_the_chosen_source(&dashboard);
    for panel in panels(&dashboard) {
        for source in targets(panel).iter().chain([panel]) {
            if panel["type"] != "row" {
                let source = &source["datasource"];
                assert!(source.is_object(), "{} asks nobody", panel["title"]);
            }
        }
    }
}

fn asks_only_the_chosen_source(part: &Value) {
    if let Some(source) = part.get("datasource") {
        assert_eq!(source["uid"], "${datasource}", "a server's own id");
    }
    let parts = part.as_array().into_iter().flatten();
    let fields = part
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::values);
    parts.chain(fields).for_each(asks_only_the_chosen_source);
}

#[test]
fn every_panel_has_a_title_a_unit_a_query_and_a_place_of_its_own() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap_or_default();
        assert!(!title.is_empty(), "without a title: {panel}");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: its id is taken");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| {
            let side = panel["gridPos"][side].as_u64();
            side.unwrap_or_else(|| panic!("{title} has no place"))
        });
        assert!(w > 0 && h > 0 && x + w <= 24, "{title} is off the grid");
        for column in x..x + w {
            for line in y..y + h {
                assert!(taken.insert((column, line)), "{title} overlaps another");
            }
        }
        if panel["type"] != "row" {
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
            assert!(
                unit.is_some_and(|unit| !unit.is_empty()),
                "{title}: no unit"
            );
            assert!(!targets(panel).is_empty(), "{title} shows nothing");
        }
    }
}

/// The limits of the rules are drawn where they are watched.
#[test]
fn the_limits_of_the_checklist_are_drawn() {
    let dashboard = dashboard();
    let limits = [
        ("idempotency_expired_backlog", 100_000.0),
        ("idempotency_archive_newest_partition_days", 30.0),
        ("idempotency_archive_lookup_duration_ms_bucket", 5.0),
    ];
    for (series, limit) in limits {
        let drawn = panels(&dashboard).iter().any(|panel| {
            let mut expressions = targets(panel).iter().filter_map(|t| t["expr"].as_str());
            let defaults = &panel["fieldConfig"]["defaults"];
            let steps = defaults["thresholds"]["steps"].as_array();
            let mut steps = steps.into_iter().flatten();
            expressions.any(|expression| named(expression).contains(series))
                && defaults["custom"]["thresholdsStyle"]["mode"] != "off"
                && steps.any(|step| step["value"].as_f64() == Some(limit))
        });
        assert!(drawn, "no panel of {series} draws {limit}");
    }
}

#[test]
fn the_readme_tells_of_every_file() {
    let readme = text("README.md");
    for file in fs::read_dir(path("")).expect("examples/ops") {
        let name = file.expect("a file").file_name();
        let name = name.to_string_lossy();
        assert!(
            name == "README.md" || readme.contains(&format!("]({name})")),
            "README.md does not tell of {name}"
        );
    }
}
