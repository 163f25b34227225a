//! What cannot be done is told in plain words, and no password with it.

use std::process::Stdio;

use super::{Place, Ran, records::Filled};

#[tokio::test]
async fn without_a_store_the_variable_is_named() {
    let place = Place::at(tempfile::TempDir::new().unwrap(), String::new());
    for arguments in [&["stats"][..], &["migrate"], &["verify"], &["sweep"]] {
        place
            .run(arguments)
            .await
            .exits(2)
            .complains_of("STORE_URL");
    }
}

#[tokio::test]
async fn a_password_is_never_printed() {
    for url in [
        "postgres://shop:s3cret@127.0.0.1:1/shop",
        "postgres://127.0.0.1:1/shop?user=shop&password=s3cret",
        "postgres://shop:s3cret@127.0.0.1:port/shop",
        "redis://shop:s3cret@127.0.0.1:1",
        "redis+cluster://shop:s3cret@127.0.0.1:1",
        "redis://:s3?cret@host",
        "mysql://shop:s3cret@127.0.0.1/shop",
    ] {
        for command in ["stats", "migrate"] {
            let place = Place::at(tempfile::TempDir::new().unwrap(), url.to_owned());
            let mut asked = place.command(&[command]);
            let asked = asked.env("RUST_LOG", "debug").output().await;
            let ran = Ran::of(asked.unwrap()).exits(2);
            assert!(ran.stderr.contains("error: STORE_URL"), "{url}: {ran:#?}");
            ran.never_tells("s3cret");
            let by_argument = Place::at(tempfile::TempDir::new().unwrap(), String::new());
            let ran = by_argument.run(&[command, "--store-url", url]).await;
            ran.exits(2).never_tells("s3cret");
        }
    }
    let place = Place::sqlite().archive("postgres://shop:s3cret@127.0.0.1:1/shop");
    let ran = place.run(&["migrate"]).await.exits(2);
    ran.complains_of("ARCHIVE_URL=postgres://…@127.0.0.1:1/shop");
    ran.never_tells("s3cret");
}

#[tokio::test]
async fn a_schema_of_a_later_version_is_told() {
    let place = Place::sqlite().migrated().await;
    let later = "UPDATE _axum_idempotency_migrations SET version = version + 4710";
    place.run_sql(later).await;
    for command in ["stats", "migrate"] {
        place
            .run(&[command])
            .await
            .exits(2)
            .complains_of("later version");
    }
}

/// Whether or not it is noticed that nobody reads.
#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let place = Place::sqlite();
    Filled::at(&place).await;
    let mut command = place.command(&["in-flight", "--at", "-30m", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().await.unwrap()).exits(0);
    assert_eq!(ran.stderr, "");
}
