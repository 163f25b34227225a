//! Every statement finds its rows by an index, whatever the server believes
//! about the table; and every file of SQL is used.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use axum_idempotency::store::{
    Renewal, Store as _, TtlNotice,
    postgres::{PostgresStore, PostgresStoreBuilder},
};
use sqlx::{AssertSqlSafe, Executor as _, PgPool, SqlSafeStr as _};

use super::{Fixture, LEASE, Raw, TTL, claim, completion, in_time, key, request};
use crate::support::postgres::Schema;

const STATEMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/postgres/sql");

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files_of(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect(directory);
    let files = entries.map(|entry| entry.expect(directory));
    files
        .filter(|file| file.path().is_file())
        .map(|file| file.file_name().into_string().expect("UTF-8"))
        .collect()
}

#[test]
fn every_file_of_sql_is_used() {
    let mut used = BTreeSet::new();
    for directory in [
        "/src/store/postgres",
        "/src/archive",
        "/src/archive/postgres",
    ] {
        let directory = format!("{}{directory}", env!("CARGO_MANIFEST_DIR"));
        if !Path::new(&directory).is_dir() {
            continue;
        }
        for file in files_of(&directory) {
            let text = read(Path::new(&directory).join(&file));
            let included = text.split("include_str!(\"").skip(1);
            let included = included.filter_map(|rest| rest.split_once("\")"));
            used.extend(
                included
                    .filter_map(|(path, _)| path.strip_prefix("sql/"))
                    .map(str::to_owned),
            );
        }
    }
    // The rest is listed by name.
    let listed = read(Path::new(STATEMENTS).with_extension("rs"));
    let (_, listed) = listed.split_once("statements! {").expect("a list");
    let (listed, _) = listed.split_once('}').expect("its end");
    let listed = listed.split(',').map(str::trim);
    used.extend(
        listed
            .filter(|name| !name.is_empty())
            .map(|name| format!("{name}.sql")),
    );
    let mut there = files_of(STATEMENTS);
    for folder in ["partitions", "schema"] {
        let files = files_of(&format!("{STATEMENTS}/{folder}"));
        there.extend(files.iter().map(|file| format!("{folder}/{file}")));
    }
    assert_eq!(used, there);
}

#[tokio::test]
async fn every_statement_prepares() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        for name in files_of(STATEMENTS) {
            let sql = read(Path::new(STATEMENTS).join(&name));
            let statement = AssertSqlSafe(sql).into_sql_str();
            raw.0.prepare(statement).await.expect(&name);
        }
    })
    .await;
}

/// What the server believes about the table while statements are planned, and
/// how its rows come.
#[derive(Clone, Copy, Debug)]
enum Statistics {
    /// None: it was never looked at.
    Never,
    /// It was empty when it was analyzed, and still is when plans are cached.
    Empty,
    /// It was vacuumed while it was empty, so that it has no page at all.
    NoPage,
    /// It was large, and all its rows have gone since.
    Large,
}

/// How the store reaches its database.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Own,
    SharedPool,
    Unnamed,
}

impl Mode {
    async fn builder(self, url: &str) -> PostgresStoreBuilder {
        let builder = PostgresStore::builder();
        match self {
            Self::Own => builder.url(url),
            Self::SharedPool => builder.pool(PgPool::connect(url).await.expect("a pool")),
            Self::Unnamed => builder.url(url).named_statements(false),
        }
    }
}

async fn fill(raw: &mut Raw, rows: u32) {
    raw.run(&format!(
        "INSERT INTO idempotency_keys (scoped_key, fingerprint, token, attempt, created_at, \
         expires_at, lease_until, speculative, status_code) \
         SELECT 'idem:v1:' || md5(n::text), '\\x1000', gen_random_uuid(), 1, now(), \
                now() + interval '1 day' + n * interval '1 ms', \
                CASE WHEN n % 2 = 0 THEN now() + interval '1 day' END, false, \
                CASE WHEN n % 2 = 1 THEN 201 END \
         FROM generate_series(1, {rows}) n"
    ))
    .await;
}

