//! Where the services' own tables are: with the archive, else in memory.

use futures_util::future::join_all;
use serde_json::json;

use super::over;
use crate::{
    services::{Site, ulid},
    support::redis::Server,
};

/// Processes that start together on an archive that is not there yet.
async fn starts_together(site: Site) {
    let services = join_all((0..4).map(|_| site.start("charges"))).await;
    let key = ulid();
    let body = json!({"amount": 4500, "currency": "gbp", "client_reference": "o-1"});
    let charge = services[0].post("/v1/charges").key(&key).json(&body);
    let made = charge.send().await;
    assert_eq!(made.status, 201, "{made}");
    for service in &services {
        let charge = service.post("/v1/charges").key(&key).json(&body);
        charge.send().await.must_replay(&made);
        let found = service.get("/v1/charges?client_reference=o-1").send().await;
        assert_eq!(found.json(), json!([made.json()]));
        let duplicate = service.post("/v1/charges").key(&ulid()).json(&body);
        assert_eq!(duplicate.send().await.status, 409, "one charge a reference");
    }
}

#[tokio::test]
async fn processes_may_start_together_on_an_archive_in_sqlite() {
    starts_together(Site::redis().await).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn processes_may_start_together_on_an_archive_in_postgres() {
    starts_together(Site::redis_beside_postgres().await).await;
}

/// Two processes have each their own tables then, and one store.
#[tokio::test]
async fn without_an_archive_in_sql_the_tables_are_in_memory() {
    let server = Server::start().await;
    for archive in ["none", "memory:", ""] {
        let site = over(&server).set("ARCHIVE_URL", archive);
        let (one, other) = tokio::join!(site.testbed(), site.testbed());
        let key = ulid();
        let first = one.post("/echo").key(&key).body("charge").send().await;
        assert_eq!(first.json()["execution"], 1, "{first}");
        let repeat = other.post("/echo").key(&key).body("charge").send().await;
        repeat.must_replay(&first);
        assert_eq!(one.executions(&key).await, 1);
        assert_eq!(other.executions(&key).await, 0);
        let files = std::fs::read_dir(site.dir()).expect("the directory");
        let names = files.map(|file| file.expect("a file").file_name());
        let databases = names.filter(|name| name.to_string_lossy().contains(".db"));
        assert_eq!(databases.count(), 0, "a database beside {archive:?}");
    }
}
