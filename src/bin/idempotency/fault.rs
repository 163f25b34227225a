//! Why a command could not do what it was asked.

use std::{error::Error, fmt, io, process::ExitCode};

/// An error, told with its causes on standard error.
#[derive(Debug)]
pub(crate) struct Fault {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    hint: Option<&'static str>,
    /// Whoever read the output has gone: nobody is left to tell.
    is_broken_pipe: bool,
}

impl Fault {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            source: None,
            hint: None,
            is_broken_pipe: false,
        }
    }

    pub(crate) fn caused_by(
        text: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(text)
        }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }

    pub(crate) fn exit(self) -> ExitCode {
        if self.is_broken_pipe {
            return ExitCode::SUCCESS;
        }
        // There may be nobody to read this either.
        let _ = io::Write::write_all(&mut io::stderr(), self.told().as_bytes());
        ExitCode::from(STATUS)
    }

    fn told(&self) -> String {
        let mut told = vec![format!("error: {}", self.text)];
        let mut source = self.source();
        while let Some(error) = source {
            let cause = error.to_string();
            // Drivers wrap errors in others that say the same.
            if !told.iter().any(|told| told.contains(&cause)) {
                told.push(format!("  caused by: {cause}"));
            }
            source = error.source();
        }
        if let Some(hint) = self.hint {
            told.push(format!("  hint: {hint}"));
        }
        told.join("\n") + "\n"
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Fault {
    fn from(error: E) -> Self {
        let text = error.to_string();
        let error: Box<dyn Error + Send + Sync> = error.into();
        let io = error.downcast_ref::<io::Error>();
        let is_broken_pipe = io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe);
        Self {
            is_broken_pipe,
            source: Some(error),
            ..Self::new(text)
        }
    }
}

impl Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// That of clap for arguments it cannot use.
const STATUS: u8 = 2;
