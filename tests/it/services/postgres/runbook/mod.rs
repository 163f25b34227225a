//! The runbook, command by command, beside a running service.

use std::{fmt::Write as _, process::Output};

use axum_idempotency::{Clock as _, IdempotencyKey, Principal, Scope, ScopedKey, SystemClock};
use http::Method;
use sqlx::{Connection as _, PgConnection};
use tokio::{process::Command, time::timeout};

use self::pages::{Section, sections};
use super::super::{PATIENCE, Service, Site, eventually};
use crate::support::postgres::Database;

mod pages;

#[tokio::test]
async fn every_command_of_the_runbook_does_what_it_says() {
    let incident = Incident::new().await;
    let mut left: Vec<_> = sections();
    for (title, given) in SECTIONS {
        assert!(!left.is_empty(), "the runbook has no section {title:?}");
        let section = left.remove(0);
        assert_eq!(section.title, title, "the sections are in this order");
        incident.is(given).await;
        incident.follow(&section).await;
        incident.is_over(given).await;
    }
    let titles: Vec<_> = left.iter().map(|section| &section.title).collect();
    assert!(titles.is_empty(), "nothing is tested of {titles:?}");
}

/// What a section is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    Backlog,
    MissingPartition,
    OldMonth,
    Crash,
    Customer,
}

const SECTIONS: [(&str, Given); 8] = [
    ("Choose a TTL", Given::Nothing),
    ("Size the table", Given::Nothing),
    ("Watch", Given::Nothing),
    ("Drain a backlog", Given::Backlog),
    ("Add a missing partition", Given::MissingPartition),
    ("Retire a month", Given::OldMonth),
    ("Reconcile after an incident", Given::Crash),
    ("Erase a customer", Given::Customer),
];

/// A service in trouble.
struct Incident {
    database: Database,
    site: Site,
    service: Service,
    crashed_at: String,
    /// Before its database: it is connected to it.
    _dir: tempfile::TempDir,
}

/// The caller of the runbook's requests, and their keys.
const TOKEN: &str = "acct_1";
const LATE_KEY: &str = "0192f000-0000-7000-8000-00000000002a";
const LIVE_KEY: &str = "k-of-a-customer";

const BACKLOG: i64 = 12_000;

impl Incident {
    async fn new() -> Self {
        let database = Database::new();
        // A sweeper that is stuck: what waits for a sweep waits for the runbook.
        let site = Site::over(database.url()).set("SWEEP_EVERY", "24h");
        let service = site.start("charges").await;
        eventually("the gauges are there", async || {
            let metrics = service.get("/metrics").send().await;
            let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
            metrics.contains("idempotency_expired_backlog")
        })
        .await;
        Self {
            database,
            site,
            service,
            crashed_at: SystemClock.now().to_string(),
            _dir: tempfile::TempDir::new().expect("a directory"),
        }
    }

    async fn is(&self, given: Given) {
        match given {
            Given::Nothing => {
                let charge = self.charge("k-of-today").await;
                assert_eq!(charge, 201, "the service works");
            }
            Given::Backlog => self.sql(&format!(
                "INSERT INTO idempotency_keys (scoped_key, fingerprint, token, attempt, created_at, expires_at, speculative, status_code, resource_id) \
                 SELECT 'idem:v1:' || rpad(to_hex(n), 22, 'A'), '\\x00', gen_random_uuid(), 1, \
                        now() - interval '25 hours', now() - interval '1 hour', false, 201, 'ch_' || n \
                 FROM generate_series(1, {BACKLOG}) AS n"
            ))
            .await,
            Given::MissingPartition => {
                self.sql(&format!(
                    "DO $$ BEGIN EXECUTE 'DROP TABLE ' || {NEXT_MONTH}; END $$"
                ))
                .await;
            }
            Given::OldMonth => {
                self.sql(
                    "CREATE TABLE idempotency_key_archive_2020_02 PARTITION OF idempotency_key_archive \
                     FOR VALUES FROM ('2020-02-01 00:00:00+00') TO ('2020-03-01 00:00:00+00'); \
                     INSERT INTO idempotency_key_archive VALUES \
                     ('idem:v1:AAAAAAAAAAAAAAAAAAAAAA', '\\x00', 201, 'ch_old', '2020-02-10Z', '2020-02-11Z')",
                )
                .await;
            }
            Given::Crash => {
                let late = Self::name_of(LATE_KEY);
                self.sql(&format!(
                    "INSERT INTO idempotency_keys (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative) \
                     VALUES ('{CUT_OFF}', '\\x00', gen_random_uuid(), 1, timestamptz '{at}' - interval '3 seconds', \
                             timestamptz '{at}' + interval '24 hours', timestamptz '{at}' - interval '1 second', false); \
                     INSERT INTO idempotency_key_archive VALUES \
                     ('{late}', '\\x00', 201, 'ch_late', now() - interval '30 hours', now())",
                    at = self.crashed_at,
                ))
                .await;
            }
            Given::Customer => assert_eq!(self.charge(LIVE_KEY).await, 201),
        }
    }

