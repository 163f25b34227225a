//! What a service writes by hand: two autocommit statements a request, on as
//! many connections as serve it best.

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

/// More connections make the server slower, not faster, on two cores.
const CONNECTIONS: usize = 32;

pub(crate) struct Plain {
    put: mpsc::Sender<PgConnection>,
    take: Mutex<mpsc::Receiver<PgConnection>>,
}

impl Plain {
    pub(crate) async fn open(url: &str, concurrency: usize) -> Self {
        let options: PgConnectOptions = url.parse().expect("a URL");
        let connections = concurrency.min(CONNECTIONS);
        let (put, take) = mpsc::channel(connections);
        let mut first = options.connect().await.expect("a connection");
        sqlx::raw_sql(include_str!("plain_schema.sql"))
            .execute(&mut first)
            .await
            .expect("the plain table");
        first.close().await.expect("closed");
        for _ in 0..connections {
            let connection = options.connect().await.expect("a connection");
            put.send(connection).await.expect("room");
        }
        let take = Mutex::new(take);
        Self { put, take }
    }

    /// Claims and completes a fresh key.
    pub(crate) async fn request(&self, body: &[u8]) {
        let (key, token) = (key(), Uuid::new_v4());
        let claim = sqlx::query(include_str!("plain_claim.sql"))
            .bind(&key)
            .bind(&[7_u8; 32][..])
            .bind(token);
        self.run(claim).await;
        let complete = sqlx::query(include_str!("plain_complete.sql"))
            .bind(&key)
            .bind(token)
            .bind(body);
        self.run(complete).await;
    }

    async fn run(
        &self,
        statement: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
    ) {
        let taken = self.take.lock().await.recv().await;
        let mut connection = taken.expect("a connection");
        let done = statement.execute(&mut connection).await.expect("an answer");
        assert_eq!(done.rows_affected(), 1);
        self.put.send(connection).await.expect("room");
    }
}

/// As long as a scoped key.
fn key() -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("idem:v1:{}", &random[..22])
}
