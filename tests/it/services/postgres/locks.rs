//! Somebody holds the table locked, as a change to it does.

use sqlx::{Connection as _, PgConnection};

use crate::services::{Service, Site, settled, ulid};

async fn run(connection: &mut PgConnection, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(connection).await;
    done.expect("the statement runs");
}

/// A lock of the table is no word about any key: the store is out of reach.
#[tokio::test]
async fn while_the_table_is_locked_nothing_runs_and_afterwards_everything_does_once() {
    let site = Site::postgres();
    let service = site.testbed().await;
    let connected = PgConnection::connect(&site.store_url).await;
    let mut lock = connected.expect("a connection");
    let request = |service: &Service, key: &str| service.post("/echo").key(key).body("charge");
    let known = ulid();
    let first = request(&service, &known).send().await;
    run(&mut lock, "BEGIN; LOCK TABLE idempotency_keys").await;
    let fresh = ulid();
    for key in [&fresh, &known] {
        let refused = request(&service, key).send().await;
        refused.problem(503, "idempotency_store_unavailable");
        assert_eq!(refused.header("retry-after"), Some("1"), "{refused}");
    }
    assert_eq!(service.executions(&fresh).await, 0);
    run(&mut lock, "COMMIT").await;
    let answer = settled(&request(&service, &fresh)).await;
    assert_eq!(answer.json()["execution"], 1, "{answer}");
    assert_eq!(answer.json()["attempt"], 1, "{answer}");
    settled(&request(&service, &known))
        .await
        .must_replay(&first);
}
