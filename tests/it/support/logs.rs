//! What the crate logs, at every level.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{
    Dispatch,
    subscriber::{DefaultGuard, NoSubscriber},
};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

/// Everything that is logged on this thread while this lives, spans included.
#[derive(Debug)]
pub(crate) struct Logs {
    text: Text,
    _guard: DefaultGuard,
    /// While there is only one subscriber, `tracing` asks the thread that first
    /// comes to an event whether anybody wants it, and keeps the answer: that of
    /// a test beside this one, which wants nothing. With two it asks them all.
    _second: Dispatch,
}

impl Logs {
    pub(crate) fn capture() -> Self {
        let text = Text::default();
        let second = Dispatch::new(NoSubscriber::new());
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("axum_idempotency=trace")
            .with_writer(text.clone())
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
            _second: second,
        }
    }

    /// What was logged so far.
    pub(crate) fn text(&self) -> String {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Text {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
