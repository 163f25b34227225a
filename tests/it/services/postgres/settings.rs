//! Servers that cannot be used are named, and passwords are not.

use crate::{
    services::{Site, settings::is_refused},
    support::postgres::{Database, Schema},
};

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let url = "postgres://shop:s3cret@127.0.0.1:1/shop";
    for name in ["STORE_URL", "ARCHIVE_URL"] {
        let site = Site::postgres().set(name, url);
        let text = is_refused(site, &[name, "127.0.0.1:1"]).await;
        assert!(!text.contains("s3cret"), "tells the password: {text}");
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let database = Database::new();
    let url = database.url();
    drop(database);
    is_refused(Site::over(url), &["STORE_URL", "create it"]).await;
}

/// A schema may be without tables, but it has to be there.
#[tokio::test]
async fn a_schema_that_is_not_there_is_named() {
    let schema = Schema::new();
    let url = schema.url();
    drop(schema);
    is_refused(Site::over(url), &["STORE_URL", "create it"]).await;
}
