//! Where services live.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use super::{PATIENCE, Service, tail};
#[cfg(feature = "postgres")]
use crate::support::postgres::Schema;
#[cfg(feature = "redis")]
use crate::support::redis;

/// Where a service lives: its store, a directory, its settings.
pub(crate) struct Site {
    pub(super) place: Arc<Place>,
    pub(super) store_url: String,
    settings: Vec<(&'static str, String)>,
    starts: AtomicU32,
}

/// What goes when neither a site nor a service of it is left.
pub(super) struct Place {
    dir: TempDir,
    #[cfg(feature = "postgres")]
    _schema: Option<Schema>,
    #[cfg(feature = "redis")]
    pub(super) redis: Option<redis::Server>,
}

impl Place {
    fn new() -> Self {
        Self {
            dir: TempDir::new().expect("a directory"),
            #[cfg(feature = "postgres")]
            _schema: None,
            #[cfg(feature = "redis")]
            redis: None,
        }
    }
}

impl Site {
    pub(crate) fn memory() -> Self {
        Self::new(Place::new(), "memory:".to_owned())
    }

    pub(crate) fn sqlite() -> Self {
        let place = Place::new();
        let file = place.dir.path().join("service.db");
        Self::new(place, format!("sqlite:{}", file.display()))
    }

    /// In a schema of its own, of the server that is there for all tests.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres() -> Self {
        let schema = Schema::new();
        let url = schema.url();
        let place = Place {
            _schema: Some(schema),
            ..Place::new()
        };
        Self::new(place, url)
    }

    /// On a server of its own, with the archive in SQLite.
    #[cfg(feature = "redis")]
    pub(crate) async fn redis() -> Self {
        let server = redis::Server::start().await;
        let url = server.url();
        let place = Place {
            redis: Some(server),
            ..Place::new()
        };
        Self::new(place, url).set("ARCHIVE_URL", "sqlite:archive.db")
    }

    /// On a server of its own, with the archive in a schema of its own.
    #[cfg(all(feature = "redis", feature = "postgres"))]
    pub(crate) async fn redis_beside_postgres() -> Self {
        let server = redis::Server::start().await;
        let schema = Schema::new();
        let (url, archive) = (server.url(), schema.url());
        let place = Place {
            redis: Some(server),
            _schema: Some(schema),
            ..Place::new()
        };
        Self::new(place, url).set("ARCHIVE_URL", &archive)
    }

    /// Over a database of the test's own.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(super) fn over(url: String) -> Self {
        Self::new(Place::new(), url)
    }

    fn new(place: Place, store_url: String) -> Self {
        Self {
            place: Arc::new(place),
            store_url,
            settings: Vec::new(),
            starts: AtomicU32::new(0),
        }
    }

    /// An environment variable for the services that are started from here on.
    pub(super) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.to_owned()));
        self
    }

    pub(super) fn dir(&self) -> &Path {
        self.place.dir.path()
    }

    /// Whether what is recorded outlives the process.
    pub(super) fn is_durable(&self) -> bool {
        self.store_url != "memory:"
    }

    pub(super) async fn testbed(&self) -> Service {
        self.start("testbed").await
    }

    /// Starts a service and waits until it listens.
    pub(super) async fn start(&self, name: &'static str) -> Service {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let log = self.dir().join(format!("{name}-{start}.log"));
        let mut child = self
            .command(name)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("the service starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = timeout(PATIENCE, lines.next_line()).await;
        let address = line.ok().and_then(Result::ok).flatten().and_then(|line| {
            let address = line.strip_prefix("listening on http://")?;
            address.parse().ok()
        });
        let Some(address) = address else {
            panic!("{name} does not listen:\n{}", tail(&log));
        };
        Service {
            name,
            child,
            address,
            log,
            place: Arc::clone(&self.place),
        }
    }

    /// Starts a service that is expected to refuse its settings.
    pub(super) async fn refusal(&self, name: &'static str) -> Output {
        let output = self.command(name).output();
        let output = timeout(PATIENCE, output).await;
        let output = output.unwrap_or_else(|_| panic!("{name} runs with {:?}", self.settings));
        output.expect("the service starts")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(example(name));
        command
            .kill_on_drop(true)
            .current_dir(self.dir())
            .env_clear()
            .env("NO_COLOR", "1")
            .env("RUST_LOG", "info,sqlx=warn,axum_idempotency=debug")
            .env("BIND", "127.0.0.1:0")
            .env("STORE_URL", &self.store_url)
            .envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The binary of an example, beside the one of the tests.
pub(super) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("the test binary");
    let profile = tests.ancestors().nth(2).expect("target/PROFILE");
    let binary = profile.join("examples").join(name);
    let flag = match profile.file_name() {
        Some(name) if name == "release" => " --release",
        _ => "",
    };
    assert!(
        binary.exists(),
        "{} is missing: cargo build --all-features --examples{flag}",
        binary.display()
    );
    binary
}