/// Runs every operation of the store on keys of this round.
pub(super) async fn all_operations(store: &PostgresStore, round: u32) {
    let name = |part: &str| key(&*format!("{part}-{round}"));
    let mut brief = request(name("taken-over"));
    brief.lease = Duration::from_millis(1);
    claim(store, brief).await;
    let token = claim(store, request(name("completed"))).await;
    let renewal = Renewal {
        key: name("completed"),
        token,
        lease: LEASE,
        confirmed: true,
    };
    store.renew(&[renewal]).await.expect("a renewal");
    let done = store.complete(name("completed"), token, completion(201));
    let _owner = done.await.expect("a completion");
    let done = store.complete(name("completed"), token, completion(201));
    let _owner = done.await.expect("the same again, by way of its fate");
    store
        .claim(request(name("completed")))
        .await
        .expect("a replay");
    let token = claim(store, request(name("released"))).await;
    let _owner = store
        .release(name("released"), token)
        .await
        .expect("a release");
    let _stale = store
        .release(name("released"), token)
        .await
        .expect("another");
    store.get(name("completed")).await.expect("a read");

    let mut short = request(name("swept"));
    (short.lease, short.ttl) = (Duration::from_millis(1), Duration::from_millis(2));
    claim(store, short).await;
    claim(store, request(name("amended"))).await;
    let second = request(name("taken-over"));
    let token = second.token;
    store.claim(second).await.expect("a takeover");
    let released = store.release(name("taken-over"), token).await;
    let _owner = released.expect("the release of a later attempt");
    store
        .amend(name("amended"), completion(201))
        .await
        .expect("an amendment");
    let expired = store.expired(10).await.expect("the expired");
    store.remove(&expired).await.expect("a removal");
    store.sweep(None, 10).await.expect("a sweep");
    let notice = TtlNotice {
        process: uuid::Uuid::new_v4(),
        smallest: TTL,
        largest: TTL,
    };
    store.publish_ttl(notice).await.expect("a notice");
    store.now().await.expect("a time");
}

/// Rows read by scans of the table, and by scans of its indexes.
async fn reads(raw: &mut Raw) -> (i64, i64, i64) {
    let scans = "seq_scan FROM pg_stat_user_tables \
                 WHERE relid = 'idempotency_keys'::regclass";
    let read = "seq_tup_read FROM pg_stat_user_tables \
                WHERE relid = 'idempotency_keys'::regclass";
    let entries = "sum(idx_tup_read)::bigint FROM pg_stat_user_indexes \
                   WHERE relid = 'idempotency_keys'::regclass";
    (
        raw.get(&format!("SELECT {scans}")).await,
        raw.get(&format!("SELECT {read}")).await,
        raw.get(&format!("SELECT {entries}")).await,
    )
}

const ROWS: u32 = 100_000;
const ROUNDS: u32 = 8;

async fn reads_little(statistics: Statistics, mode: Mode) {
    let schema = Schema::new();
    let setup = PostgresStore::open(&schema.url()).await.expect("a store");
    setup.close().await;
    let mut raw = Raw::connect(&schema.url()).await;
    raw.run("ALTER TABLE idempotency_keys SET (autovacuum_enabled = off)")
        .await;
    match statistics {
        Statistics::Never => {}
        Statistics::Empty => drop(raw.run("ANALYZE idempotency_keys").await),
        Statistics::NoPage => drop(raw.run("VACUUM ANALYZE idempotency_keys").await),
        Statistics::Large => {
            fill(&mut raw, ROWS).await;
            raw.run("ANALYZE idempotency_keys").await;
            raw.run("DELETE FROM idempotency_keys").await;
        }
    }
    let store = mode.builder(&schema.url()).await.open();
    let store = store.await.expect("a store");
    for round in 0..ROUNDS {
        all_operations(&store, round).await;
    }
    if !matches!(statistics, Statistics::Large) {
        fill(&mut raw, ROWS).await;
    }
    // Connections that end tell what they did; those of a pool end with it.
    raw.run("SELECT pg_stat_force_next_flush()").await;
    let before = reads(&mut raw).await;
    for round in ROUNDS..2 * ROUNDS {
        all_operations(&store, round).await;
    }
    let others = "SELECT count(*) = 0 FROM pg_stat_activity \
                  WHERE application_name = current_setting('application_name') \
                    AND pid <> pg_backend_pid()";
    store.close().await;
    drop(store);
    raw.until(others).await;
    let after = reads(&mut raw).await;

    let scenario = format!("{statistics:?} statistics, {mode:?}");
    // What was counted before may be told late: the table had few rows then.
    assert_eq!(after.0 - before.0, 0, "the table was scanned: {scenario}");
    assert_eq!(
        after.1 - before.1,
        0,
        "rows were read by a scan: {scenario}"
    );
    let entries = after.2 - before.2;
    let most = i64::from(ROUNDS) * 2 * 100;
    assert!(
        entries <= most,
        "{entries} entries of indexes read: {scenario}"
    );
}

