//! The look-up of one key.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Path, RawQuery, State, rejection::BytesRejection},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method, StatusCode, header::LOCATION};
use maud::{Markup, html};

use super::{
    Callers, Console,
    ask::Desk,
    form::{Fields, Wrong},
    life,
    page::{Links, Page, Place},
    text, timeline,
};
use crate::{
    inspect::KeyHistory,
    key::{IdempotencyKey, KeyError, KeySyntax},
    scope::{Principal, Scope, ScopedKey},
};

const NAME: &str = "Look up a key";
const WRONG: &str = "Error: Look up a key";

/// The form; and with a scoped key in the query, the way to its page.
pub(super) async fn form(
    State(desk): State<Arc<Desk>>,
    links: Links,
    RawQuery(query): RawQuery,
) -> Response {
    let fields = Fields::read(query.unwrap_or_default().as_bytes());
    if !fields.has(SCOPED_KEY) {
        let forms = forms(&desk.console, &links, &Fields::default(), None);
        return page_of(StatusCode::OK, forms).framed(&desk, &links);
    }
    match fields.text(SCOPED_KEY).parse::<ScopedKey>() {
        Ok(key) => on_to(key),
        Err(error) => {
            let wrong = Wrong::in_field(SCOPED_KEY, sentence(&error.to_string()));
            refused(
                &desk,
                &links,
                StatusCode::UNPROCESSABLE_ENTITY,
                &fields,
                &wrong,
            )
        }
    }
}

/// Makes the scoped key of a caller and a client's key, and leads to its page.
/// Changes nothing: it is a POST so that neither stands in a URL.
pub(super) async fn derive(
    State(desk): State<Arc<Desk>>,
    links: Links,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        let wrong = Wrong::in_field(KEY, "The form is too long.");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return refused(&desk, &links, status, &Fields::default(), &wrong);
    };
    let fields = Fields::read(&body);
    match derived(&desk.console, &fields) {
        Ok(key) => on_to(key),
        Err(wrong) => refused(
            &desk,
            &links,
            StatusCode::UNPROCESSABLE_ENTITY,
            &fields,
            &wrong,
        ),
    }
}

/// What happened to a key.
pub(super) async fn result(
    State(desk): State<Arc<Desk>>,
    links: Links,
    Path(name): Path<String>,
) -> Response {
    let Ok(key) = name.parse::<ScopedKey>() else {
        let wrong = Wrong::in_field(SCOPED_KEY, "The address names no scoped key.");
        let fields = Fields::default();
        return refused(&desk, &links, StatusCode::NOT_FOUND, &fields, &wrong);
    };
    let name = "Key";
    let page = match desk.key(key).await {
        Ok(history) => Page {
            status: StatusCode::OK,
            place: Some(Place::LookUp),
            name,
            of: Some(key),
            main: history_of(&history, &links),
        },
        Err(why) => Page::unanswered(Place::LookUp, name, Some(key), why, &another(&links)),
    };
    page.framed(&desk, &links)
}

fn history_of(history: &KeyHistory, links: &Links) -> Markup {
    let verdict = life::verdict(history);
    let windows = life::windows(history);
    html! {
        div.verdict.(verdict.class) {
            h2 { (verdict.state) }
            p { (verdict.meaning) }
            p.muted { strong { "A repeat now: " } (verdict.repeat) }
        }
        p.muted { "Asked at " (text::time(history.now)) ". A scoped key is a pseudonym: nothing here is the client’s own text, save resource ids." }
        @for (at, window) in windows.iter().enumerate() {
            (timeline::window(window, at, history.now))
        }
        (another(links))
    }
}

fn another(links: &Links) -> Markup {
    html! { p { a href=(links.to("keys")) { "Look up another key" } } }
}

