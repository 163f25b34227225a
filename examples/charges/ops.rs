//! The console for operators, at `/ops/`, where `OPS_PASSWORD` is set.

use std::{env, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use axum_idempotency::console::{Callers, Console};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use subtle::ConstantTimeEq as _;

use super::support::Backend;

/// Adds the console behind HTTP's basic authentication, with any name and that
/// password. Yours may be single sign-on.
pub(crate) fn mount(router: Router, backend: &Backend) -> Router {
    let Some(password) = env::var("OPS_PASSWORD")
        .ok()
        .filter(|text| !text.is_empty())
    else {
        return router;
    };
    let console = Console::new(backend.connection.inspector())
        .title("Charges")
        .callers(Callers::BearerTokens)
        .router();
    let guard = from_fn_with_state(Arc::<str>::from(password), operators_only);
    router.nest("/ops", console.layer(guard))
}

async fn operators_only(
    State(password): State<Arc<str>>,
    request: Request,
    next: Next,
) -> Response {
    let shown = shown(request.headers()).unwrap_or_default();
    if bool::from(shown.as_bytes().ct_eq(password.as_bytes())) {
        return next.run(request).await;
    }
    let ask = [(WWW_AUTHENTICATE, "Basic realm=\"operators\"")];
    (StatusCode::UNAUTHORIZED, ask).into_response()
}

/// The password of a request (RFC 7617 section 2).
fn shown(headers: &HeaderMap) -> Option<String> {
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let shown = STANDARD.decode(shown.strip_prefix("Basic ")?).ok()?;
    let (_name, password) = std::str::from_utf8(&shown).ok()?.split_once(':')?;
    Some(password.to_owned())
}
