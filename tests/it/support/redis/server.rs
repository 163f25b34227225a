//! A Redis server of a test's own.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{cli, programs::Programs};
use crate::support::servers::{
    Patience, aside,
    daemon::Daemon,
    home::Home,
    port,
    processes::{children_of, is_stopped, signal},
    until,
};

/// A server that a test may kill, restart, pause and replicate. It keeps nothing
/// on disk and evicts nothing unless told otherwise, and ends, with its files,
/// when the value is dropped.
pub(crate) struct Server {
    home: Arc<Home>,
    programs: Programs,
    arguments: Vec<String>,
    port: u16,
    /// Of the node of a cluster, the port that other nodes talk to.
    bus: Option<u16>,
    /// Of a replica, the port of its master.
    master: Option<u16>,
    process: Option<Daemon>,
    is_paused: AtomicBool,
}

/// What a server is before it has a port.
pub(super) struct Plan<'a> {
    pub programs: Programs,
    pub arguments: &'a [&'a str],
    pub is_node: bool,
    pub master: Option<u16>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With arguments as of `redis-server`: `--maxmemory 4mb` is two of them.
    pub(crate) async fn with(arguments: &[&str]) -> Self {
        Self::planned(Plan {
            programs: Programs::any(),
            arguments,
            is_node: false,
            master: None,
        })
        .await
    }

    /// A Valkey server, where one is installed.
    pub(crate) async fn valkey() -> Option<Self> {
        let plan = Plan {
            programs: Programs::valkey()?,
            arguments: &[],
            is_node: false,
            master: None,
        };
        Some(Self::planned(plan).await)
    }

    /// A replica of a server, once it follows. Killed and restarted it is one
    /// again.
    pub(crate) async fn replica_of(master: &Self) -> Self {
        let plan = Plan {
            programs: master.programs.clone(),
            arguments: &[],
            is_node: false,
            master: Some(master.port),
        };
        let replica = Self::planned(plan).await;
        let patience = Patience::for_it("the replica follows");
        while !replica.follows().await {
            patience.a_moment().await;
        }
        replica
    }

    pub(super) async fn planned(plan: Plan<'_>) -> Self {
        let mut server = Self {
            home: Arc::new(Home::new()),
            programs: plan.programs,
            arguments: plan.arguments.iter().map(ToString::to_string).collect(),
            port: 0,
            bus: None,
            master: plan.master,
            process: None,
            is_paused: AtomicBool::new(false),
        };
        let mut refusal = String::new();
        for _ in 0..port::TRIED {
            server.port = port::free();
            // By default it is above the first by 10,000, where the kernel may
            // have given it to a connection.
            server.bus = plan.is_node.then(port::free);
            match server.launch().await {
                Ok(()) => return server,
                Err(log) => refusal = log,
            }
        }
        panic!("Redis does not start:\n{refusal}");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.place())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether it runs and is not paused.
    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some() && !self.is_paused.load(Ordering::SeqCst)
    }

    /// Ends it at once, with `kill -9`, as a crash does. What it wrote is not
    /// lost.
    pub(crate) async fn kill(&mut self) {
        self.end("KILL").await;
    }

    /// Starts it again where it was, with its files, after a kill, or after a
    /// clean stop.
    pub(crate) async fn restart(&mut self) {
        if self.process.is_some() {
            // A paused one would not hear.
            self.resume().await;
            self.end("TERM").await;
        }
        if let Err(log) = self.launch().await {
            panic!("Redis does not start again:\n{log}");
        }
    }

    /// From here on it answers nobody, but every connection stays.
    pub(crate) async fn pause(&self) {
        let process = self.process();
        self.is_paused.store(true, Ordering::SeqCst);
        aside(move || signal("STOP", &[process])).await;
        until("the server stops", || is_stopped(process)).await;
    }

    /// After a pause, it goes on as if nothing had been.
    pub(crate) async fn resume(&self) {
        let process = self.process();
        aside(move || signal("CONT", &[process])).await;
        self.is_paused.store(false, Ordering::SeqCst);
    }

    /// A replica is a master from here on, with what it has got so far.
    pub(crate) async fn promote(&mut self) {
        self.master = None;
        self.cli(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// It is a replica from here on that hears nothing of its master, for nobody
    /// listens there; with what it has got so far.
    pub(crate) async fn loses_its_master(&self, nobody: u16) {
        let nobody = nobody.to_string();
        self.cli(&["REPLICAOF", HOST, &nobody]).await;
    }

    /// What `redis-cli` prints for a command that succeeds.
    pub(crate) async fn cli(&self, command: &[&str]) -> String {
        let answer = self.try_cli(command).await;
        answer.unwrap_or_else(|complaint| panic!("{command:?}: {complaint}"))
    }

    pub(crate) async fn try_cli(&self, command: &[&str]) -> Result<String, String> {
        let port = self.port.to_string();
        let to_here = ["-e", "-h", HOST, "-p", &port];
        cli::run(&self.programs.cli, to_here.iter().chain(command)).await
    }

    /// Waits until a replica has all that was written here by now.
    pub(crate) async fn is_followed_by(&self, replica: &Self) {
        let offset = async |server: &Self, name: &str| {
            let told = server.info("replication").await;
            told.get(name).and_then(|offset| offset.parse::<u64>().ok())
        };
        let written = offset(self, "master_repl_offset").await;
        let patience = Patience::for_it("the replica has what its master has");
        while offset(replica, "slave_repl_offset").await < written {
            patience.a_moment().await;
        }
    }

    /// What it tells about itself, of one section.
    pub(crate) async fn info(&self, section: &str) -> HashMap<String, String> {
        let text = self.cli(&["INFO", section]).await;
        fields(&text)
    }

    /// How often it was given a command, since it started. The command of a
    /// command is joined to it: `cluster|nodes`.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let counts = self.info("commandstats").await;
        let name = format!("cmdstat_{}", command.to_ascii_lowercase());
        // `calls=3,usec=7,...`
        let calls = counts.get(&name).and_then(|count| count.split(',').next());
        let calls = calls.and_then(|calls| calls.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse().expect("a count"))
    }

    /// Whether it is a replica that has all its master has.
    pub(super) async fn follows(&self) -> bool {
        let replication = self.try_cli(&["INFO", "replication"]).await;
        let replication = fields(&replication.unwrap_or_default());
        replication.get("master_link_status").map(String::as_str) == Some("up")
    }

    /// Host and port.
    pub(crate) fn place(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    pub(super) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Starts it, and waits until it takes connections. Otherwise the result is
    /// what it said.
    async fn launch(&mut self) -> Result<(), String> {
        let home = Arc::clone(&self.home);
        let (program, arguments) = (self.programs.server.clone(), self.all_arguments());
        let mut server = aside(move || Daemon::start(&home, &program, arguments)).await;
        let mut exit = None;
        until("Redis is ready or has given up", || {
            exit = server.exit();
            exit.is_some() || server.log().contains("Ready to accept connections")
        })
        .await;
        if exit.is_some() {
            return Err(server.log());
        }
        self.process = Some(server);
        Ok(())
    }

    fn all_arguments(&self) -> Vec<String> {
        let mut all = vec!["--port".to_owned(), self.port.to_string()];
        all.extend(DEFAULTS.map(str::to_owned));
        if let Some(bus) = self.bus {
            all.extend(["--cluster-port".to_owned(), bus.to_string()]);
        }
        if let Some(master) = self.master {
            let master = [HOST.to_owned(), master.to_string()];
            all.push("--replicaof".to_owned());
            all.extend(master);
        }
        all.extend_from_slice(&self.arguments);
        all
    }

    /// Ends it by a signal, and at once whom it has made to write files or to
    /// copy itself to replicas.
    async fn end(&mut self, name: &'static str) {
        let server = self.process.take().expect("a server that runs");
        self.is_paused.store(false, Ordering::SeqCst);
        aside(move || end(server, name)).await;
    }

    fn process(&self) -> u32 {
        self.process.as_ref().expect("a server that runs").id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(server) = self.process.take() {
            end(server, "KILL");
        }
    }
}

fn end(server: Daemon, name: &str) {
    let children = children_of(server.id());
    server.end(name);
    signal("KILL", &children);
}

/// Lines such as `name:value`, between headings.
pub(super) fn fields(text: &str) -> HashMap<String, String> {
    let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

const HOST: &str = "127.0.0.1";

/// Nothing on disk, nothing evicted, and a replica that need not wait for others
/// to be copied with.
const DEFAULTS: [&str; 10] = [
    "--bind",
    HOST,
    "--save",
    "",
    "--appendonly",
    "no",
    "--maxmemory-policy",
    "noeviction",
    "--repl-diskless-sync-delay",
    "0",
];
