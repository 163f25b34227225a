//! One logical request, from its key to its last attempt.

use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tracing::debug;

use super::{
    GaveUp, IdempotencyMiddlewareBuilder, Key, RetriesExhausted, UnusableKey, WindowPassed,
    builder::Settings,
    verdict::{Verdict, judge},
    window::Age,
};
use crate::key::KeyError;

/// Gives each logical request a key and repeats it under that key. See the
/// [module](super) for the rules.
///
/// Attach it outside of every other middleware that should see each attempt,
/// such as one that signs or measures, and leave retries to it alone: one that
/// retries outside of it would send each of its attempts under another key.
/// Clones have the same settings.
#[derive(Clone, Debug)]
#[must_use]
pub struct IdempotencyMiddleware {
    settings: Settings,
}

impl IdempotencyMiddleware {
    /// With the defaults, which [`IdempotencyMiddlewareBuilder`] lists.
    pub fn new() -> Self {
        Self::of(Settings::default())
    }

    /// Starts from the defaults.
    pub fn builder() -> IdempotencyMiddlewareBuilder {
        IdempotencyMiddlewareBuilder::default()
    }

    pub(super) fn of(settings: Settings) -> Self {
        Self { settings }
    }

    /// The key in the request, else that of the caller, else a fresh one. The
    /// request holds it afterwards.
    fn key_for(
        &self,
        request: &mut Request,
        extensions: &Extensions,
    ) -> std::result::Result<Key, UnusableKey> {
        let unusable = |reason: KeyError| UnusableKey { reason };
        let name = &self.settings.header;
        if request.headers().contains_key(name) {
            let lines = request.headers().get_all(name);
            return Key::of_lines(lines).map_err(unusable);
        }
        let key = extensions.get::<Key>().cloned();
        let key = key.unwrap_or_else(|| Key::made_now(&*self.settings.clock));
        let value = key.to_header(self.settings.is_quoted).map_err(unusable)?;
        request.headers_mut().insert(name, value);
        Ok(key)
    }
}

impl Default for IdempotencyMiddleware {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Middleware for IdempotencyMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if !self.settings.methods.contains(request.method()) {
            return next.run(request, extensions).await;
        }
        let key = self.key_for(&mut request, extensions);
        let mut run = Run::of(key.map_err(Error::middleware)?, &self.settings);
        run.check_window().map_err(Error::middleware)?;
        loop {
            let is_last = run.attempts + 1 >= self.settings.attempts;
            let copy = (!is_last).then(|| request.try_clone()).flatten();
            run.attempts += 1;
            let sent = next.clone().run(request, extensions).await;
            let (last, asked) = match judge(sent, &run.key, &*self.settings.clock).await {
                Verdict::Final(response) => return run.end(Ok(response), GaveUp::NotRetryable),
                Verdict::Broken(error) => return run.end(Err(error), GaveUp::NotRetryable),
                Verdict::Expired(expired) => return Err(Error::middleware(*expired)),
                Verdict::Again { last, asked } => (last, asked),
            };
            let wait = asked.saturating_add(self.settings.backoff.after(run.attempts));
            if let Some(reason) = run.stops(wait) {
                return run.end(last, reason);
            }
            let Some(copy) = copy else {
                return run.end(last, GaveUp::BodyNotRepeatable);
            };
            request = copy;
            debug!(
                attempt = run.attempts,
                ?wait,
                "the request is repeated under its key"
            );
            tokio::time::sleep(wait).await;
            // The machine may have slept longer, or its clock been set.
            if let Some(reason) = run.stops(Duration::ZERO) {
                return run.end(last, reason);
            }
        }
    }
}

/// How far a request has got.
struct Run<'a> {
    settings: &'a Settings,
    key: Key,
    age: Age,
    attempts: u32,
}

impl<'a> Run<'a> {
    fn of(key: Key, settings: &'a Settings) -> Self {
        Self {
            age: Age::of(&key, &*settings.clock),
            key,
            settings,
            attempts: 0,
        }
    }

    fn check_window(&self) -> std::result::Result<(), WindowPassed> {
        if self.is_in_window(Duration::ZERO) {
            return Ok(());
        }
        Err(WindowPassed {
            key: self.key.clone(),
            age: self.age.now(&*self.settings.clock),
            window: self.settings.window,
            margin: self.settings.margin,
        })
    }

    /// Why no attempt may start so long from now, if none may.
    fn stops(&self, wait: Duration) -> Option<GaveUp> {
        if self.attempts >= self.settings.attempts {
            Some(GaveUp::Attempts)
        } else if !self.is_in_window(wait) {
            Some(GaveUp::Window)
        } else if self.age.elapsed().saturating_add(wait) > self.settings.total_time {
            Some(GaveUp::TotalTime)
        } else {
            None
        }
    }

    fn is_in_window(&self, wait: Duration) -> bool {
        let age = self.age.now(&*self.settings.clock).saturating_add(wait);
        age.saturating_add(self.settings.margin) <= self.settings.window
    }

    /// Gives the caller what there is, and the key with it.
    fn end(self, last: Result<Response>, reason: GaveUp) -> Result<Response> {
        match last {
            Ok(mut response) => {
                response.extensions_mut().insert(self.key);
                if reason != GaveUp::NotRetryable {
                    response.extensions_mut().insert(reason);
                }
                Ok(response)
            }
            Err(last) => Err(Error::middleware(RetriesExhausted {
                key: self.key,
                attempts: self.attempts,
                reason,
                last,
            })),
        }
    }
}
