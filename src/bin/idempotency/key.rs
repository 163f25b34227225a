//! Which key: as the layer derives it, or as it stands in the tables.

use std::env;

use axum_idempotency::{
    IdempotencyKey, KeyError, KeySyntax, Principal, Scope, ScopeSecret, ScopedKey,
};
use clap::{ArgGroup, Args, ValueEnum};
use http::Method;

use super::fault::Fault;

/// Names one key. The text of a key or a principal is never printed.
#[derive(Args)]
#[command(
    group = ArgGroup::new("who").required(true).args([
        "principal", "principal_env", "bearer", "bearer_env", "constant", "queue", "scoped_key",
    ]),
    group = ArgGroup::new("what").required(true).args(["key", "key_env", "scoped_key"]),
)]
pub(crate) struct KeyArgs {
    /// Whose key it is: the identity that the authentication layer hands over
    /// (`Principal::new`).
    #[arg(long, value_name = "ID")]
    principal: Option<String>,

    /// The same, from this environment variable.
    #[arg(long, value_name = "NAME")]
    principal_env: Option<String>,

    /// Whose key it is, where bearer tokens are the principals
    /// (`PrincipalSource::bearer`). Prefer --bearer-env.
    #[arg(long, value_name = "TOKEN")]
    bearer: Option<String>,

    /// The same, from this environment variable: arguments stand in the list of
    /// processes.
    #[arg(long, value_name = "NAME")]
    bearer_env: Option<String>,

    /// The one principal of a route, such as a webhook's provider
    /// (`PrincipalSource::constant`).
    #[arg(long, value_name = "NAME")]
    constant: Option<String>,

    /// The queue of a worker (`Principal::queue`).
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// The key as the client sent it in its header, with quotes or without; of
    /// a webhook or a message, its id.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// The same, from this environment variable.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,

    /// The scoped key itself, as tables and logs have it: `idem:v1:…`.
    #[arg(long, value_name = "SCOPED_KEY")]
    scoped_key: Option<String>,

    /// The namespace in which the policy has its keys unique.
    #[arg(long, value_enum, default_value_t)]
    scope: ScopeArg,

    /// The method of the request, for --scope endpoint.
    #[arg(long, value_name = "METHOD", default_value = "POST")]
    method: Method,

    /// The original path of the request, without its query, such as
    /// /v1/refunds: for --scope endpoint.
    #[arg(long, value_name = "PATH", required_if_eq("scope", "endpoint"))]
    path: Option<String>,

    /// The environment variable that holds the layer's scope secret, byte for
    /// byte, where it has one.
    #[arg(long, value_name = "NAME")]
    secret_env: Option<String>,
}

impl std::fmt::Debug for KeyArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyArgs(..)")
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ScopeArg {
    /// Principal and key.
    #[default]
    Principal,
    /// Principal, method, path and key.
    Endpoint,
}

impl KeyArgs {
    /// The name under which the record is stored.
    pub(crate) fn scoped(&self) -> Result<ScopedKey, Fault> {
        if let Some(text) = &self.scoped_key {
            return Ok(text.trim().parse::<ScopedKey>()?);
        }
        let secret = match &self.secret_env {
            Some(name) => Some(ScopeSecret::new(variable(name)?)),
            None => None,
        };
        let scope = match self.scope {
            ScopeArg::Principal => Scope::Principal,
            ScopeArg::Endpoint => Scope::PrincipalAndEndpoint,
        };
        let path = self.path.as_deref().unwrap_or_default();
        Ok(ScopedKey::derive(
            secret.as_ref(),
            scope,
            &self.principal()?,
            (&self.method, path),
            &self.key()?,
        ))
    }

    fn principal(&self) -> Result<Principal, Fault> {
        Ok(match self {
            Self {
                constant: Some(name),
                ..
            } => Principal::constant(name),
            Self {
                queue: Some(name), ..
            } => Principal::queue(name),
            Self {
                bearer: Some(token),
                ..
            } => bearer(token)?,
            Self {
                bearer_env: Some(name),
                ..
            } => bearer(&variable(name)?)?,
            Self {
                principal_env: Some(name),
                ..
            } => Principal::new(variable(name)?),
            Self { principal, .. } => Principal::new(principal.as_deref().unwrap_or_default()),
        })
    }

    fn key(&self) -> Result<IdempotencyKey, Fault> {
        let text = match &self.key_env {
            Some(name) => variable(name)?,
            None => self.key.clone().unwrap_or_default(),
        };
        // Ids of webhooks and messages are any text.
        let is_id = self.constant.is_some() || self.queue.is_some();
        let key = if is_id {
            IdempotencyKey::from_id(&text)
        } else {
            KeySyntax::Lenient.parse([text.as_bytes()])
        };
        key.map_err(|error: KeyError| {
            let reason = error.reason();
            Fault::new(format!("no service takes this key: {reason}"))
        })
    }
}

/// As a header is read: without the spaces around it.
fn bearer(token: &str) -> Result<Principal, Fault> {
    let token = token.trim_ascii();
    if token.is_empty() {
        return Err(Fault::new("the bearer token is empty"));
    }
    Ok(Principal::bearer(token))
}

fn variable(name: &str) -> Result<String, Fault> {
    let value = env::var(name).ok().filter(|value| !value.is_empty());
    value.ok_or_else(|| Fault::new(format!("the environment variable {name} is not set")))
}
