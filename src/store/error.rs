//! Why a store or an archive could not answer.

use std::{error::Error, fmt};

/// A store or an archive failed. It is never the client's fault.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    what: &'static str,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What went wrong, as far as the caller has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Not reachable, too slow, or closed. Whether the call took effect is
    /// unknown.
    Unavailable,
    /// A bounded store has no room and will not evict a record inside its
    /// window. The call had no effect.
    Full,
    /// A row that no version of this crate can have written.
    Corrupt,
    /// The store cannot be used as it is set up: a missing migration, a schema
    /// of another version, a missing permission, a wrong URL.
    Setup,
}

impl StoreError {
    /// The store is not reachable; `what` says what was tried.
    pub fn unavailable(
        what: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::with_source(StoreErrorKind::Unavailable, what, source)
    }

    /// The store has no room.
    pub fn full(what: &'static str) -> Self {
        Self {
            kind: StoreErrorKind::Full,
            what,
            source: None,
        }
    }

    /// A row cannot be read; `what` names the part.
    pub fn corrupt(what: &'static str) -> Self {
        Self {
            kind: StoreErrorKind::Corrupt,
            what,
            source: None,
        }
    }

    /// The store cannot be used as it is set up; `what` names the remedy.
    pub fn setup(what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::with_source(StoreErrorKind::Setup, what, source)
    }

    /// The error and all that caused it, for one line of a log.
    pub(crate) fn causes(&self) -> impl fmt::Display {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }

    /// What went wrong.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    fn with_source(
        kind: StoreErrorKind,
        what: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            what,
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StoreErrorKind::Unavailable => "store unavailable",
            StoreErrorKind::Full => "store full",
            StoreErrorKind::Corrupt => "stored row is corrupt",
            StoreErrorKind::Setup => "store is not set up",
        };
        write!(f, "{kind}: {}", self.what)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
