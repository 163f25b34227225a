//! What a request asks for, as a digest that tells a repeat from a reuse.
//!
//! A stored fingerprint names the scheme that made it, so that a comparison
//! can recompute under the stored scheme: a deploy that changes the options
//! accuses nobody.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{
    canonical::canonicalize,
    scope::{Principal, frame_into},
};

/// The parts of a request that a fingerprint covers. `Debug` shows their
/// extent, never what they hold.
#[derive(Clone, Copy)]
pub struct FingerprintInput<'a> {
    /// Who sent it.
    pub principal: &'a Principal,
    /// The method.
    pub method: &'a Method,
    /// The original path and query, before any router took a prefix away.
    pub path_and_query: &'a str,
    /// All request headers; only those the options choose are hashed.
    pub headers: &'a HeaderMap,
    /// The whole body.
    pub body: &'a Bytes,
}

impl fmt::Debug for FingerprintInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintInput")
            .field("method", &self.method)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

type BodyFunction = dyn Fn(&FingerprintInput<'_>) -> Vec<u8> + Send + Sync;

/// How a policy fingerprints its requests. Principal, method, original path
/// and query are always covered, except by [`FingerprintOptions::none`].
#[derive(Clone)]
pub struct FingerprintOptions {
    body: BodyForm,
    headers: Vec<HeaderName>,
    scheme: Arc<[u8]>,
}

#[derive(Clone)]
enum BodyForm {
    Raw,
    CanonicalJson,
    Custom {
        version: u32,
        function: Arc<BodyFunction>,
    },
    None,
}

impl FingerprintOptions {
    /// The body's bytes as they came. The default.
    pub fn raw() -> Self {
        Self::of(BodyForm::Raw)
    }

    /// The body as canonical JSON (RFC 8785), so that member order, white
    /// space and the spelling of numbers do not count. A body that cannot be
    /// canonicalised is hashed raw, under another tag.
    pub fn canonical_json() -> Self {
        Self::of(BodyForm::CanonicalJson)
    }

    /// What `function` returns stands in for the body, such as the digests of
    /// a form's parts without its boundary. Raise `version` whenever the
    /// function changes: rows of another version count as equal.
    pub fn custom(
        version: u32,
        function: impl Fn(&FingerprintInput<'_>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::of(BodyForm::Custom {
            version,
            function: Arc::new(function),
        })
    }

    /// Nothing is compared: every request with the key is a repeat. For
    /// webhooks, whose providers change the payload between deliveries.
    pub fn none() -> Self {
        Self::of(BodyForm::None)
    }

    /// Covers these headers too, each with all its values in order.
    #[must_use]
    pub fn with_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers.extend(names);
        self.headers.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        self.headers.dedup();
        self.scheme = scheme_of(&self.body, &self.headers);
        self
    }

    /// The fingerprint of `input` under these options.
    pub fn compute(&self, input: &FingerprintInput<'_>) -> Fingerprint {
        let mut bytes = Vec::with_capacity(self.scheme.len() + DIGEST_LENGTH);
        bytes.extend_from_slice(&self.scheme);
        if !matches!(self.body, BodyForm::None) {
            bytes.extend_from_slice(&self.digest(input));
        }
        Fingerprint(bytes.into())
    }

    /// The fingerprint of `input` under the scheme of `stored`, when these
    /// options can compute it (a custom function of another time is gone).
    pub(crate) fn recompute(
        stored: &Fingerprint,
        input: &FingerprintInput<'_>,
    ) -> Option<Fingerprint> {
        Self::of_scheme(stored.scheme()).map(|options| options.compute(input))
    }

    /// Whether this request is the one that left `stored` behind.
    pub fn compare(&self, stored: &Fingerprint, input: &FingerprintInput<'_>) -> Comparison {
        Self::compare_computed(&self.compute(input), stored, input)
    }

    /// The same for a request whose fingerprint is known already.
    pub(crate) fn compare_computed(
        computed: &Fingerprint,
        stored: &Fingerprint,
        input: &FingerprintInput<'_>,
    ) -> Comparison {
        match computed.judge(stored) {
            Judgement::Same => Comparison::Same,
            Judgement::Different => Comparison::Different,
            Judgement::Untold => Comparison::Unknown,
            Judgement::OtherScheme => match Self::recompute(stored, input) {
                Some(recomputed) if recomputed.same_digest(stored) => Comparison::Same,
                Some(_) => Comparison::Different,
                None => Comparison::Unknown,
            },
        }
    }

    /// Whether anything tells two requests apart.
    pub(crate) fn compares(&self) -> bool {
        !matches!(self.body, BodyForm::None)
    }

    fn of(body: BodyForm) -> Self {
        Self {
            scheme: scheme_of(&body, &[]),
            headers: Vec::new(),
            body,
        }
    }

    /// The options a stored scheme stands for; none for a custom function,
    /// whose code a stored row cannot hold, and for a scheme of a later crate.
    fn of_scheme(scheme: &[u8]) -> Option<Self> {
        let (&tag, rest) = scheme.split_first()?;
        let body = match tag & !WITH_HEADERS {
            RAW => BodyForm::Raw,
            CANONICAL_JSON => BodyForm::CanonicalJson,
            _ => return None,
        };
        let headers = if tag & WITH_HEADERS != 0 {
            let names = str::from_utf8(rest).ok()?.split(',');
            names
                .map(|name| name.parse().ok())
                .collect::<Option<Vec<_>>>()?
        } else {
            Vec::new()
        };
        Some(Self::of(body).with_headers(headers))
    }

    fn digest(&self, input: &FingerprintInput<'_>) -> [u8; DIGEST_LENGTH] {
        let mut hash = Sha256::new();
        let mut frame = |part: &[u8]| frame_into(part, |bytes| hash.update(bytes));
        frame(&self.scheme);
        input.principal.frame(&mut frame);
        frame(input.method.as_str().as_bytes());
        frame(input.path_and_query.as_bytes());
        for name in &self.headers {
            let values = input.headers.get_all(name);
            frame(&(values.iter().count() as u64).to_be_bytes());
            for value in values {
                frame(value.as_bytes());
            }
        }
        match &self.body {
            BodyForm::Raw => frame(input.body),
            BodyForm::CanonicalJson => {
                if let Ok(canonical) = canonicalize(input.body) {
                    frame(b"json");
                    frame(&canonical);
                } else {
                    frame(b"raw");
                    frame(input.body);
                }
            }
            BodyForm::Custom { function, .. } => frame(&function(input)),
            BodyForm::None => {}
        }
        hash.finalize().into()
    }
}

