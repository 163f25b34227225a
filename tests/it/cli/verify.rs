//! The checks of the runbook, and what makes each of them fail.

use serde_json::Value;

use super::{Place, records::Filled};

on_every_place!(
    all_is_well_after_a_sweep,
    a_backlog_fails,
    a_column_too_many_fails,
    a_probe_that_the_archive_loses_fails,
);

async fn verify(place: &Place, more: &[&str], code: i32) -> Value {
    let ran = place.run(&[&["verify", "--json"], more].concat()).await;
    let verified = ran.exits(code).json();
    assert_eq!(verified["passed"], code == 0, "{verified:#}");
    verified
}

#[track_caller]
fn is(verified: &Value, name: &str, result: &str) -> String {
    let checks = verified["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no check {name}: {verified:#}"));
    assert_eq!(check["result"], result, "{verified:#}");
    check["found"].as_str().expect("what was found").to_owned()
}

async fn all_is_well_after_a_sweep(place: Place) {
    Filled::at(&place).await;
    place.json(&["sweep"]).await;
    for more in [&[][..], &["--probe"]] {
        let verified = verify(&place, more, 0).await;
        is(&verified, "expired_backlog", "passed");
        is(&verified, "late_retry", "passed");
        is(&verified, "archive_columns", "passed");
        let in_postgres = place.archive_url.is_none() && place.store_url.starts_with("postgres");
        let partitions = if in_postgres { "passed" } else { "not_checked" };
        is(&verified, "partitions_ahead", partitions);
    }
    place.run(&["verify"]).await.exits(0).says("late retry");
}

async fn a_backlog_fails(place: Place) {
    Filled::at(&place).await;
    let verified = verify(&place, &[], 1).await;
    let found = is(&verified, "expired_backlog", "failed");
    assert!(found.starts_with("1 records wait"), "{found}");
    verify(&place, &["--max-backlog", "1"], 0).await;
}

async fn a_column_too_many_fails(place: Place) {
    let place = place.migrated().await;
    place
        .run_sql("ALTER TABLE idempotency_key_archive ADD COLUMN body TEXT")
        .await;
    let verified = verify(&place, &[], 1).await;
    let found = is(&verified, "archive_columns", "failed");
    assert!(
        found.contains("body (text)") || found.contains("body (TEXT)"),
        "{found}"
    );
}

async fn a_probe_that_the_archive_loses_fails(place: Place) {
    let place = place.migrated().await;
    let in_postgres = place.store_url.starts_with("postgres");
    place
        .run_sql(if in_postgres {
            EATS_ROWS
        } else {
            EATS_ROWS_IN_SQLITE
        })
        .await;
    let verified = verify(&place, &["--probe"], 1).await;
    let found = is(&verified, "late_retry", "failed");
    assert!(found.contains("ran a second time"), "{found}");
}

#[tokio::test]
async fn a_missing_partition_fails() {
    let place = Place::postgres().migrated().await;
    verify(&place, &[], 0).await;
    let list = place.json(&["partitions", "list"]).await;
    // The second: a gap, with room after it.
    let missing = list["partitions"][1]["name"].as_str().expect("a partition");
    place.run_sql(&format!("DROP TABLE {missing}")).await;
    let verified = verify(&place, &[], 1).await;
    is(&verified, "partitions_ahead", "failed");
    place.json(&["partitions", "ensure"]).await;
    verify(&place, &[], 0).await;
}

#[tokio::test]
async fn what_cannot_be_answered_is_not_checked() {
    let place = Place::redis().archive("none");
    let verified = verify(&place, &["--probe"], 0).await;
    is(&verified, "expired_backlog", "passed");
    for name in ["late_retry", "archive_columns", "partitions_ahead"] {
        let why = is(&verified, name, "not_checked");
        assert_eq!(why, "there is no archive");
    }
    let place = Place::sqlite().migrated().await;
    let verified = verify(&place, &[], 0).await;
    let why = is(&verified, "late_retry", "not_checked");
    assert!(why.contains("empty"), "{why}");
}

/// Rows of the archive are accepted and gone.
const EATS_ROWS: &str = "\
    CREATE FUNCTION eat() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
    CREATE TRIGGER eats BEFORE INSERT ON idempotency_key_archive \
    FOR EACH ROW EXECUTE FUNCTION eat()";

const EATS_ROWS_IN_SQLITE: &str = "\
    CREATE TRIGGER eats BEFORE INSERT ON idempotency_key_archive \
    BEGIN SELECT RAISE(IGNORE); END";
