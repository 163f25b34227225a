//! What is printed: one JSON document, or text for people.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use indicatif::{HumanBytes, HumanCount};
use jiff::Timestamp;
use serde_json::{Value, json};

/// How results are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result in either form.
    pub(crate) fn show(self, document: &Value, text: impl FnOnce() -> String) -> io::Result<()> {
        if self.json {
            print(&format!("{document:#}\n"))
        } else {
            print(&text())
        }
    }

    /// Prints one of many results, each of them one line.
    pub(crate) fn show_line(self, object: &Value, text: impl FnOnce() -> String) -> io::Result<()> {
        let line = if self.json {
            object.to_string()
        } else {
            text()
        };
        print(&format!("{line}\n"))
    }
}

/// Unlike `print!`, an error where nobody reads it any more.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Logs to standard error, as `RUST_LOG` says. What sqlx says of a URL's
/// parameters could be a password.
pub(crate) fn log(level: &str) {
    let asked = env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty());
    let filter = asked.unwrap_or_else(|| level.to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(format!("{filter},sqlx=warn,sqlx_postgres::options=off"))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// Lines of cells, the columns of which are as wide as their widest cell.
pub(crate) fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The cells of a line.
pub(crate) fn line<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A time as JSON has it, or null.
pub(crate) fn time(time: Option<Timestamp>) -> Value {
    json!(time.map(|time| time.to_string()))
}

/// What cannot be told is a dash.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

pub(crate) fn bytes(number: u64) -> String {
    HumanBytes(number).to_string()
}

/// A span without its fractions of a second.
pub(crate) fn span(span: Duration) -> String {
    humantime::format_duration(Duration::from_secs(span.as_secs())).to_string()
}

/// A span as JSON has it.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A time to the second.
pub(crate) fn moment(time: Timestamp) -> String {
    let second = Timestamp::from_second(time.as_second());
    second.unwrap_or(time).to_string()
}
