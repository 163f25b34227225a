//! A PostgreSQL server of a test's own.

use std::fs;

use super::address::Address;
use crate::support::servers::{
    daemon::Daemon,
    home::Home,
    port,
    processes::{children_of, is_gone, is_stopped, signal},
    programs, until,
};

/// A server that a test may kill, restart and pause, with PostgreSQL's own
/// defaults, `fsync = on` among them. It ends, with its files, when the value is
/// dropped.
///
/// It takes most of a second to make; for a test that does nothing to the
/// server itself there is [`Database`](super::Database).
pub(crate) struct Cluster {
    home: Home,
    settings: Vec<String>,
    port: u16,
    server: Option<Daemon>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With settings as in `postgresql.conf`.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let settings = settings
            .iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let mut cluster = Self {
            home: Home::new(),
            settings: settings.collect(),
            port: 0,
            server: None,
        };
        cluster.initialize().await;
        let mut refusal = String::new();
        for _ in 0..port::TRIED {
            cluster.port = port::free();
            match cluster.launch().await {
                Ok(()) => return cluster,
                Err(log) => refusal = log,
            }
        }
        panic!("PostgreSQL does not start:\n{refusal}");
    }

    /// As the superuser.
    pub(crate) fn url(&self) -> String {
        Address::local(self.port).to_string()
    }

    /// Ends the server and all its backends at once, with `kill -9`, as a crash
    /// of the machine does; but what was written and never synced is not lost.
    pub(crate) async fn kill(&mut self) {
        // A postmaster that is stopped neither starts another backend nor
        // sends the others home.
        self.stop_postmaster().await;
        let mut server = self.server.take().expect("a server that runs");
        let backends = children_of(server.id());
        signal("KILL", &backends);
        signal("KILL", &[server.id()]);
        server.gone();
        until("the backends are gone", || {
            backends.iter().copied().all(is_gone)
        })
        .await;
        self.forget_what_a_crash_takes_along();
    }

    /// Starts it again where it was, after a kill, or after a clean stop.
    pub(crate) async fn restart(&mut self) {
        self.end("INT");
        if let Err(log) = self.launch().await {
            panic!("PostgreSQL does not start again:\n{log}");
        }
    }

    /// From here on it answers nobody, but every connection stays.
    pub(crate) async fn pause(&mut self) {
        self.stop_postmaster().await;
        let backends = children_of(self.postmaster());
        signal("STOP", &backends);
        until("the backends stop", || {
            backends.iter().copied().all(is_stopped)
        })
        .await;
    }

    /// After a pause, it goes on as if nothing had been.
    pub(crate) fn resume(&mut self) {
        wake(self.postmaster());
    }

    async fn initialize(&self) {
        let arguments = [
            "--pgdata=data",
            "--no-sync",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
        ];
        let mut initdb = Daemon::start(&self.home, &programs::find("initdb"), arguments);
        let mut exit = None;
        until("initdb has made a cluster", || {
            exit = initdb.exit();
            exit.is_some()
        })
        .await;
        let is_made = exit.is_some_and(|exit| exit.success());
        assert!(is_made, "initdb fails:\n{}", initdb.log());
    }

    /// Starts the server, and waits until it takes connections. Otherwise the
    /// result is what the server said.
    async fn launch(&mut self) -> Result<(), String> {
        let port = format!("--port={}", self.port);
        // With shared memory in files nothing is left outside of the home.
        let fixed = [
            "-D",
            "data",
            &port,
            "--listen_addresses=127.0.0.1",
            "--unix_socket_directories=",
            "--dynamic_shared_memory_type=mmap",
        ];
        let arguments = fixed
            .into_iter()
            .chain(self.settings.iter().map(String::as_str));
        let mut server = Daemon::start(&self.home, &programs::find("postgres"), arguments);
        let mut exit = None;
        until("PostgreSQL is ready or has given up", || {
            exit = server.exit();
            exit.is_some() || self.is_ready(server.id())
        })
        .await;
        if exit.is_some() {
            return Err(server.log());
        }
        self.server = Some(server);
        Ok(())
    }

    /// As the server itself says, for somebody else may listen on the port.
    fn is_ready(&self, postmaster: u32) -> bool {
        let lines = self.lock_file();
        let line = |number: usize| lines.get(number - 1).map(|line| line.trim());
        line(1) == Some(&postmaster.to_string()) && line(8) == Some("ready")
    }

    /// With the machine its shared memory and every process id would be gone.
    /// Here a new process might have the id in the lock file, which would keep
    /// the next server from starting.
    fn forget_what_a_crash_takes_along(&self) {
        // The seventh line is the key and the id of the shared memory.
        let lines = self.lock_file();
        let id = lines.get(6).and_then(|line| line.split_whitespace().nth(1));
        if let Some(id) = id {
            let removed = self.home.command("ipcrm").args(["-m", id]).status();
            assert!(removed.expect("ipcrm runs").success(), "shared memory {id}");
        }
        fs::remove_file(self.home.path().join(LOCK_FILE)).expect("a lock file");
    }

    fn lock_file(&self) -> Vec<String> {
        let text = fs::read_to_string(self.home.path().join(LOCK_FILE)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Ends the server by a signal, if it runs.
    fn end(&mut self, name: &str) {
        if let Some(server) = self.server.take() {
            // A paused one would not hear.
            wake(server.id());
            server.end(name);
        }
    }

    async fn stop_postmaster(&self) {
        let postmaster = self.postmaster();
        signal("STOP", &[postmaster]);
        until("the postmaster stops", || is_stopped(postmaster)).await;
    }

    fn postmaster(&self) -> u32 {
        self.server.as_ref().expect("a server that runs").id()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end("QUIT");
    }
}

fn wake(postmaster: u32) {
    signal("CONT", &children_of(postmaster));
    signal("CONT", &[postmaster]);
}

const LOCK_FILE: &str = "data/postmaster.pid";
