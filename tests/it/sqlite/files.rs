//! The statements: every file is used and prepares, and the plans are those
//! that were meant.

use std::{collections::BTreeSet, fs, path::Path};

use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use super::{Fixture, Raw};

const STATEMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sqlite/sql");

fn names(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect(directory);
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect(directory).file_name();
    let names: BTreeSet<_> = entries.map(name).collect();
    names
        .into_iter()
        .map(|name| name.into_string().expect("UTF-8"))
        .collect()
}

async fn database() -> (Fixture, Raw) {
    let fixture = Fixture::new().await;
    let raw = fixture.raw().await;
    (fixture, raw)
}

fn sql(name: &str) -> String {
    fs::read_to_string(Path::new(STATEMENTS).join(name)).expect(name)
}

#[test]
fn every_file_of_sql_is_used_once_or_more() {
    let mut sources = String::new();
    for directory in ["/src/store/sqlite", "/src/archive/sqlite"] {
        let directory = format!("{}{directory}", env!("CARGO_MANIFEST_DIR"));
        for file in names(&directory) {
            let path = Path::new(&directory).join(&file);
            if path.is_file() {
                sources += &fs::read_to_string(path).expect(&file);
            }
        }
    }
    let included: BTreeSet<String> = sources
        .split("include_str!(\"")
        .skip(1)
        .filter_map(|rest| rest.split_once("\")"))
        .map(|(path, _)| path)
        .filter(|path| !path.contains("migrations/"))
        .filter_map(|path| path.rsplit('/').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(included, names(STATEMENTS));
}

#[tokio::test]
async fn every_statement_prepares() {
    let (_fixture, mut raw) = database().await;
    for name in names(STATEMENTS) {
        let statement = AssertSqlSafe(sql(&name)).into_sql_str();
        raw.0.prepare(statement).await.expect(&name);
    }
}

/// The steps of a statement's plan, one a line.
async fn plan(raw: &mut Raw, name: &str) -> String {
    let rows = raw.rows(&format!("EXPLAIN QUERY PLAN {}", sql(name))).await;
    let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
    steps.join("\n")
}

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let (_fixture, mut raw) = database().await;
    for name in names(STATEMENTS) {
        if ["begin.sql", "commit.sql", "rollback.sql"].contains(&&*name) || name.contains("ttl") {
            continue;
        }
        // An operator's questions are rare, and no request waits for them.
        if name.starts_with("inspect_") {
            continue;
        }
        let plan = plan(&mut raw, &name).await;
        // What a subquery or a window function holds is a bounded batch.
        let scans: Vec<_> = plan
            .lines()
            .filter(|step| step.starts_with("SCAN") && step.contains("idempotency"))
            .collect();
        assert!(scans.is_empty(), "{name}:\n{plan}");
    }
}

#[tokio::test]
async fn a_key_is_found_by_its_index_and_the_oldest_by_theirs() {
    let (fixture, mut raw) = database().await;
    assert_plans(&mut raw).await;
    // Statistics of a table that was small when they were made.
    fixture.claim(super::key("only")).await;
    raw.run("INSERT INTO idempotency_key_archive VALUES ('a', x'00', 201, NULL, 1, 1)")
        .await;
    raw.run("ANALYZE").await;
    raw.run("ANALYZE sqlite_schema").await;
    assert_plans(&mut raw).await;
}

async fn assert_plans(raw: &mut Raw) {
    let by_key = "SEARCH idempotency_keys USING INDEX \
                  sqlite_autoindex_idempotency_keys_1 (scoped_key=?)";
    for name in [
        "get.sql",
        "claim_replace.sql",
        "complete.sql",
        "is_completed_by.sql",
        "release_first.sql",
        "release_later.sql",
        "renew.sql",
        "amend.sql",
        "remove.sql",
        "inspect_record.sql",
        "inspect_erase.sql",
    ] {
        assert_eq!(plan(raw, name).await, by_key, "{name}");
    }
    let by_expiry = "SEARCH idempotency_keys USING INDEX \
                     idempotency_keys_expires_at (expires_at<?)";
    for name in [
        "expired.sql",
        "sweep_archive.sql",
        "sweep_delete.sql",
        "inspect_backlog.sql",
    ] {
        assert_eq!(plan(raw, name).await, by_expiry, "{name}");
    }
    let batch = plan(raw, "sweep_until.sql").await;
    assert!(batch.contains(by_expiry), "{batch}");

    let lookup = plan(raw, "archive_lookup.sql").await;
    let by_key_and_bound = "SEARCH idempotency_key_archive USING PRIMARY KEY \
                            (scoped_key=? AND expired_at>?)";
    assert!(lookup.starts_with(by_key_and_bound), "{lookup}");
    let history = plan(raw, "inspect_archive_history.sql").await;
    let by_key = "SEARCH idempotency_key_archive USING PRIMARY KEY (scoped_key=?)";
    assert_eq!(history, by_key);
    let newest = plan(raw, "inspect_archive_newest.sql").await;
    let along = "SCAN idempotency_key_archive USING INDEX idempotency_key_archive_expired_at";
    assert_eq!(newest, along, "the first of the index is enough");
    let prune = plan(raw, "archive_prune.sql").await;
    assert!(
        prune.contains("USING COVERING INDEX idempotency_key_archive_expired_at (expired_at<?)"),
        "{prune}"
    );
    assert!(prune.starts_with("SEARCH"), "{prune}");
    let amend = plan(raw, "archive_amend.sql").await;
    assert!(amend.starts_with(
        "SEARCH idempotency_key_archive USING PRIMARY KEY (scoped_key=? AND expired_at=?)"
    ));
}

#[tokio::test]
async fn the_archive_has_these_columns_and_no_other() {
    let (_fixture, mut raw) = database().await;
    let columns = raw.rows("PRAGMA table_info(idempotency_key_archive)").await;
    let columns: Vec<(String, String, i64)> = columns
        .iter()
        .map(|column| (column.get("name"), column.get("type"), column.get("pk")))
        .collect();
    let expected = [
        ("scoped_key", "TEXT", 1),
        ("fingerprint", "BLOB", 0),
        ("status_code", "INTEGER", 0),
        ("resource_id", "TEXT", 0),
        ("created_at", "INTEGER", 0),
        ("expired_at", "INTEGER", 2),
    ];
    assert_eq!(
        columns,
        expected.map(|(name, kind, key)| (name.into(), kind.into(), key))
    );
}