/// See Other: the answer is read from a page of its own, which can be reloaded
/// and passed on.
fn on_to(key: ScopedKey) -> Response {
    // Both forms are at `…/keys`. A scoped key is made of URL-safe characters.
    match HeaderValue::try_from(format!("./keys/{key}")) {
        Ok(page) => (StatusCode::SEE_OTHER, [(LOCATION, page)]).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn derived(console: &Console, fields: &Fields) -> Result<ScopedKey, Wrong> {
    let id = fields.text(CALLER);
    if id.is_empty() {
        return Err(Wrong::in_field(CALLER, "Who is the caller?"));
    }
    let principal = match kind_of(fields, console.callers) {
        Callers::Accounts => Principal::new(id),
        Callers::BearerTokens => Principal::bearer(id),
        Callers::Constants => Principal::constant(id),
        Callers::Queues => Principal::queue(id),
    };
    let key = client_key(fields.text(KEY))
        .map_err(|error| Wrong::in_field(KEY, sentence(&error.to_string())))?;
    let (scope, method, path) = match (fields.text(METHOD), fields.text(PATH)) {
        ("", "") => (Scope::Principal, Method::POST, ""),
        (_, "") => return Err(Wrong::in_field(PATH, "An endpoint is a method and a path.")),
        ("", _) => {
            return Err(Wrong::in_field(
                METHOD,
                "An endpoint is a method and a path.",
            ));
        }
        (method, path) => {
            let method = method.to_ascii_uppercase();
            let method = Method::from_bytes(method.as_bytes())
                .map_err(|_| Wrong::in_field(METHOD, "Not a method, such as POST."))?;
            if !path.starts_with('/') || path.contains(['?', '#']) {
                let message = "A path begins with / and has no query.";
                return Err(Wrong::in_field(PATH, message));
            }
            (Scope::PrincipalAndEndpoint, method, path)
        }
    };
    let endpoint = (&method, path);
    let secret = console.secret.as_ref();
    Ok(ScopedKey::derive(secret, scope, &principal, endpoint, &key))
}

/// As the header has it, quoted or not; or the id of an event or a message,
/// which may be any text.
fn client_key(typed: &str) -> Result<IdempotencyKey, KeyError> {
    if typed.starts_with('"') {
        KeySyntax::Lenient.parse([typed.as_bytes()])
    } else {
        IdempotencyKey::from_id(typed)
    }
}

fn refused(
    desk: &Desk,
    links: &Links,
    status: StatusCode,
    fields: &Fields,
    wrong: &Wrong,
) -> Response {
    let mut page = page_of(status, forms(&desk.console, links, fields, Some(wrong)));
    page.name = WRONG;
    page.framed(desk, links)
}

fn page_of(status: StatusCode, main: Markup) -> Page {
    Page {
        status,
        place: Some(Place::LookUp),
        name: NAME,
        of: None,
        main,
    }
}

fn forms(console: &Console, links: &Links, fields: &Fields, wrong: Option<&Wrong>) -> Markup {
    let kind = kind_of(fields, console.callers);
    // A token is a secret, and is not sent back.
    let caller = match kind {
        Callers::BearerTokens => "",
        _ => fields.text(CALLER),
    };
    let field = |name, label, value| Field {
        name,
        label,
        value,
        wrong,
    };
    html! {
        section aria-labelledby="by-name" {
            h2 id="by-name" { "By its scoped key" }
            form method="get" action=(links.to("keys")) {
                (field(SCOPED_KEY, "Scoped key", fields.text(SCOPED_KEY)).of("As logs and traces have it: idem:v1: and 22 characters.", true))
                button type="submit" { "Look up" }
            }
        }
        section aria-labelledby="by-caller" {
            h2 id="by-caller" { "By the caller and the client’s key" }
            form method="post" action=(links.to("keys")) {
                p.hint { "Changes nothing. It is sent by POST so that neither stands in a URL or a log; the page it leads to is named by the scoped key." }
                div.field {
                    label for=(KIND) { "The caller is" }
                    select id=(KIND) name=(KIND) {
                        @for (name, of_kind, label) in KINDS {
                            option value=(name) selected[of_kind == kind] { (label) }
                        }
                    }
                }
                (field(CALLER, "Caller", caller).of("The principal as the service’s policy has it.", true))
                (field(KEY, "Idempotency key", fields.text(KEY)).of("As the client sent it; quotes around it are taken off.", true))
                fieldset {
                    legend { "Endpoint" }
                    p.hint { "Only where the policy’s scope is the endpoint; else leave both empty." }
                    (field(METHOD, "Method", fields.text(METHOD)).of("Such as POST.", false))
                    (field(PATH, "Path", fields.text(PATH)).of("The original one, before any router took a prefix away.", false))
                }
                button type="submit" { "Derive and look up" }
            }
            @if console.secret.is_none() {
                p.muted { "This console has no scope secret. Where the service’s layers have one, no key is found this way." }
            }
        }
    }
}

/// One field of the forms.
struct Field<'a> {
    name: &'static str,
    label: &'static str,
    value: &'a str,
    wrong: Option<&'a Wrong>,
}

impl Field<'_> {
    fn of(&self, hint: &str, is_required: bool) -> Markup {
        let name = self.name;
        let wrong = self.wrong.filter(|wrong| wrong.field == name);
        let hint_id = format!("{name}-hint");
        let error_id = format!("{name}-error");
        let described = match wrong {
            Some(_) => format!("{error_id} {hint_id}"),
            None => hint_id.clone(),
        };
        html! {
            div.field {
                label for=(name) { (self.label) }
                p.hint id=(hint_id) { (hint) }
                @if let Some(wrong) = wrong { p.error id=(error_id) { "Error: " (wrong.message) } }
                input.mono type="text" id=(name) name=(name) value=(self.value)
                    required[is_required] autofocus[wrong.is_some()]
                    aria-describedby=(described) aria-invalid=[wrong.map(|_| "true")]
                    autocomplete="off" autocapitalize="none" spellcheck="false";
            }
        }
    }
}

fn kind_of(fields: &Fields, otherwise: Callers) -> Callers {
    let typed = fields.text(KIND);
    let known = KINDS.iter().find(|(name, ..)| *name == typed);
    known.map_or(otherwise, |(_, kind, _)| *kind)
}

/// An error's text as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    let mut sentence: String = first.into_iter().flatten().chain(letters).collect();
    sentence.push('.');
    sentence
}

const SCOPED_KEY: &str = "scoped-key";
const KIND: &str = "kind";
const CALLER: &str = "caller";
const KEY: &str = "key";
const METHOD: &str = "method";
const PATH: &str = "path";
const KINDS: [(&str, Callers, &str); 4] = [
    (
        "account",
        Callers::Accounts,
        "an account, tenant or API key",
    ),
    (
        "bearer",
        Callers::BearerTokens,
        "the holder of a bearer token",
    ),
    (
        "constant",
        Callers::Constants,
        "a constant, such as a webhook’s provider",
    ),
    ("queue", Callers::Queues, "a queue"),
];
