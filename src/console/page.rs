//! What surrounds every page, and the pages of errors.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{FromRequestParts, OriginalUri, State},
    response::{Html, IntoResponse, Response},
};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
    request::Parts,
};
use maud::{DOCTYPE, Markup, html};

use super::ask::{Desk, Unanswered};
use crate::scope::ScopedKey;

/// Where the other pages are, as seen from the one that was asked for.
///
/// Relative, since nobody here knows what a proxy took away in front. They begin
/// with a dot, so that no colon in them looks like a scheme.
#[derive(Clone, Debug)]
pub(super) struct Links {
    to_root: String,
}

impl Links {
    fn seen_from(inner: &str, original: &str) -> Self {
        let inside = inner.trim_start_matches('/');
        let to_root = if inside.is_empty() {
            // `/ops/idempotency` is itself a file to a browser.
            match original.rsplit('/').next() {
                Some(last) if !last.is_empty() => format!("./{last}/"),
                _ => "./".to_owned(),
            }
        } else {
            match inside.matches('/').count() {
                0 => "./".to_owned(),
                depth => "../".repeat(depth),
            }
        };
        Self { to_root }
    }

    pub(super) fn to(&self, page: &str) -> String {
        format!("{}{page}", self.to_root)
    }
}

impl<S: Sync> FromRequestParts<S> for Links {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let inner = parts.uri.path();
        let original = parts.extensions.get::<OriginalUri>();
        let original = original.map_or(inner, |original| original.path());
        Ok(Self::seen_from(inner, original))
    }
}

/// The pages that the navigation leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Overview,
    LookUp,
    InFlight,
}

impl Place {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Overview, "overview", "Overview"),
        (Self::LookUp, "keys", "Look up a key"),
        (Self::InFlight, "in-flight", "In flight"),
    ];
}

/// A page without its frame.
#[derive(Debug)]
pub(super) struct Page {
    pub status: StatusCode,
    /// Where it is in the navigation, where it is there.
    pub place: Option<Place>,
    /// Its name, as a heading and in the title.
    pub name: &'static str,
    /// The key that it is about.
    pub of: Option<ScopedKey>,
    pub main: Markup,
}

impl Page {
    pub(super) fn framed(self, desk: &Desk, links: &Links) -> Response {
        let title = &*desk.console.title;
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="robots" content="noindex";
                    title { (self.name) @if let Some(key) = self.of { " " (key) } " – " (title) }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href=(links.to("console.css"));
                }
                body {
                    a.skip href="#main" { "Skip to content" }
                    header {
                        p.title { (title) }
                        nav aria-label="Console" {
                            @for (place, path, name) in Place::ALL {
                                a href=(links.to(path))
                                    aria-current=[(self.place == Some(place)).then_some("page")] {
                                    (name)
                                }
                            }
                        }
                    }
                    main id="main" tabindex="-1" {
                        h1 {
                            (self.name)
                            @if let Some(key) = self.of { " " code { (key) } }
                        }
                        (self.main)
                    }
                    footer {
                        p { "Read-only. All times are UTC, by the store’s clock." }
                    }
                }
            }
        };
        (self.status, Html(markup.into_string())).into_response()
    }

    /// Nobody answered what the page is about.
    pub(super) fn unanswered(
        place: Place,
        name: &'static str,
        of: Option<ScopedKey>,
        why: Unanswered,
        again: &Markup,
    ) -> Self {
        let status = match why {
            Unanswered::CannotTell => StatusCode::OK,
            Unanswered::TooSlow(_) | Unanswered::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            status,
            place: Some(place),
            name,
            of,
            main: html! {
                div.notice.bad role="alert" {
                    p { strong { "No answer. " } (why.to_string()) }
                    @if status != StatusCode::OK {
                        p { "Whether requests are answered is told by the metrics of the service." }
                    }
                }
                (again)
            },
        }
    }
}

pub(super) async fn unknown(State(desk): State<Arc<Desk>>, links: Links) -> Response {
    let page = Page {
        status: StatusCode::NOT_FOUND,
        place: None,
        name: "Page not found",
        of: None,
        main: html! {
            p { "There is no such page. " a href=(links.to("overview")) { "Back to the overview" } "." }
        },
    };
    page.framed(&desk, &links)
}

pub(super) async fn wrong_method(State(desk): State<Arc<Desk>>, links: Links) -> Response {
    let page = Page {
        status: StatusCode::METHOD_NOT_ALLOWED,
        place: None,
        name: "Method not allowed",
        of: None,
        main: html! {
            p { "The console only reads. " a href=(links.to("overview")) { "Back to the overview" } "." }
        },
    };
    page.framed(&desk, &links)
}

pub(super) fn css(text: &'static str) -> Response {
    let kind = HeaderValue::from_static("text/css; charset=utf-8");
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// What every answer carries, the errors' too.
pub(super) async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name.clone(), value);
    }
    response
}

const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_page_they_are_on() {
        let keys = |inner, original| Links::seen_from(inner, original).to("keys");
        assert_eq!(keys("/", "/"), "./keys");
        assert_eq!(keys("/", "/ops/idempotency"), "./idempotency/keys");
        assert_eq!(keys("/", "/ops/idempotency/"), "./keys");
        assert_eq!(keys("/in-flight", "/ops/in-flight"), "./keys");
        assert_eq!(keys("/keys/idem:v1:x", "/ops/keys/idem:v1:x"), "../keys");
    }
}
