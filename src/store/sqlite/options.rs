//! From a URL to a connection with the settings that the promise rests on.

use std::{path::absolute, time::Duration};

use sqlx::{
    ConnectOptions as _, SqliteConnection, query_scalar,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::time::{Instant, sleep};

use super::error::{is_busy, store_error};
use crate::store::StoreError;

/// How long a statement waits while another process writes. A caller may meet
/// two such waits, that of the transaction under way and that of its own, and
/// still has its answer within the 5 s that the layer allows a store.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a URL such as `sqlite:charges.db`.
pub(super) fn parse(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    let wrong = |why: &str| StoreError::setup(WRONG_URL, format!("{url:?}: {why}"));
    // One of another kind may hold a password.
    let other = || StoreError::setup(WRONG_URL, "its scheme is not sqlite");
    let rest = url.strip_prefix("sqlite:").ok_or_else(other)?;
    let (database, params) = rest.split_once('?').unwrap_or((rest, ""));
    let has = |wanted: &[&str]| params.split('&').any(|param| wanted.contains(&param));
    if has(&["mode=ro", "immutable=1", "immutable=true"]) {
        return Err(wrong("a store writes, and this asks for reading only"));
    }
    let database = database.strip_prefix("//").unwrap_or(database);
    let in_memory = database.contains(":memory:") || has(&["mode=memory"]);
    if database.is_empty() && !in_memory {
        return Err(wrong("it names no file"));
    }
    let options: SqliteConnectOptions = url.parse().map_err(|error| wrong(&format!("{error}")))?;
    let options = options
        .create_if_missing(!has(&["mode=rw"]))
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT);
    if in_memory || database.starts_with("file:") {
        return Ok(options);
    }
    // Connections are opened later too, and the working directory may change.
    let file = absolute(options.get_filename()).map_err(|error| wrong(&format!("{error}")))?;
    Ok(options.filename(file).shared_cache(false))
}

/// Opens the connection that will write, and creates the file.
pub(super) async fn connect(
    options: &SqliteConnectOptions,
) -> Result<(SqliteConnection, Medium), StoreError> {
    let describe = |error: sqlx::Error| {
        tracing::debug!(file = %options.get_filename().display(), %error, "cannot open");
        store_error("opening the database", error.into())
    };
    // A switch to WAL does not wait for other connections by itself.
    let deadline = Instant::now() + BUSY_TIMEOUT;
    let mut conn = loop {
        match options.connect().await {
            Err(error) if is_busy(&error) && Instant::now() < deadline => sleep(RETRY_AFTER).await,
            connected => break connected.map_err(describe)?,
        }
    };
    let mode: String = query_scalar(include_str!("sql/journal_mode.sql"))
        .fetch_one(&mut conn)
        .await
        .map_err(describe)?;
    match mode.as_str() {
        "wal" => Ok((conn, Medium::File)),
        "memory" => Ok((conn, Medium::Memory)),
        mode => Err(StoreError::setup(
            "the file cannot have a write-ahead log: put it on a local disk, not on a network \
             file system",
            format!("the journal mode stays {mode:?}"),
        )),
    }
}

/// The options of every further connection to a file that is there by now.
pub(super) fn further(options: &SqliteConnectOptions) -> SqliteConnectOptions {
    options.clone().create_if_missing(false)
}

/// The options of a connection that reads beside the writer.
pub(super) fn reader(options: &SqliteConnectOptions) -> SqliteConnectOptions {
    further(options).pragma("query_only", "ON")
}

/// Where the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    File,
    Memory,
}

const WRONG_URL: &str = "the URL cannot be used: write sqlite:FILE, as in sqlite:charges.db or \
                         sqlite:///var/lib/charges.db, or sqlite::memory:";

const RETRY_AFTER: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    #[test]
    fn a_relative_file_stays_where_it_is() {
        for url in ["sqlite:a.db", "sqlite://a.db", "sqlite:./a.db?mode=rwc"] {
            let file = parse(url).expect(url).get_filename().to_owned();
            assert_eq!(file, absolute("a.db").expect("a directory"), "{url}");
        }
        let options = parse("sqlite:///var/lib/a%20b.db").expect("a URL");
        assert_eq!(options.get_filename().to_str(), Some("/var/lib/a b.db"));
    }

    #[test]
    fn the_url_of_another_store_is_refused_without_its_password() {
        let error = parse("postgres://shop:secret@localhost/shop").expect_err("another store's");
        let told = format!("{error:?} {}", error.causes());
        assert!(told.contains("its scheme is not sqlite"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }

    #[test]
    fn what_no_store_can_use_is_refused_with_an_example() {
        for url in [
            "",
            "a.db",
            "postgres://localhost/a",
            "sqlite:",
            "sqlite://",
            "sqlite:a.db?mode=ro",
            "sqlite:a.db?mode=rwc&immutable=1",
            "sqlite:a.db?mode=fast",
            "sqlite:a.db?journal=wal",
            "sqlite:%ff.db",
        ] {
            let error = parse(url).expect_err(url);
            assert_eq!(error.kind(), StoreErrorKind::Setup, "{url}");
            assert!(error.to_string().contains("sqlite:charges.db"), "{error}");
        }
    }
}
