//! A read-only console for the people who carry the pager: how full is it, what
//! happened to this key, and what was in flight at 02:14?
//!
//! **It has no authentication of its own.** Whoever reaches it sees scoped keys,
//! statuses and resource ids of all callers, so mount it behind yours, or on an
//! address that only operators reach. The last `.layer` is the outermost:
//!
//! ```
//! use axum::{
//!     Router,
//!     extract::Request,
//!     http::{StatusCode, header::AUTHORIZATION},
//!     middleware::{Next, from_fn},
//!     response::{IntoResponse, Response},
//! };
//! use axum_idempotency::{
//!     archive::MemoryArchive, console::Console, inspect::Inspector, store::MemoryStore,
//! };
//!
//! /// Stands for the operators' single sign-on.
//! async fn operators_only(request: Request, next: Next) -> Response {
//!     match request.headers().get(AUTHORIZATION) {
//!         Some(shown) if shown == "Bearer of-an-operator" => next.run(request).await,
//!         _ => StatusCode::UNAUTHORIZED.into_response(),
//!     }
//! }
//!
//! let inspector = Inspector::new(MemoryStore::new()).archive(MemoryArchive::new());
//! let console = Console::new(inspector).title("Charges");
//! let app: Router = Router::new().nest(
//!     "/ops/idempotency",
//!     console.router().layer(from_fn(operators_only)),
//! );
//! # drop(app);
//! ```
//!
//! 1. **Read-only.** There is GET and HEAD, and one POST that changes nothing:
//!    the one that makes a scoped key of a caller and a client's key. Sent by
//!    GET those two would stand in URLs, and so in logs and histories; the
//!    answer to the POST leads to a page whose URL has the scoped key alone.
//! 2. **No payload.** It asks by way of an [`Inspector`], which has no bodies and
//!    no headers. Resource ids are shown as the text they are.
//! 3. **No script**, and nothing from elsewhere: HTML and one stylesheet, under
//!    a `Content-Security-Policy` that allows no more.
//! 4. **Links are relative**, so that it works under any path, also behind a
//!    proxy that takes a prefix away.
//! 5. **Gentle.** What reads whole tables is asked once at a time, and the
//!    overview's answers are kept for a minute. A store that is down or slow
//!    leads to a page that says so, with status 503.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::map_response,
    routing::{MethodRouter, any, get},
};

use crate::{
    inspect::{Inspector, OpenQuery},
    scope::ScopeSecret,
};

mod ask;
mod count;
mod form;
mod gauges;
mod in_flight;
mod life;
mod look_up;
mod minutes;
mod overview;
mod page;
mod parts;
mod text;
mod timeline;

use self::ask::Desk;

/// A console over a store and its archive. See the [module](self).
#[derive(Clone, Debug)]
#[must_use]
pub struct Console {
    inspector: Inspector,
    title: Arc<str>,
    within: Duration,
    deadline: Duration,
    secret: Option<ScopeSecret>,
    callers: Callers,
}

impl Console {
    /// How long one page waits for the store and the archive when nothing else
    /// is said: 10 s.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

    /// Asks by way of `inspector`.
    pub fn new(inspector: Inspector) -> Self {
        Self {
            inspector,
            title: "Idempotency".into(),
            within: OpenQuery::DEFAULT_WITHIN,
            deadline: Self::DEFAULT_DEADLINE,
            secret: None,
            callers: Callers::default(),
        }
    }

    /// What stands above each page, such as the name of the service. Default:
    /// "Idempotency".
    pub fn title(mut self, title: &str) -> Self {
        self.title = title.into();
        self
    }

    /// How long a request may run: the longest `max_lease` of the policies, which
    /// the form of what was in flight begins with. Default:
    /// [`OpenQuery::DEFAULT_WITHIN`].
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// How long one page waits for the store and the archive. Default:
    /// [`DEFAULT_DEADLINE`](Self::DEFAULT_DEADLINE).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The secret of the layers, where they have one: without it no key that is
    /// looked up by its caller is found. Default: none.
    pub fn secret(mut self, secret: ScopeSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// What the callers mostly are, which the form of the look-up begins with.
    /// Default: [`Callers::Accounts`].
    pub fn callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// The pages, to nest at any path. Their answers are kept for as long as the
    /// router and its clones.
    pub fn router(self) -> Router {
        let looked_up = get(look_up::form).post(look_up::derive);
        Router::new()
            .route("/", get(overview::page))
            // A nested router's `/` is the path it is nested at, with a slash or
            // without. This is the same page under a name that links can rely on.
            .route("/overview", get(overview::page))
            .route("/keys", looked_up)
            .route("/keys/{scoped_key}", get(look_up::result))
            .route("/in-flight", get(in_flight::page))
            .route("/in-flight.csv", get(in_flight::sheet))
            .route("/console.css", stylesheet())
            // No fallback: axum forgets that of a router that is nested twice.
            .route("/{*unknown}", any(page::unknown))
            .method_not_allowed_fallback(page::wrong_method)
            .layer(DefaultBodyLimit::max(form::LARGEST))
            .layer(map_response(page::with_headers))
            .with_state(Arc::new(Desk::of(self)))
    }
}

fn stylesheet() -> MethodRouter<Arc<Desk>> {
    get(|| async { page::css(include_str!("console.css")) })
}

/// What the callers of a service are, as its policies name their principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Callers {
    /// Accounts, tenants or API keys: [`Principal::new`](crate::Principal::new).
    #[default]
    Accounts,
    /// Bearer tokens: [`Principal::bearer`](crate::Principal::bearer).
    BearerTokens,
    /// Fixed names, such as that of a webhook's provider:
    /// [`Principal::constant`](crate::Principal::constant).
    Constants,
    /// Queues: [`Principal::queue`](crate::Principal::queue).
    Queues,
}