impl Default for FingerprintOptions {
    fn default() -> Self {
        Self::raw()
    }
}

impl fmt::Debug for FingerprintOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FingerprintOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            BodyForm::Raw => f.write_str("principal, method, path, query and body")?,
            BodyForm::CanonicalJson => {
                f.write_str("principal, method, path, query and canonical JSON body")?;
            }
            BodyForm::Custom { version, .. } => {
                write!(
                    f,
                    "principal, method, path, query and a function of the body (version {version})"
                )?;
            }
            BodyForm::None => return f.write_str("nothing"),
        }
        for name in &self.headers {
            write!(f, ", header {name}")?;
        }
        Ok(())
    }
}

const DIGEST_LENGTH: usize = 32;

// The first byte of a scheme: version 1 of the framing in the high half.
const RAW: u8 = 0x10;
const CANONICAL_JSON: u8 = 0x11;
const CUSTOM: u8 = 0x12;
const NONE: u8 = 0x13;
/// Names of the covered headers follow the first byte, joined by commas.
const WITH_HEADERS: u8 = 0x08;

fn scheme_of(body: &BodyForm, headers: &[HeaderName]) -> Arc<[u8]> {
    let mut scheme = match body {
        BodyForm::Raw => vec![RAW],
        BodyForm::CanonicalJson => vec![CANONICAL_JSON],
        BodyForm::Custom { version, .. } => [&[CUSTOM], &version.to_be_bytes()[..]].concat(),
        BodyForm::None => return [NONE].into(),
    };
    if !headers.is_empty() {
        scheme[0] |= WITH_HEADERS;
        let names: Vec<&str> = headers.iter().map(HeaderName::as_str).collect();
        scheme.extend_from_slice(names.join(",").as_bytes());
    }
    scheme.into()
}

/// A digest of a request together with the scheme that made it, as it is
/// stored: one byte (or a few) of scheme and 32 bytes of SHA-256.
#[derive(Clone, PartialEq, Eq)]
pub struct Fingerprint(Arc<[u8]>);

/// What [`FingerprintOptions::compare`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same request.
    Same,
    /// Another request under the same key.
    Different,
    /// Nothing to compare by: no fingerprint is kept, or the function that
    /// made it is gone.
    Unknown,
}

/// What two fingerprints tell by themselves, without the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Same,
    Different,
    /// One of the two says nothing about the request.
    Untold,
    /// Made differently: the request has to be hashed under the stored scheme.
    OtherScheme,
}

impl Fingerprint {
    /// Reads back what [`Fingerprint::as_bytes`] gave. Any bytes are taken:
    /// those of an unknown scheme match every request.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The form in which stores and archives keep it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn scheme(&self) -> &[u8] {
        match self.0.first() {
            Some(&NONE) => &self.0,
            _ => &self.0[..self.0.len().saturating_sub(DIGEST_LENGTH)],
        }
    }

    pub(crate) fn judge(&self, stored: &Self) -> Judgement {
        let (mine, theirs) = (self.scheme(), stored.scheme());
        if mine == [NONE] || theirs == [NONE] {
            Judgement::Untold
        } else if mine == theirs {
            if self.same_digest(stored) {
                Judgement::Same
            } else {
                Judgement::Different
            }
        } else if FingerprintOptions::of_scheme(theirs).is_some() {
            Judgement::OtherScheme
        } else {
            Judgement::Untold
        }
    }

    fn same_digest(&self, stored: &Self) -> bool {
        self.0.ct_eq(&stored.0).into()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}
