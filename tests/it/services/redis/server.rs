//! A Redis server of a test's own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use redis::{AsyncCommands as _, RedisResult, Script, aio::MultiplexedConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::services::until;

/// Ends, with its files, when the value is dropped, or the tests end.
pub(in crate::services) struct Server {
    dir: TempDir,
    settings: Vec<String>,
    port: u16,
    process: Option<Process>,
}

struct Process {
    /// Ends the server when its standard input ends.
    leash: Child,
    id: u32,
}

impl Server {
    /// It keeps nothing on disk.
    pub(in crate::services) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// What it has acknowledged survives a crash.
    pub(super) async fn durable() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    /// A cluster of one node, which holds all slots.
    pub(super) async fn cluster() -> Self {
        let settings = ["--cluster-enabled", "yes"];
        let announced = ["--cluster-announce-ip", "127.0.0.1"];
        let node = Self::with(&[settings, announced].concat()).await;
        let mut connection = node.connection().await.expect("a connection");
        let mut take_slots = redis::cmd("CLUSTER");
        take_slots.arg("ADDSLOTSRANGE").arg(0).arg(16_383);
        let taken: RedisResult<()> = take_slots.query_async(&mut connection).await;
        taken.expect("slots for a new node");
        until("the cluster is up", async || {
            let mut info = redis::cmd("CLUSTER");
            let info: String = info.arg("INFO").query_async(&mut connection).await.ok()?;
            info.contains("cluster_state:ok").then_some(())
        })
        .await;
        node
    }

    /// With settings as on the command line.
    pub(super) async fn with(settings: &[&str]) -> Self {
        let mut server = Self {
            dir: TempDir::new().expect("a directory"),
            settings: settings.iter().map(ToString::to_string).collect(),
            port: free_port(),
            process: None,
        };
        server.restart().await;
        server
    }

    pub(in crate::services) fn url(&self) -> String {
        format!("redis://{}", self.place())
    }

    /// Host and port.
    pub(super) fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// As `kill -9` does it.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it where it was.
    pub(super) async fn restart(&mut self) {
        self.kill();
        let log = self.dir.path().join("server.log");
        let mut leash = Command::new("/bin/sh")
            .args(["-c", LEASHED])
            .arg(&log)
            .args(["redis-server", "--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(self.dir.path())
            .args(&self.settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut id = String::new();
        let told = BufReader::new(leash.stdout.take().expect("its output")).read_line(&mut id);
        told.expect("the id of the server");
        let id = id.trim().parse().expect("the id of the server");
        self.process = Some(Process { leash, id });
        let log = || fs::read_to_string(&log).unwrap_or_default();
        let its_id = format!("process_id:{id}\r\n");
        until("Redis serves", async || {
            for failure in ["Failed listening", "not found"] {
                assert!(!log().contains(failure), "Redis does not start: {}", log());
            }
            let mut connection = self.connection().await.ok()?;
            let info = redis::cmd("INFO").query_async(&mut connection).await;
            let info: String = info.ok()?;
            (info.contains(&its_id) && info.contains("loading:0")).then_some(())
        })
        .await;
    }

    /// From here on it answers nobody, but every connection stays.
    pub(in crate::services) fn pause(&self) {
        self.signal("STOP");
    }

    pub(in crate::services) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("a server that runs").id;
        let sent = Command::new("kill")
            .args(["-s", name, &id.to_string()])
            .status();
        assert!(sent.expect("kill").success(), "SIG{name} not sent");
    }

    /// Lets pass the minute for which Redis keeps a completed record after it
    /// has expired, and waits until at least one was dropped.
    pub(in crate::services) async fn has_dropped_one(&self) {
        let mut connection = self.connection().await.expect("a connection");
        until("a completed record has expired", async || {
            let dropped: RedisResult<u64> = Script::new(DROP_EXPIRED)
                .invoke_async(&mut connection)
                .await;
            (dropped.expect("the script runs") > 0).then_some(())
        })
        .await;
    }

    /// Loses all, as a server without persistence does when it is restarted.
    pub(super) async fn lose_everything(&self) {
        let mut connection = self.connection().await.expect("a connection");
        let lost: RedisResult<()> = redis::cmd("FLUSHALL").query_async(&mut connection).await;
        lost.expect("it is empty");
    }

    /// Whether a completed record holds the text.
    pub(in crate::services) async fn holds(&self, text: &str) -> bool {
        let mut connection = self.connection().await.expect("a connection");
        let keys: RedisResult<Vec<String>> = connection.keys("idem:v1:*").await;
        for key in keys.expect("the keys") {
            let record: RedisResult<Vec<u8>> = connection.get(key).await;
            let record = record.expect("a completed record");
            if record
                .windows(text.len())
                .any(|part| part == text.as_bytes())
            {
                return true;
            }
        }
        false
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.leash.stdin.take());
        let _gone = self.leash.wait();
    }
}

/// None of those that the kernel gives to outgoing connections.
fn free_port() -> u16 {
    loop {
        let [low, high, ..] = Uuid::new_v4().into_bytes();
        let port = 20_000 + u16::from_le_bytes([low, high]) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Runs the server until the standard input ends.
const LEASHED: &str = r#"
"$@" >>"$0" 2>&1 </dev/null &
echo $!
read -r _
kill -9 $!
wait $! 2>/dev/null
"#;

/// In progress a record is a hash, completed a string.
const DROP_EXPIRED: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local dropped = 0
for _, key in ipairs(redis.call('KEYS', 'idem:v1:*')) do
  local is_completed = redis.call('TYPE', key).ok == 'string'
  if is_completed and redis.call('PEXPIRETIME', key) - 60000 < now then
    dropped = dropped + redis.call('DEL', key)
  end
end
return dropped
";
