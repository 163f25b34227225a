//! Why a URL could not be opened, told without a password.

#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "the stores in memory always open")
)]

use std::{error::Error, fmt};

use crate::store::{StoreError, StoreErrorKind};

/// What a URL names cannot be used. Neither the text nor any of its sources
/// holds a password.
#[derive(Debug)]
pub struct ConnectError {
    setting: Setting,
    what: String,
    kind: StoreErrorKind,
    needs_migration: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Which of the two URLs is meant, by the name of its environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// `STORE_URL`.
    Store,
    /// `ARCHIVE_URL`.
    Archive,
}

impl Setting {
    /// The environment variable that is read by convention.
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "STORE_URL",
            Self::Archive => "ARCHIVE_URL",
        }
    }
}

impl ConnectError {
    /// The store, or the archive, says no.
    pub(super) fn unusable(setting: Setting, url: &str, error: &StoreError) -> Self {
        let place = without_password(url);
        let needs_migration = needs_migration(error);
        let source = Causes::of(error).filter(|causes| !causes.may_tell_a_secret_of(url));
        Self {
            what: format!("{}={place}: {error}", setting.name()),
            kind: error.kind(),
            setting,
            needs_migration,
            source: source.map(Into::into),
        }
    }

    /// No store of this build takes it.
    pub(super) fn unsupported(setting: Setting, url: &str, known: &[&str]) -> Self {
        let scheme = url.split_once(':').map(|(scheme, _)| scheme);
        // What is no scheme may be a password.
        let is_scheme = |text: &&str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
        };
        let what = match scheme.filter(is_scheme) {
            Some(scheme) => format!("{scheme}: cannot be used"),
            None => "not a URL".to_owned(),
        };
        let (name, known) = (setting.name(), known.join(", "));
        Self {
            setting,
            what: format!("{name}: {what}; with the features of this build one of {known}"),
            kind: StoreErrorKind::Setup,
            needs_migration: false,
            source: None,
        }
    }

    /// Which of the two URLs it is.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// What went wrong; [`StoreErrorKind::Setup`] for a URL that names nothing.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether migrations would help: the tables are missing or older than this
    /// crate, or the file is not there or may not be opened.
    pub fn needs_migration(&self) -> bool {
        self.needs_migration
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// What caused an error of a store, as text: a driver's own error shows its
/// fields to whoever prints it for debugging, the URL among them.
#[derive(Debug)]
struct Causes {
    text: String,
    source: Option<Box<Causes>>,
}

impl Causes {
    fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let cause = error.source()?;
        Some(Self {
            text: cause.to_string(),
            source: Self::of(cause).map(Box::new),
        })
    }

    fn may_tell_a_secret_of(&self, url: &str) -> bool {
        let tells = secrets(url).any(|secret| self.text.contains(secret));
        let next = self.source.as_deref();
        tells || next.is_some_and(|next| next.may_tell_a_secret_of(url))
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Causes {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// All of a database server's URL that is not surely its place: every piece of
/// it, since of a malformed one any may be the password.
fn secrets(url: &str) -> impl Iterator<Item = &str> {
    let rest = match url.split_once(':') {
        None | Some(("memory" | "sqlite", _)) => "",
        Some((_, rest)) => rest,
    };
    let place = place(rest).unwrap_or_default();
    let pieces = rest.split(['/', ':', '@', '?', '#', '&', '=']);
    pieces.filter(move |piece| !piece.is_empty() && !place.contains(piece))
}

/// A URL for people to read: of a database server's only what surely is the
/// place. One that is malformed, such as by a password with an unescaped `?` or
/// without a host, may have its password anywhere.
pub fn without_password(url: &str) -> String {
    match url.split_once(':') {
        None | Some(("memory" | "sqlite", _)) => url.to_owned(),
        Some((scheme, rest)) => match place(rest) {
            Some(place) => format!("{scheme}://…@{place}"),
            None => format!("{scheme}://…"),
        },
    }
}

/// What follows the credentials, before any parameter.
fn place(rest: &str) -> Option<&str> {
    let (user, place) = rest.rsplit_once('@')?;
    let is_well_formed = !user.contains(['?', '#']);
    is_well_formed.then(|| place.split(['?', '#']).next().unwrap_or_default())
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn needs_migration(error: &StoreError) -> bool {
    use sqlx::migrate::MigrateError;

    let Some(source) = error.source() else {
        return false;
    };
    if let Some(MigrateError::VersionNotPresent(_)) = source.downcast_ref() {
        return true;
    }
    let failed = source.downcast_ref::<std::sync::Arc<sqlx::Error>>();
    let failed = failed.map(|failed| &**failed);
    let database = failed
        .or(source.downcast_ref())
        .and_then(sqlx::Error::as_database_error);
    // Of SQLite, SQLITE_CANTOPEN; no code of PostgreSQL is that short.
    database.is_some_and(|error| error.code().as_deref() == Some("14"))
}

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
fn needs_migration(_: &StoreError) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_and_a_password_is_not() {
        for (url, told) in [
            ("memory:", "memory:"),
            ("sqlite:a.db", "sqlite:a.db"),
            (
                "postgres://shop:s3cret@db:5432/shop",
                "postgres://…@db:5432/shop",
            ),
            ("postgres://shop:s3@cret@db/shop", "postgres://…@db/shop"),
            ("postgres://db/shop?password=s3cret", "postgres://…"),
            (
                "postgres://u@db/shop?password=s3cret",
                "postgres://…@db/shop",
            ),
            ("redis://:s3cret", "redis://…"),
            ("redis://:s3?cret@host", "redis://…"),
        ] {
            assert_eq!(without_password(url), told);
        }
    }

    #[test]
    fn a_cause_that_repeats_the_password_is_left_out() {
        let url = "postgres://shop:s3cret@db/shop?password=0ther";
        for (cause, is_told) in [
            ("no route to db", true),
            ("bad port in s3cret@db", false),
            ("password=0ther is not known", false),
        ] {
            let error = StoreError::setup("the URL has to be another", cause);
            let error = ConnectError::unusable(Setting::Store, url, &error);
            assert_eq!(error.source().is_some(), is_told, "{cause}");
            let shown = format!("{error} {error:?}");
            assert!(
                !shown.contains("s3cret") && !shown.contains("0ther"),
                "{shown}"
            );
        }
    }

    #[test]
    fn what_is_no_scheme_is_not_told() {
        let error = ConnectError::unsupported(Setting::Archive, "s3/cret:@x", &["none"]);
        let text = error.to_string();
        assert!(text.starts_with("ARCHIVE_URL: not a URL"), "{text}");
        assert!(text.ends_with("one of none"), "{text}");
    }
}
