//! What a service writes by hand: two autocommit statements a request.

use axum_idempotency::{IdempotencyKey, Principal, Scope, ScopedKey};
use http::Method;
use sqlx::{
    ConnectOptions as _, PgConnection, PgPool, Postgres,
    postgres::{PgArguments, PgConnectOptions, PgPoolOptions},
    query::Query,
};
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

/// More connections make the server slower, not faster, on two cores.
const CONNECTIONS: usize = 32;

/// Where the statements get their connection.
pub(crate) enum Plain {
    /// From a pool of sqlx, as it comes.
    Pool(PgPool),
    /// From a queue of connections, which costs next to nothing.
    Queue {
        put: mpsc::Sender<PgConnection>,
        take: Mutex<mpsc::Receiver<PgConnection>>,
    },
}

impl Plain {
    pub(crate) async fn with_pool(url: &str, concurrency: usize) -> Self {
        let connections = u32::try_from(concurrency.min(CONNECTIONS)).expect("a few");
        let pool = PgPoolOptions::new()
            .min_connections(connections)
            .max_connections(connections)
            .connect(url);
        Self::Pool(pool.await.expect("a pool"))
    }

    pub(crate) async fn with_queue(url: &str, concurrency: usize) -> Self {
        let options: PgConnectOptions = url.parse().expect("a URL");
        let connections = concurrency.min(CONNECTIONS);
        let (put, take) = mpsc::channel(connections);
        for _ in 0..connections {
            let connection = options.connect().await.expect("a connection");
            put.send(connection).await.expect("room");
        }
        let take = Mutex::new(take);
        Self::Queue { put, take }
    }

    /// Claims and completes a fresh key.
    pub(crate) async fn request(&self, body: &[u8]) {
        let (key, token) = (fresh_key().to_string(), Uuid::new_v4());
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

    async fn run(&self, statement: Query<'_, Postgres, PgArguments>) {
        let done = match self {
            Self::Pool(pool) => statement.execute(pool).await,
            Self::Queue { put, take } => {
                let taken = take.lock().await.recv().await;
                let mut connection = taken.expect("a connection");
                let done = statement.execute(&mut connection).await;
                put.send(connection).await.expect("room");
                done
            }
        };
        assert_eq!(done.expect("an answer").rows_affected(), 1);
    }
}

/// A key that nobody has used.
pub(crate) fn fresh_key() -> ScopedKey {
    let key = IdempotencyKey::new(&Uuid::new_v4().to_string()).expect("a key");
    let principal = Principal::new("bench");
    ScopedKey::derive(
        None,
        Scope::Principal,
        &principal,
        (&Method::POST, "/"),
        &key,
    )
}
