//! Who a key belongs to, and the name under which a record is stored.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use sha2::{Digest as _, Sha256};

use crate::key::IdempotencyKey;

/// The authenticated caller a key belongs to: an account, a tenant, an API
/// key, or, for webhooks, the provider.
///
/// Two principals never meet: the same key of another principal is an unknown
/// key. Neither `Debug` nor any log prints the identity.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    kind: PrincipalKind,
    id: Box<[u8]>,
}

/// Keeps identities of different origin apart, so that an account that is
/// called like a webhook provider is not that provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PrincipalKind {
    Account = 0,
    Bearer = 1,
    Constant = 2,
    Queue = 3,
}

impl Principal {
    /// The caller with this identity, as the authentication layer knows it.
    pub fn new(id: impl AsRef<[u8]>) -> Self {
        Self::of(PrincipalKind::Account, id.as_ref())
    }

    /// The caller who holds this bearer token. The token is hashed at once: a
    /// rotated token is therefore a new principal, with new keys.
    pub fn bearer(token: impl AsRef<[u8]>) -> Self {
        Self::of(PrincipalKind::Bearer, &Sha256::digest(token.as_ref()))
    }

    /// One fixed principal for all callers of a route, such as the provider
    /// that sends a webhook.
    pub fn constant(name: impl AsRef<[u8]>) -> Self {
        Self::of(PrincipalKind::Constant, name.as_ref())
    }

    /// The queue that a message comes from, for
    /// [`Worker`](crate::worker::Worker).
    pub fn queue(name: impl AsRef<[u8]>) -> Self {
        Self::of(PrincipalKind::Queue, name.as_ref())
    }

    /// The identity as given; for [`Principal::bearer`], the hash of the token.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    fn of(kind: PrincipalKind, id: &[u8]) -> Self {
        Self {
            kind,
            id: id.into(),
        }
    }

    /// Feeds the identity, framed, into a digest.
    pub(crate) fn frame(&self, frame: &mut impl FnMut(&[u8])) {
        frame(&[self.kind as u8]);
        frame(&self.id);
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal(..)")
    }
}

/// The namespace in which a key is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// (principal, key): a key names one intent, and sending it to a second
    /// endpoint is refused as a reuse. The default.
    #[default]
    Principal,
    /// (principal, method, path, key): the same key names independent
    /// operations on different endpoints. The path is the original one, before
    /// any router took a prefix away.
    PrincipalAndEndpoint,
}

/// A secret under which scoped keys are an HMAC.
///
/// Without one a scoped key is a pseudonym: whoever reads the table and can
/// guess an account and a key can check the guess.
#[derive(Clone)]
pub struct ScopeSecret {
    mac: Hmac<Sha256>,
    is_empty: bool,
}

impl ScopeSecret {
    /// A secret of any length; 32 random bytes are right.
    pub fn new(secret: impl AsRef<[u8]>) -> Self {
        let secret = secret.as_ref();
        // RFC 2104 section 2: a key of any length, a longer one hashed first.
        let key = if secret.len() > BLOCK {
            &Sha256::digest(secret)[..]
        } else {
            secret
        };
        let mut block = [0; BLOCK];
        block[..key.len()].copy_from_slice(key);
        Self {
            mac: Hmac::new(&block.into()),
            is_empty: secret.is_empty(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }
}

/// The block of SHA-256, in bytes.
const BLOCK: usize = 64;

impl fmt::Debug for ScopeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScopeSecret(..)")
    }
}

/// The name of a record in every store and archive: `idem:v1:` and 22
/// URL-safe characters, 128 bits of SHA-256 (or HMAC-SHA-256) over the framed
/// parts of the scope. No text of a client reaches a table or a log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopedKey([u8; ScopedKey::DIGEST_LENGTH]);

impl ScopedKey {
    pub(crate) const PREFIX: &'static str = "idem:v1:";
    const DIGEST_LENGTH: usize = 16;

    /// The scoped key of `key` as `principal` sent it to `endpoint` (method
    /// and path), which only [`Scope::PrincipalAndEndpoint`] looks at.
    pub fn derive(
        secret: Option<&ScopeSecret>,
        scope: Scope,
        principal: &Principal,
        endpoint: (&Method, &str),
        key: &IdempotencyKey,
    ) -> Self {
        let full: [u8; 32] = match secret {
            None => {
                let mut hash = Sha256::new();
                frame_parts(scope, principal, endpoint, key, &mut |part| {
                    frame_into(part, |bytes| hash.update(bytes));
                });
                hash.finalize().into()
            }
            Some(secret) => {
                let mut mac = secret.mac.clone();
                frame_parts(scope, principal, endpoint, key, &mut |part| {
                    frame_into(part, |bytes| mac.update(bytes));
                });
                mac.finalize().into_bytes().into()
            }
        };
        let mut digest = [0; Self::DIGEST_LENGTH];
        digest.copy_from_slice(&full[..Self::DIGEST_LENGTH]);
        Self(digest)
    }

    /// The digest's bytes, spread evenly: good for choosing a shard.
    pub fn digest(&self) -> &[u8; 16] {
        &self.0
    }
}

fn frame_parts(
    scope: Scope,
    principal: &Principal,
    (method, path): (&Method, &str),
    key: &IdempotencyKey,
    frame: &mut impl FnMut(&[u8]),
) {
    frame(ScopedKey::PREFIX.as_bytes());
    match scope {
        Scope::Principal => frame(b"principal"),
        Scope::PrincipalAndEndpoint => {
            frame(b"endpoint");
            frame(method.as_str().as_bytes());
            frame(path.as_bytes());
        }
    }
    principal.frame(frame);
    frame(key.as_str().as_bytes());
}

/// Length first, then the bytes: no two lists of parts run together.
pub(crate) fn frame_into(part: &[u8], mut update: impl FnMut(&[u8])) {
    update(&(part.len() as u64).to_be_bytes());
    update(part);
}

impl fmt::Display for ScopedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 22];
        let written = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text);
        debug_assert_eq!(written, Ok(text.len()));
        f.write_str(Self::PREFIX)?;
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ScopedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ScopedKey {
    type Err = InvalidScopedKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digest = text.strip_prefix(Self::PREFIX).ok_or(InvalidScopedKey)?;
        let bytes = URL_SAFE_NO_PAD
            .decode(digest)
            .map_err(|_| InvalidScopedKey)?;
        bytes.try_into().map(Self).map_err(|_| InvalidScopedKey)
    }
}

/// A text that is no scoped key: not `idem:v1:` and 22 URL-safe characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidScopedKey;

impl fmt::Display for InvalidScopedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a scoped key: expected idem:v1: and 22 URL-safe base64 characters")
    }
}

impl std::error::Error for InvalidScopedKey {}
