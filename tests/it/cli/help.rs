//! What the command says of itself.

use super::Place;

#[tokio::test]
async fn every_command_has_help_and_the_version_is_that_of_the_crate() {
    let place = Place::at(tempfile::TempDir::new().unwrap(), String::new());
    let help = place.run(&["--help"]).await.exits(0);
    help.says("Exit status");
    for command in COMMANDS {
        help.says(command[0]);
        let help = place.run(&[*command, &["--help"]].concat()).await.exits(0);
        help.says("Usage: idempotency");
        help.says("--json");
    }
    let version = place.run(&["--version"]).await.exits(0);
    version.says(env!("CARGO_PKG_VERSION"));
}

/// URLs hold passwords, and the help shows what the environment says elsewhere.
#[tokio::test]
async fn the_help_tells_no_url() {
    let url = "postgres://shop:s3cret@db/shop".to_owned();
    let place = Place::at(tempfile::TempDir::new().unwrap(), url).archive("redis://s3cret");
    for command in COMMANDS {
        let help = place.run(&[*command, &["--help"]].concat()).await.exits(0);
        help.never_tells("s3cret");
    }
}

const COMMANDS: &[&[&str]] = &[
    &["migrate"],
    &["stats"],
    &["sweep"],
    &["partitions", "list"],
    &["partitions", "ensure"],
    &["partitions", "retire"],
    &["lookup"],
    &["scoped-key"],
    &["in-flight"],
    &["forget"],
    &["verify"],
];
