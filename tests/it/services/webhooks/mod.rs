//! The service that receives webhooks.

mod durable;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod held;
mod ids;
mod late;
mod once;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

use super::{
    Service, Site,
    http::{Answer, Request},
};

/// How a provider delivers.
#[derive(Clone, Copy, Debug)]
struct Hook {
    provider: &'static str,
    path: &'static str,
    /// The header with the id; else it is in the body.
    id_in: Option<&'static str>,
}

const STRIPE: Hook = Hook {
    provider: "stripe",
    path: "/webhooks/stripe",
    id_in: None,
};

const GITHUB: Hook = Hook {
    provider: "github",
    path: "/webhooks/github",
    id_in: Some("X-GitHub-Delivery"),
};

const STANDARD: Hook = Hook {
    provider: "standard",
    path: "/webhooks/standard",
    id_in: Some("webhook-id"),
};

const HOOKS: [Hook; 3] = [STRIPE, GITHUB, STANDARD];

impl Hook {
    /// A delivery of an event.
    fn deliver(self, service: &Service, id: &str) -> Request {
        match self.id_in {
            Some(_) => self
                .with_id(service, id)
                .json(&json!({"type": "order.paid"})),
            None => self
                .post(service)
                .json(&json!({"id": id, "type": "order.paid"})),
        }
    }

    /// The same without a body.
    fn with_id(self, service: &Service, id: &str) -> Request {
        let post = self.post(service);
        match self.id_in {
            Some(header) => post.header(header, id),
            None => post,
        }
    }

    fn post(self, service: &Service) -> Request {
        // A provider has no account here.
        service.post(self.path).anonymous()
    }

    /// What the service says of an event.
    async fn ask(self, service: &Service, id: &str) -> Answer {
        let encoded: Vec<_> = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let encoded = encoded.concat();
        let target = format!("/events/{}/{encoded}", self.provider);
        service.get(&target).anonymous().send().await
    }

    #[track_caller]
    fn is_told_as(self, told: &Answer, id: &str, state: &str) -> Value {
        assert_eq!(told.status, 200, "{told}");
        let told_of = told.json();
        assert_eq!(told_of["provider"], self.provider, "{told}");
        assert_eq!(told_of["id"], id, "{told}");
        assert_eq!(told_of["state"], state, "{told}");
        let processed = state == "completed";
        assert_eq!(told_of["processed"], processed, "{told}");
        let status = if processed { json!(200) } else { Value::Null };
        assert_eq!(told_of["status"], status, "{told}");
        for time in ["first_delivered_at", "remembered_until"] {
            assert!(super::is_time(&told_of[time]), "{time}: {told}");
        }
        told_of
    }
}

/// Where the service keeps its own tables; in memory nobody else can look.
fn database(site: &Site) -> Option<String> {
    match site.store_url.split_once(':') {
        Some(("memory", _)) => None,
        Some(("redis", _)) => Some(format!(
            "sqlite:{}",
            site.dir().join("archive.db").display()
        )),
        _ => Some(site.store_url.clone()),
    }
}

/// A witness who looks at the tables themselves.
enum Witness {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Witness {
    async fn of(site: &Site) -> Option<Self> {
        let url = database(site)?;
        Some(if url.starts_with("sqlite:") {
            Self::Sqlite(SqliteConnection::connect(&url).await.expect("the database"))
        } else {
            Self::Postgres(PgConnection::connect(&url).await.expect("the database"))
        })
    }

    async fn count(&mut self, sql: String) -> i64 {
        let sql = AssertSqlSafe(sql);
        let counted = match self {
            Self::Sqlite(database) => sqlx::query_scalar(sql).fetch_one(database).await,
            Self::Postgres(database) => sqlx::query_scalar(sql).fetch_one(database).await,
        };
        counted.expect("a count")
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    async fn run(&mut self, sql: &'static str) {
        let ran = match self {
            Self::Sqlite(database) => sqlx::raw_sql(sql).execute(database).await.map(drop),
            Self::Postgres(database) => sqlx::raw_sql(sql).execute(database).await.map(drop),
        };
        ran.expect("the database answers");
    }
}

/// How often an event was processed, if anybody can look.
async fn processed(site: &Site, hook: Hook, id: Option<&str>) -> Option<i64> {
    let mut witness = Witness::of(site).await?;
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let is_it = id.map_or("event_id IS NULL".to_owned(), |id| {
        format!("event_id = {}", quoted(id))
    });
    let count = format!(
        "SELECT count(*) FROM events WHERE provider = {} AND {is_it}",
        quoted(hook.provider)
    );
    Some(witness.count(count).await)
}

async fn is_processed(site: &Site, hook: Hook, id: &str, times: i64) {
    if let Some(count) = processed(site, hook, Some(id)).await {
        assert_eq!(count, times, "{} of {} in its table", id, hook.provider);
    }
}

#[track_caller]
fn ran(answer: &Answer) {
    assert_eq!(answer.status, 200, "{answer}");
    assert!(!answer.is_replay(), "nothing ran: {answer}");
    assert_eq!(answer.json(), json!({"received": true}), "{answer}");
}
