//! The worker on a table as its queue, killed again and again.

use std::{collections::HashMap, process::Stdio, time::Duration};

use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::{
    services::{PATIENCE, eventually, site::example},
    support::postgres::Schema,
};

/// The queue, and where its workers are started.
struct Queue {
    schema: Schema,
    pool: PgPool,
}

impl Queue {
    async fn open() -> Self {
        let schema = Schema::new();
        let pool = PgPoolOptions::new().max_connections(2);
        let pool = pool
            .connect(&schema.url())
            .await
            .expect("the server is there");
        let tables = include_str!("../../../../examples/worker/sql/schema.sql");
        sqlx::raw_sql(tables)
            .execute(&pool)
            .await
            .expect("tables of its own");
        Self { schema, pool }
    }

    /// Sends a message, as its producer does: once or more often.
    async fn send(&self, id: &str, amount: i64) {
        let message = sqlx::query("INSERT INTO payout_queue (message_id, amount) VALUES ($1, $2)");
        let sent = message.bind(id).bind(amount).execute(&self.pool).await;
        sent.expect("a message in the queue");
    }

    async fn waiting(&self) -> i64 {
        self.count("SELECT count(*) FROM payout_queue").await
    }

    async fn count(&self, sql: &'static str) -> i64 {
        let counted = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&self.pool)
            .await;
        counted.expect("a count")
    }

    /// How often each message was paid out.
    async fn payouts(&self) -> HashMap<String, i64> {
        let paid = "SELECT message_id, count(*) FROM payouts_made GROUP BY message_id";
        let paid: Vec<(String, i64)> = sqlx::query_as(paid)
            .fetch_all(&self.pool)
            .await
            .expect("the payouts");
        paid.into_iter().collect()
    }

    async fn worker(&self) -> Child {
        let mut child = Command::new(example("worker"))
            .kill_on_drop(true)
            .env_clear()
            .env("STORE_URL", self.schema.url())
            .env("LEASE", "1s")
            .env("WORKERS", "4")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the worker starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("a line");
        assert_eq!(line.expect("its output").as_deref(), Some("working"));
        child
    }
}

#[tokio::test]
async fn workers_killed_at_random_pay_every_message_out_once() {
    let queue = Queue::open().await;
    let mut workers = vec![queue.worker().await, queue.worker().await];
    let ids: Vec<_> = (0..MESSAGES)
        .map(|number| format!("payout-{number}"))
        .collect();
    for (number, id) in ids.iter().enumerate() {
        queue.send(id, 100).await;
        // Every third was sent twice.
        if number % 3 == 0 {
            queue.send(id, 100).await;
        }
        if number % 40 == 39 {
            // Whatever it is at in this moment.
            sleep(Duration::from_millis(u64::from(rand_byte()))).await;
            let mut killed = workers.remove(0);
            killed.kill().await.expect("killed");
            workers.push(queue.worker().await);
        }
    }
    for _ in 0..4 {
        sleep(Duration::from_millis(u64::from(rand_byte()))).await;
        let mut killed = workers.remove(0);
        killed.kill().await.expect("killed");
        workers.push(queue.worker().await);
    }
    eventually("the queue is empty", async || queue.waiting().await == 0).await;
    let payouts = queue.payouts().await;
    let lost: Vec<_> = ids.iter().filter(|id| !payouts.contains_key(*id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let twice: Vec<_> = payouts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "paid out more than once: {twice:?}");
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_finishes_what_it_does() {
    let queue = Queue::open().await;
    let mut worker = queue.worker().await;
    for number in 0..50 {
        queue.send(&format!("payout-{number}"), 100).await;
    }
    let pid = worker.id().expect("a process that runs");
    let told = Command::new("sh")
        .args(["-c", &format!("kill -TERM {pid}")])
        .status();
    assert!(told.await.expect("a shell").success(), "SIGTERM not sent");
    let exited = timeout(PATIENCE, worker.wait()).await.expect("it exits");
    assert!(exited.expect("an exit status").success(), "a clean stop");
    let left = "SELECT count(*) FROM idempotency_keys WHERE status_code IS NULL";
    assert_eq!(
        queue.count(left).await,
        0,
        "messages were left in the middle"
    );
    let payouts = queue.payouts().await.len();
    let waiting = usize::try_from(queue.waiting().await).expect("a count");
    assert_eq!(
        payouts + waiting,
        50,
        "a message is neither paid out nor waiting"
    );
}

fn rand_byte() -> u8 {
    uuid::Uuid::new_v4().as_bytes()[0]
}

const MESSAGES: usize = 240;