    async fn is_over(&self, given: Given) {
        match given {
            Given::Nothing | Given::Crash => {}
            Given::Backlog => {
                let waiting =
                    self.count("SELECT count(*) FROM idempotency_keys WHERE expires_at < now()");
                assert_eq!(waiting.await, 0, "the backlog is drained");
                let archived = "SELECT count(*) FROM idempotency_key_archive WHERE expired_at < now() - interval '50 minutes'";
                assert_eq!(self.count(archived).await, BACKLOG, "into the archive");
            }
            Given::MissingPartition => {
                let made = format!("SELECT count(*) FROM pg_class WHERE relname = {NEXT_MONTH}");
                assert_eq!(self.count(&made).await, 1, "next month has its partition");
            }
            Given::OldMonth => {
                let left = "SELECT count(*) FROM pg_class WHERE relname = 'idempotency_key_archive_2020_02'";
                assert_eq!(self.count(left).await, 0, "the old month is gone");
                let kept = "SELECT count(*) FROM idempotency_key_archive";
                assert!(self.count(kept).await >= BACKLOG, "and no other");
            }
            Given::Customer => {
                let repeat = self.ask(LIVE_KEY).send().await;
                let code = repeat.code();
                assert_eq!(code.as_deref(), Some("idempotency_response_not_kept"));
                let bodies = "SELECT count(*) FROM idempotency_keys WHERE body IS NOT NULL AND scoped_key = ";
                let name = Self::name_of(LIVE_KEY);
                assert_eq!(self.count(&format!("{bodies}'{name}'")).await, 0);
            }
        }
    }

    /// Runs the commands of a section in one shell, and looks for what they are
    /// to print.
    async fn follow(&self, section: &Section) {
        let mut script = "set -euo pipefail\n".to_owned();
        for (number, step) in section.steps.iter().enumerate() {
            // In braces, so that a variable is there for the next command.
            writeln!(script, "{{ {}\n}} >out-{number} 2>&1", step.command).expect("text");
        }
        let ran = self.shell(&script).await;
        for (number, step) in section.steps.iter().enumerate() {
            let printed = std::fs::read_to_string(self.site.dir().join(format!("out-{number}")));
            let printed = printed.unwrap_or_else(|_| {
                panic!("{}: not reached: {}\n{ran:?}", section.title, step.command)
            });
            for expected in &step.expected {
                assert!(
                    printed.contains(expected.as_str()),
                    "{}: {:?} is not in what this prints: {}\n{printed}",
                    section.title,
                    expected,
                    step.command,
                );
            }
            std::fs::remove_file(self.site.dir().join(format!("out-{number}"))).expect("a file");
            let is_last = number + 1 == section.steps.len();
            let went_well = !is_last || ran.status.success();
            assert!(
                went_well,
                "{}: {} fails\n{printed}",
                section.title, step.command
            );
        }
    }

    async fn shell(&self, script: &str) -> Output {
        let command = std::path::Path::new(env!("CARGO_BIN_EXE_idempotency"));
        let own = command.parent().expect("a directory").display();
        let path = std::env::var("PATH").expect("a path");
        let output = Command::new("bash")
            .arg("-c")
            .arg(script)
            .current_dir(self.site.dir())
            .env("PATH", format!("{own}:{path}"))
            .env("STORE_URL", self.database.url())
            .env_remove("ARCHIVE_URL")
            .env("API", format!("http://{}", self.service.address))
            .env("TOKEN", TOKEN)
            .env("KEY", LATE_KEY)
            .env("LIVE_KEY", LIVE_KEY)
            .env("NAME", CUT_OFF)
            .env("WHEN", &self.crashed_at)
            .env("NO_COLOR", "1")
            .kill_on_drop(true)
            .output();
        let output = timeout(2 * PATIENCE, output).await;
        let output = output.unwrap_or_else(|_| panic!("a command does not end: {script}"));
        output.expect("bash")
    }

    fn ask(&self, key: &str) -> super::super::Request {
        let charge = serde_json::json!({"amount": 4500, "currency": "gbp"});
        let ask = self.service.post("/v1/charges").tenant(TOKEN);
        ask.key(key).json(&charge)
    }

    async fn charge(&self, key: &str) -> u16 {
        self.ask(key).send().await.status
    }

    fn name_of(key: &str) -> ScopedKey {
        let key = IdempotencyKey::new(key).expect("a key");
        let caller = Principal::bearer(TOKEN);
        let endpoint = (&Method::POST, "/v1/charges");
        ScopedKey::derive(None, Scope::Principal, &caller, endpoint, &key)
    }

    async fn sql(&self, statements: &str) {
        let mut connection = self.connect().await;
        let statements = sqlx::AssertSqlSafe(statements.to_owned());
        let done = sqlx::raw_sql(statements).execute(&mut connection).await;
        done.expect("the statements of the test");
    }

    async fn count(&self, query: &str) -> i64 {
        let mut connection = self.connect().await;
        let query = sqlx::AssertSqlSafe(query.to_owned());
        let count = sqlx::query_scalar(query).fetch_one(&mut connection).await;
        count.expect("a count")
    }

    async fn connect(&self) -> PgConnection {
        let connection = PgConnection::connect(&self.database.url()).await;
        connection.expect("a connection")
    }
}

/// The name of next month's partition, as SQL.
const NEXT_MONTH: &str = "'idempotency_key_archive_' || to_char(date_trunc('month', now() AT TIME ZONE 'utc') + interval '1 month', 'YYYY_MM')";

/// The record that the crash left in progress.
const CUT_OFF: &str = "idem:v1:BBBBBBBBBBBBBBBBBBBBBA";
