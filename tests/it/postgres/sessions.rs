//! Other people's session settings, and other people's connections.

use std::time::Duration;

use axum_idempotency::{
    claim::ClaimOutcome,
    store::{Fenced, Store as _, StoreErrorKind, postgres::PostgresStore},
};
use futures_util::{future::join_all, poll};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::task::yield_now;

use super::{Raw, TTL, claim, completion, in_time, key, leased, promptly, request};
use crate::support::postgres::{Database, PgBouncer, Schema};

/// How a store gets its connections.
#[derive(Clone, Copy, Debug)]
enum Connections {
    Own,
    Shared,
}

impl Connections {
    const BOTH: [Self; 2] = [Self::Own, Self::Shared];

    async fn store(self, url: &str) -> PostgresStore {
        let builder = PostgresStore::builder();
        let builder = match self {
            Self::Own => builder.url(url),
            Self::Shared => builder.pool(PgPool::connect(url).await.expect("a pool")),
        };
        builder.open().await.expect("a store")
    }
}

/// Two processes claim the same keys at once: one wins, and completes.
async fn races_are_won_once(stores: &[PostgresStore; 2], what: &str) {
    for round in 0..10 {
        let claims = (0..24).map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                let request = request(key(&*format!("race-{round}")));
                let (key, token) = (request.key, request.token);
                let claim = store.claim(request).await.expect("an answer");
                let ClaimOutcome::Claimed(_) = claim.outcome else {
                    return 0;
                };
                let done = store.complete(key, token, completion(201)).await;
                assert_eq!(done.expect("an answer"), Fenced::Owner);
                1
            })
        });
        let claims = promptly(what, join_all(claims)).await;
        let won: usize = claims.into_iter().map(|one| one.expect("no panic")).sum();
        assert_eq!(won, 1, "{what}");
    }
}

