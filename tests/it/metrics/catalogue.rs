//! One list of metrics: the table of the documentation and the sources hold to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use axum_idempotency::metrics::{CATALOGUE, Kind};

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What is between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_in_the_docs_is_the_catalogue() {
    let docs = read(&source("metrics/mod.rs"));
    let rows = docs.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let rows: Vec<Vec<_>> = rows
        .map(|row| row.splitn(5, '|').map(str::trim).collect())
        .collect();
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let name = row[0].trim_matches('`');
            (name, row[1], row[2], quoted(row[3]))
        })
        .collect();
    let catalogue = CATALOGUE.iter().map(|metric| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        (metric.name, kind, metric.unit, metric.labels.to_vec())
    });
    assert_eq!(told, catalogue.collect::<Vec<_>>());
}

#[test]
fn names_say_what_they_are() {
    for metric in CATALOGUE {
        let name = metric.name;
        let is_counter = metric.kind == Kind::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        let is_milliseconds = metric.unit == "milliseconds";
        assert_eq!(name.ends_with("_ms"), is_milliseconds, "{name}");
        assert!(metric.help.ends_with('.'), "{name}: {}", metric.help);
        let namesakes = CATALOGUE.iter().filter(|other| other.name == name);
        assert_eq!(namesakes.count(), 1, "{name} is there twice");
    }
}

/// What is counted under a name written anywhere else would be in no table.
#[test]
fn no_source_but_the_catalogue_writes_a_metrics_name() {
    let mut files = Vec::new();
    sources(&source(""), &mut files);
    assert!(files.len() > 100, "the sources are not where they were");
    for file in files {
        // The console shows names also where nothing is counted: see below.
        if file.ends_with("metrics/catalogue.rs") || file.ends_with("console/gauges.rs") {
            continue;
        }
        for line in read(&file).lines() {
            let is_comment = line.trim_start().starts_with("//");
            let written = CATALOGUE
                .iter()
                .find(|metric| line.contains(&format!("\"{}\"", metric.name)));
            if let Some(metric) = written.filter(|_| !is_comment) {
                panic!("{} writes {}: {line}", file.display(), metric.name);
            }
            let uses_the_facade = ["counter!(", "gauge!(", "histogram!("]
                .iter()
                .any(|made| line.contains(made));
            assert!(
                !uses_the_facade || file.ends_with("metrics/recorders.rs"),
                "{} counts by itself: {line}",
                file.display()
            );
        }
    }
}

#[test]
fn the_console_names_its_gauges_as_the_catalogue_does() {
    let console = read(&source("console/gauges.rs"));
    let named: Vec<_> = console
        .lines()
        .filter_map(|line| line.trim().strip_prefix("metric: \""))
        .filter_map(|line| line.strip_suffix("\","))
        .collect();
    assert!(
        !named.is_empty(),
        "the console's gauges are written otherwise"
    );
    for name in named {
        let is_known = CATALOGUE.iter().any(|metric| metric.name == name);
        assert!(is_known, "{name} is not in the catalogue");
    }
}

/// A name that nothing records is a promise.
#[test]
fn every_name_of_the_catalogue_is_recorded() {
    let catalogue = read(&source("metrics/catalogue.rs"));
    let recorders = read(&source("metrics/recorders.rs"));
    let constants: Vec<_> = catalogue
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub(crate) const "))
        .filter_map(|line| line.split_once(": &str"))
        .map(|(constant, _)| constant)
        .collect();
    assert_eq!(constants.len(), CATALOGUE.len(), "{constants:?}");
    for constant in constants {
        let recorded = [",", ")"]
            .iter()
            .any(|end| recorders.contains(&format!("!(names::{constant}{end}")));
        assert!(recorded, "nothing records {constant}");
    }
}
