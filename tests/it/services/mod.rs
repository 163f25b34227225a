//! The example services as processes of their own, asked over real sockets.
//!
//! A test polls what can be observed, with a deadline; real time passes only
//! where a lease or a TTL of the service has to run out.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use self::{
    http::{Answer, Request},
    site::Place,
};

/// The named tests, once over each store.
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::memory()).await;
            })*
        }

        on_every_durable_store!($($test),*);
    };
}

/// The named tests, once over each store that outlives its processes and may
/// be shared by several.
macro_rules! on_every_durable_store {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::sqlite()).await;
            })*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::postgres()).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::redis().await).await;
            })*
        }
    };
}

/// The named tests once more over Redis, with the archive in PostgreSQL.
macro_rules! on_redis_beside_postgres {
    ($($test:ident),* $(,)?) => {
        #[cfg(all(feature = "redis", feature = "postgres"))]
        mod redis_beside_postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::services::Site::redis_beside_postgres().await).await;
            })*
        }
    };
}

mod charges;
mod charges_together;
mod crashes;
mod hang_ups;
mod http;
mod keys;
mod late;
mod limits;
mod metrics;
mod outage;
#[cfg(feature = "postgres")]
mod postgres;
mod processes;
mod races;
#[cfg(feature = "redis")]
mod redis;
mod replies;
mod restarts;
mod settings;
mod shutdown;
mod site;
mod torture;
mod webhooks;
#[cfg(feature = "sqlite")]
mod work;

pub(crate) use self::site::Site;

/// A process of a service. Killed when it is dropped.
struct Service {
    name: &'static str,
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    /// It may outlive its site.
    place: Arc<Place>,
}

impl Service {
    fn post(&self, target: &str) -> Request {
        Request::new(self.address, "POST", target)
    }

    fn get(&self, target: &str) -> Request {
        Request::new(self.address, "GET", target)
    }

    /// How often the effect happened under a key of the default tenant.
    async fn executions(&self, key: &str) -> u64 {
        let counted = self.get(&format!("/executions?key={key}")).send().await;
        counted.json()["count"].as_u64().expect("a count")
    }

    /// How often any effect happened.
    async fn total(&self) -> u64 {
        let counted = self.get("/executions").send().await;
        counted.json()["total"].as_u64().expect("a total")
    }

    /// Waits until the handler has had its effect so often under the key.
    async fn has_executed(&self, key: &str, times: u64) {
        let what = format!("{key} executed {times} times");
        eventually(&what, async || self.executions(key).await == times).await;
    }

    /// Waits until the service has logged this.
    async fn has_logged(&self, text: &str) {
        let log = || fs::read_to_string(&self.log).unwrap_or_default();
        let what = format!("{} logged {text:?}", self.name);
        eventually(&what, async || log().contains(text)).await;
    }

    /// Waits until the service has noticed that a client hung up.
    async fn has_noticed_a_hang_up(&self) {
        self.has_logged("the client hung up").await;
    }

    /// As `kill -9` does it: nothing is cleaned up.
    async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Sends a signal, such as `TERM`.
    async fn signal(&self, name: &str) {
        let pid = self.pid();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status();
        assert!(sent.await.expect("a shell").success(), "SIG{name} not sent");
    }

    /// Waits for the exit status.
    async fn exit_code(mut self) -> Option<i32> {
        let exited = timeout(PATIENCE, self.child.wait()).await;
        let exited = exited.unwrap_or_else(|_| panic!("{} does not exit", self.name));
        exited.expect("an exit status").code()
    }

    /// Stops cleanly.
    async fn stop(self) {
        self.signal("TERM").await;
        assert_eq!(self.exit_code().await, Some(0), "a clean stop");
    }

    /// The most memory the process has held, in KiB.
    fn peak_memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
        peak.and_then(|peak| peak.parse().ok()).expect("VmHWM")
    }

    fn pid(&self) -> u32 {
        self.child.id().expect("a process that runs")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The child itself is killed on drop.
        if std::thread::panicking() {
            eprintln!("{} at {}:\n{}", self.name, self.address, tail(&self.log));
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Asks again and again, until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "still not: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Asks again and again, until it is so.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}

/// Repeats a request for as long as the first one is in progress.
async fn settled(request: &Request) -> Answer {
    let settled = async || {
        let answer = request.send().await;
        (answer.code() != Some("idempotency_request_in_progress".to_owned())).then_some(answer)
    };
    until("the request is no longer in progress", settled).await
}

/// A key that tells its age: just now.
fn ulid() -> String {
    ulid::Ulid::generate().to_string()
}

fn is_time(value: &Value) -> bool {
    let time = value
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok());
    time.is_some()
}

/// Within this, everything has to come to an end: nothing hangs.
const PATIENCE: Duration = Duration::from_secs(30);

const LOG_LINES: usize = 40;