#[tokio::test]
async fn another_default_isolation_changes_nothing() {
    for level in ["repeatable read", "serializable"] {
        for connections in Connections::BOTH {
            in_time(async {
                let database = Database::new().with("default_transaction_isolation", level);
                let mut raw = Raw::connect(&database.url()).await;
                // Of the role too, which counts for more.
                raw.run(&format!(
                    "ALTER ROLE CURRENT_USER IN DATABASE {} \
                     SET default_transaction_isolation = '{level}'",
                    database.name()
                ))
                .await;
                let stores = [
                    connections.store(&database.url()).await,
                    connections.store(&database.url()).await,
                ];
                races_are_won_once(&stores, &format!("{level}, {connections:?}")).await;
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_time_zone_changes_no_time() {
    // A day that Samoa skipped, and half hours.
    for zone in ["Pacific/Apia", "America/St_Johns", "UTC"] {
        in_time(times_are_exact_in(zone)).await;
    }
}

/// A client of PostgreSQL names its time zone when it connects: only on a pool
/// of the user's is there another one.
async fn times_are_exact_in(zone: &'static str) {
    let schema = Schema::new();
    let pool = PgPoolOptions::new().after_connect(move |conn, _| {
        let set = sqlx::query(sqlx::AssertSqlSafe(format!("SET timezone = '{zone}'")));
        Box::pin(async move { set.execute(conn).await.map(drop) })
    });
    let pool = pool.connect(&schema.url()).await.expect("a pool");
    let store = PostgresStore::builder().pool(pool.clone()).open().await;
    let store = store.expect("a store");
    let set: String = sqlx::query_scalar("SELECT current_setting('timezone')")
        .fetch_one(&pool)
        .await
        .expect("a setting");
    assert_eq!(set, zone);
    let mut raw = Raw::connect(&schema.url()).await;
    // Over every change of the clocks in a year.
    for days in [1, 60, 120, 180, 240, 300, 365] {
        let mut long = request(key(days));
        long.ttl = TTL * days;
        let ttl = long.ttl;
        let before = store.now().await.expect("an answer");
        let lease = leased(store.claim(long).await.expect("an answer"));
        let after = store.now().await.expect("an answer");
        assert!((before..=after).contains(&lease.created_at), "{zone}");
        assert_eq!(lease.expires_at, lease.created_at + ttl, "{zone}");
        let record = store.get(key(days)).await.expect("an answer");
        let record = record.expect("a record");
        assert_eq!(record.expires_at, lease.expires_at, "{zone}");
        assert_eq!(record.created_at, lease.created_at, "{zone}");
        let micros = "SELECT (extract(epoch FROM expires_at) * 1000000)::bigint";
        let of_key = format!("FROM idempotency_keys WHERE scoped_key = '{}'", key(days));
        let stored: i64 = raw.get(&format!("{micros} {of_key}")).await;
        assert_eq!(stored, lease.expires_at.as_microsecond(), "{zone}");
    }
    let expired = store.expired(10).await.expect("an answer");
    assert!(expired.is_empty(), "{zone}");
}

async fn behind(pooler: &PgBouncer) -> PostgresStore {
    let store = PostgresStore::builder()
        .url(pooler.url())
        .named_statements(false);
    store.open().await.expect("a store behind a pooler")
}

#[tokio::test]
async fn behind_a_pooler_of_two_connections_everything_works() {
    in_time(async {
        let database = Database::new();
        let pooler = PgBouncer::before(&database.url(), 2).await;
        let stores = [behind(&pooler).await, behind(&pooler).await];
        let claims = (0..200).map(|n| {
            let store = stores[n % 2].clone();
            async move { (key(n), claim(&store, request(key(n))).await) }
        });
        let attempts = join_all(claims).await;
        let done = attempts.into_iter().enumerate().map(|(n, (key, token))| {
            let store = stores[n % 2].clone();
            async move {
                if n % 3 == 0 {
                    store.release(key, token).await.expect("an answer")
                } else {
                    let done = store.complete(key, token, completion(201)).await;
                    done.expect("an answer")
                }
            }
        });
        for done in join_all(done).await {
            assert_eq!(done, Fenced::Owner);
        }
        races_are_won_once(&stores, "behind a pooler").await;
        stores[0].migrate().await.expect("nothing to do");
        assert_eq!(stores[0].sweep(None, 10).await.expect("an answer"), 0);
    })
    .await;
}

#[tokio::test]
async fn behind_a_pooler_one_connection_is_migrated_for_several_schemas() {
    in_time(async {
        let database = Database::new();
        let pooler = PgBouncer::before(&database.url(), 1).await;
        for schema in ["one", "two", "one", "two"] {
            let store = PostgresStore::builder()
                .url(pooler.url())
                .schema(schema)
                .named_statements(false);
            let store = store.open().await.expect(schema);
            store.migrate().await.expect("nothing to do");
            let token = claim(&store, request(key("k"))).await;
            let released = store.release(key("k"), token).await;
            assert_eq!(released.expect("an answer"), Fenced::Owner);
            store.close().await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_forgets_what_a_pooler_needs_is_told() {
    in_time(async {
        let database = Database::new();
        let pooler = PgBouncer::before(&database.url(), 2).await;
        let error = PostgresStore::open(&pooler.url()).await;
        let error = error.expect_err("the pooler refuses the settings of a session");
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
        assert!(
            error.to_string().contains("named_statements(false)"),
            "{error}"
        );

        // On a pool of the user's, somebody's statement is soon another's.
        let pool = PgPool::connect(&pooler.url()).await.expect("a pool");
        let told = async {
            let store = PostgresStore::builder().pool(pool).open().await?;
            for round in 0..50 {
                let claims = (0..10).map(|n| store.claim(request(key(round * 10 + n))));
                let reads = (0..10).map(|n| store.get(key(round * 10 + n)));
                let (claims, reads) = tokio::join!(join_all(claims), join_all(reads));
                claims.into_iter().collect::<Result<Vec<_>, _>>()?;
                reads.into_iter().collect::<Result<Vec<_>, _>>()?;
            }
            Ok::<_, axum_idempotency::store::StoreError>(())
        };
        let error = told.await.expect_err("a statement that is not there");
        assert_eq!(error.kind(), StoreErrorKind::Setup, "{error:?}");
        assert!(
            error.to_string().contains("named_statements(false)"),
            "{error}"
        );
    })
    .await;
}

/// Polls a call so many times, then drops it.
async fn drop_after<T>(polls: usize, call: impl Future<Output = T>) {
    let mut call = Box::pin(call);
    for _ in 0..polls {
        if poll!(&mut call).is_ready() {
            return;
        }
        yield_now().await;
    }
}

const CONNECTIONS: u32 = 3;

async fn assert_clean(pool: &PgPool, after: &str) {
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        all.push(promptly(after, pool.acquire()).await.expect("a connection"));
    }
    for conn in &mut all {
        let settings: String = sqlx::query_scalar(
            "SELECT concat_ws(' ', current_setting('enable_seqscan'), current_setting('jit'), \
             current_setting('plan_cache_mode'), current_setting('statement_timeout'), \
             current_setting('lock_timeout'), current_setting('transaction_isolation'))",
        )
        .fetch_one(&mut **conn)
        .await
        .expect("a clean connection");
        assert_eq!(settings, "on on auto 0 0 read committed", "after {after}");
    }
    let open: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' \
         AND application_name = current_setting('application_name')",
    )
    .fetch_one(&mut *all[0])
    .await
    .expect("an answer");
    assert_eq!(open, 0, "transactions are open after {after}");
}

#[tokio::test]
async fn a_shared_pool_is_left_as_it_was() {
    in_time(async {
        let schema = Schema::new();
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect(&schema.url())
            .await
            .expect("a pool");
        let store = PostgresStore::builder().pool(pool.clone()).open().await;
        let store = store.expect("a store");
        let claims = (0..50).map(|n| claim(&store, request(key(n))));
        join_all(claims).await;
        for round in 0..40 {
            drop_after(round, store.get(key(round))).await;
            drop_after(round, store.now()).await;
            drop_after(round, store.amend(key(round), completion(201))).await;
            drop_after(round, store.sweep(None, 10)).await;
            drop_after(round, store.claim(request(key(1_000 + round)))).await;
            drop_after(round, store.migrate()).await;
        }
        // A lane that is idle keeps a connection for a while.
        store.close().await;
        assert_clean(&pool, "calls that were answered or dropped").await;

        let store = PostgresStore::builder().pool(pool.clone()).open().await;
        let store = store.expect("a store");
        let mut raw = Raw::connect(&schema.url()).await;
        raw.script("ALTER TABLE idempotency_keys RENAME TO elsewhere")
            .await;
        let claim = store.claim(request(key("k"))).await;
        assert_eq!(claim.expect_err("no table").kind(), StoreErrorKind::Setup);
        store.get(key("k")).await.expect_err("no table");
        store.sweep(None, 10).await.expect_err("no table");
        store.close().await;
        assert_clean(&pool, "calls that failed").await;
        assert!(!pool.is_closed(), "it is the user's");
    })
    .await;
}

#[tokio::test]
async fn a_busy_store_leaves_a_connection_of_a_shared_pool_to_its_user() {
    in_time(async {
        let schema = Schema::new();
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_secs(20))
            .connect(&schema.url())
            .await
            .expect("a pool");
        let store = PostgresStore::builder().pool(pool.clone()).open().await;
        let store = store.expect("a store");
        for n in 0..20 {
            let token = claim(&store, request(key(n))).await;
            let done = store.complete(key(n), token, completion(201)).await;
            assert_eq!(done.expect("an answer"), Fenced::Owner);
            promptly("the user", pool.acquire())
                .await
                .expect("a connection");
        }
    })
    .await;
}
