//! Where the command finds a store, and what it said.

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use axum_idempotency::{
    ManualClock,
    archive::{Archive, SqliteArchive},
    store::{Store, postgres::PostgresStore, redis::RedisStore, sqlite::SqliteStore},
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{
    postgres::Schema,
    redis::{prefix, server_url},
};

/// A store of the test's own with its archive.
pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) store_url: String,
    pub(super) archive_url: Option<String>,
    prefix: Option<String>,
    schema: Option<Schema>,
}

impl Place {
    pub(super) fn sqlite() -> Self {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("store.db");
        Self::at(dir, format!("sqlite:{}", file.display()))
    }

    pub(super) fn postgres() -> Self {
        let schema = Schema::new();
        let dir = TempDir::new().expect("a directory");
        Self {
            store_url: schema.url(),
            schema: Some(schema),
            ..Self::at(dir, String::new())
        }
    }

    /// On the shared server, with the archive in SQLite.
    pub(super) fn redis() -> Self {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("archive.db");
        Self {
            archive_url: Some(format!("sqlite:{}", file.display())),
            prefix: Some(prefix()),
            ..Self::at(dir, server_url())
        }
    }

    pub(super) fn at(dir: TempDir, store_url: String) -> Self {
        Self {
            dir,
            store_url,
            archive_url: None,
            prefix: None,
            schema: None,
        }
    }

    /// The same store with its archive elsewhere, or `none`.
    pub(super) fn archive(mut self, url: &str) -> Self {
        self.archive_url = Some(url.to_owned());
        self
    }

    /// The same store, with nothing said of an archive.
    pub(super) fn without_archive_url(mut self) -> Self {
        self.archive_url = None;
        self
    }

    /// The store and the archive under a clock, migrated.
    pub(super) async fn open(&self, clock: ManualClock) -> (Box<dyn Store>, Box<dyn Archive>) {
        let url = self.store_url.clone();
        if let Some(prefix) = &self.prefix {
            let archive = self.archive_url.as_deref().expect("an archive");
            let archive = SqliteArchive::open(archive).await.expect("a file");
            let builder = RedisStore::builder().url(url).prefix(prefix).clock(clock);
            let store = builder.open().await.expect("the server is there");
            return (Box::new(store), Box::new(archive));
        }
        if self.schema.is_some() {
            let store = PostgresStore::builder().url(url).clock(clock).open().await;
            let store = store.expect("a fresh schema opens");
            let archive = store.archive();
            return (Box::new(store), Box::new(archive));
        }
        let store = SqliteStore::builder().url(url).clock(clock).open().await;
        let store = store.expect("a fresh file opens");
        let archive = store.archive();
        (Box::new(store), Box::new(archive))
    }

    /// Runs statements where the archive is.
    pub(super) async fn run_sql(&self, sql: &str) {
        let url = self.archive_url.as_ref().unwrap_or(&self.store_url);
        let sql = AssertSqlSafe(sql.to_owned());
        if url.starts_with("sqlite") {
            let mut raw = SqliteConnection::connect(url).await.expect("a database");
            sqlx::raw_sql(sql).execute(&mut raw).await.expect("SQL");
            raw.close().await.expect("closed");
        } else {
            let mut raw = PgConnection::connect(url).await.expect("a database");
            sqlx::raw_sql(sql).execute(&mut raw).await.expect("SQL");
        }
    }

    /// The command with these arguments, and nothing else from the environment.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
        command
            .kill_on_drop(true)
            .env_clear()
            .current_dir(self.dir.path())
            .env("STORE_URL", &self.store_url)
            .envs(self.archive_url.iter().map(|url| ("ARCHIVE_URL", url)))
            .stdin(Stdio::null())
            .args(arguments);
        if let Some(prefix) = &self.prefix {
            command.args(["--redis-prefix", prefix]);
        }
        command
    }

    pub(super) async fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().await;
        Ran::of(output.expect("the command starts"))
    }

    /// What it says under `--json`, with the exit status 0.
    pub(super) async fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat()).await;
        ran.exits(0).json()
    }

    /// Migrated by the command itself.
    pub(super) async fn migrated(self) -> Self {
        self.json(&["migrate"]).await;
        self
    }
}

/// What a run of the command came to.
#[derive(Debug)]
pub(super) struct Ran {
    code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ran {
    pub(super) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    #[track_caller]
    pub(super) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "the exit status: {self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        let document = serde_json::from_str(&self.stdout);
        document.unwrap_or_else(|error| panic!("not one JSON document: {error}: {self:#?}"))
    }

    #[track_caller]
    pub(super) fn says(&self, text: &str) {
        assert!(
            self.stdout.contains(text),
            "does not say {text:?}: {self:#?}"
        );
    }

    /// On standard error, as an error.
    #[track_caller]
    pub(super) fn complains_of(&self, text: &str) {
        assert!(self.stderr.starts_with("error: "), "{self:#?}");
        assert!(
            self.stderr.contains(text),
            "does not tell {text:?}: {self:#?}"
        );
        assert_eq!(self.stdout, "", "an error is told on standard error");
    }

    #[track_caller]
    pub(super) fn never_tells(&self, secret: &str) {
        let tells = self.stdout.contains(secret) || self.stderr.contains(secret);
        assert!(!tells, "tells {secret:?}: {self:#?}");
    }
}

pub(super) const HOUR: Duration = Duration::from_hours(1);
