//! A store that cannot be reached: its database is locked by somebody else, or
//! its server does not answer.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::{Connection as _, SqliteConnection};
use tokio::time::sleep;

use super::{Service, Site, eventually, http::Waiting, ulid, until};
#[cfg(feature = "postgres")]
use crate::support::postgres::{Proxy, Schema};

/// The named tests, once over each store that can be out of reach.
macro_rules! on_stores_that_fail {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Outage::sqlite()).await;
            })*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Outage::postgres()).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Outage::redis().await).await;
            })*
        }
    };
}

on_stores_that_fail!(
    closed_nothing_runs_until_the_store_is_back,
    a_store_that_stalls_takes_no_lease_away,
    open_the_handler_runs_without_protection,
);

/// A site whose store can be put out of reach.
struct Outage {
    site: Site,
    cause: Cause,
}

enum Cause {
    /// Somebody else is writing.
    Lock(Option<SqliteConnection>),
    /// The server does not answer.
    #[cfg(feature = "postgres")]
    Silence { proxy: Proxy, _schema: Schema },
    /// The site's own server does not answer.
    #[cfg(feature = "redis")]
    Pause,
}

impl Outage {
    fn sqlite() -> Self {
        Self {
            site: Site::sqlite(),
            cause: Cause::Lock(None),
        }
    }

    #[cfg(feature = "postgres")]
    fn postgres() -> Self {
        let schema = Schema::new();
        let proxy = Proxy::before(&schema.url());
        Self {
            site: Site::over(proxy.url()),
            cause: Cause::Silence {
                proxy,
                _schema: schema,
            },
        }
    }

    #[cfg(feature = "redis")]
    async fn redis() -> Self {
        Self {
            site: Site::redis().await,
            cause: Cause::Pause,
        }
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.site = self.site.set(name, value);
        self
    }

    async fn testbed(&self) -> Service {
        self.site.testbed().await
    }

    /// The site's own server.
    #[cfg(feature = "redis")]
    fn server(&self) -> &crate::support::redis::Server {
        self.site.place.redis.as_ref().expect("a server")
    }

    async fn begin(&mut self) {
        match &mut self.cause {
            Cause::Lock(lock) => {
                let connected = SqliteConnection::connect(&self.site.store_url).await;
                let connection = lock.insert(connected.expect("a connection"));
                run(connection, "BEGIN IMMEDIATE").await;
            }
            #[cfg(feature = "postgres")]
            Cause::Silence { proxy, .. } => proxy.stall(),
            #[cfg(feature = "redis")]
            Cause::Pause => self.server().pause().await,
        }
    }

    async fn end(&mut self) {
        match &mut self.cause {
            Cause::Lock(lock) => run(lock.as_mut().expect("begun"), "COMMIT").await,
            #[cfg(feature = "postgres")]
            Cause::Silence { proxy, .. } => proxy.resume(),
            #[cfg(feature = "redis")]
            Cause::Pause => self.server().resume().await,
        }
    }
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(connection).await;
    done.expect("the statement runs");
}

async fn closed_nothing_runs_until_the_store_is_back(mut outage: Outage) {
    let service = outage.testbed().await;
    let key = ulid();
    let request = service.post("/echo").key(&key).body("charge");
    outage.begin().await;
    let refused = request.send().await;
    let problem = refused.problem(503, "idempotency_store_unavailable");
    assert_eq!(problem["retry"], "same-key-later");
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused}");
    outage.end().await;
    let first = runs(&service, &key).await;
    assert_eq!(first, 1, "the first attempt never ran");
}

/// The claim that was refused leaves nothing behind that would block the key.
async fn runs(service: &Service, key: &str) -> u64 {
    let request = service.post("/echo").key(key).body("charge");
    let answered = async || {
        let answer = request.send().await;
        (answer.status == 200).then(|| answer.json()["execution"].as_u64().expect("a count"))
    };
    until("the key is free again", answered).await
}

/// Completions and renewals of the same leases wait for the store together.
async fn a_store_that_stalls_takes_no_lease_away(outage: Outage) {
    let mut outage = outage.set("LEASE", "3s");
    let service = outage.testbed().await;
    let mut running = Vec::new();
    for _ in 0..20 {
        let request = service.post("/echo?delay_ms=900").key(&ulid());
        running.push(request.begin().await);
    }
    eventually("all requests run", async || service.total().await == 20).await;
    // Handlers end after 0.9 s, leases are renewed after 1 s.
    outage.begin().await;
    sleep(Duration::from_millis(1_300)).await;
    outage.end().await;
    for answer in join_all(running.into_iter().map(Waiting::answer)).await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.json()["attempt"], 1, "{answer}");
    }
    let log = std::fs::read_to_string(&service.log).expect("the log");
    assert!(!log.contains("lease lost"), "a false alarm: {log}");
}

async fn open_the_handler_runs_without_protection(outage: Outage) {
    let mut outage = outage.set("STORE_DOWN", "open").set("LEASE", "1s");
    let service = outage.testbed().await;
    let key = ulid();
    let request = service.post("/echo").key(&key).body("charge");
    outage.begin().await;
    let waiting = request.begin().await;
    service.has_logged("running without protection").await;
    // The effect may be in the same database.
    outage.end().await;
    let answer = waiting.answer().await.expect("an answer");
    assert_eq!(answer.status, 200, "{answer}");
    assert!(!answer.is_replay(), "{answer}");
    assert_eq!(service.executions(&key).await, 1);
}