macro_rules! reads_little {
    ($($name:ident: $statistics:ident, $mode:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                in_time(reads_little(Statistics::$statistics, Mode::$mode)).await;
            }
        )+
    };
}

reads_little! {
    a_table_that_was_never_analyzed_is_read_by_index: Never, Own;
    a_table_that_was_empty_is_read_by_index: Empty, Own;
    a_table_that_had_no_page_is_read_by_index: NoPage, Own;
    a_table_that_was_large_is_read_by_index: Large, Own;
    by_index_on_a_shared_pool_too: NoPage, SharedPool;
    by_index_on_a_shared_pool_of_a_table_that_was_large: Large, SharedPool;
    by_index_without_named_statements_too: NoPage, Unnamed;
}

/// The settings that the store gives its connections.
const SETTINGS: &str = "SET enable_seqscan = off; SET jit = off; \
                        SET plan_cache_mode = force_generic_plan";

/// An operator's questions about every row, or about all that expired.
const FOR_ALL_ROWS: [&str; 4] = [
    "inspect_backlog.sql",
    "inspect_counts.sql",
    "inspect_minutes.sql",
    "inspect_open_at.sql",
];

/// For the reader of a failure: what the plans are, with parameters unknown.
#[tokio::test]
async fn no_plan_scans_the_table_of_keys() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        raw.run("ALTER TABLE idempotency_keys SET (autovacuum_enabled = off)")
            .await;
        raw.run("VACUUM ANALYZE idempotency_keys").await;
        raw.script(SETTINGS).await;
        for is_large in [false, true] {
            if is_large {
                fill(&mut raw, ROWS).await;
            }
            for name in files_of(STATEMENTS) {
                let sql = read(Path::new(STATEMENTS).join(&name));
                if !sql.contains("idempotency_keys") || FOR_ALL_ROWS.contains(&&*name) {
                    continue;
                }
                let plan = plan(&mut raw, &sql).await;
                let scans = [
                    "Seq Scan on idempotency_keys",
                    "Bitmap Heap Scan on idempotency_keys",
                ];
                let scan = scans.iter().any(|scan| plan.contains(scan));
                assert!(!scan, "{name}, large: {is_large}\n{plan}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_backlog_is_counted_by_its_index() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut raw = fixture.raw().await;
        raw.script(SETTINGS).await;
        for rows in [0, ROWS] {
            fill(&mut raw, rows).await;
            let sql = read(Path::new(STATEMENTS).join("inspect_backlog.sql"));
            let plan = plan(&mut raw, &sql).await;
            assert!(plan.contains("idempotency_keys_expires_at"), "{plan}");
        }
    })
    .await;
}

async fn plan(raw: &mut Raw, sql: &str) -> String {
    let parameters = (1..100)
        .take_while(|n| sql.contains(&format!("${n}")))
        .count();
    raw.script(&format!("PREPARE planned AS {sql}")).await;
    let nulls = vec!["NULL"; parameters].join(", ");
    let execute = match parameters {
        0 => "EXECUTE planned".to_owned(),
        _ => format!("EXECUTE planned ({nulls})"),
    };
    let explain = AssertSqlSafe(format!("EXPLAIN {execute}"));
    let lines: Vec<String> = sqlx::query_scalar(explain)
        .persistent(false)
        .fetch_all(&mut raw.0)
        .await
        .expect(sql);
    raw.script("DEALLOCATE planned").await;
    lines.join("\n")
}
