//! No two different requests share a fingerprint or a scoped key because bytes
//! moved from one part into the next.

use axum_idempotency::{
    FingerprintInput, FingerprintOptions, IdempotencyKey, Principal, Scope, ScopeSecret, ScopedKey,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::{collection::vec, prelude::*, sample::select};

/// The parts of a request, cut out of one text at places of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    principal: String,
    method: String,
    path: String,
    first: Vec<String>,
    second: Vec<String>,
    body: String,
}

const NAMES: [&str; 2] = ["x-a", "x-b"];

impl Parts {
    /// Cuts `text` into eight pieces; of the four in the middle, the first
    /// `of_first` are values of the first header.
    fn cut(text: &str, mut cuts: Vec<usize>, of_first: usize) -> Self {
        for cut in &mut cuts {
            *cut %= text.len() + 1;
        }
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces = cuts.iter().map(|cut| {
            let piece = text[from..*cut].to_owned();
            from = *cut;
            piece
        });
        let mut next = || pieces.next().expect("seven cuts");
        let (principal, method, path) = (next(), next(), next());
        let mut values = vec![next(), next(), next(), next()];
        let second = values.split_off(of_first);
        Self {
            principal,
            method,
            path,
            first: values,
            second,
            body: text[*cuts.last().expect("seven cuts")..].to_owned(),
        }
    }

    fn fingerprint(&self, options: &FingerprintOptions) -> Vec<u8> {
        let mut headers = HeaderMap::new();
        for (name, values) in NAMES.into_iter().zip([&self.first, &self.second]) {
            for value in values {
                let value = HeaderValue::from_str(value).expect("letters are a value");
                headers.append(name, value);
            }
        }
        let method = format!("M{}", self.method);
        let input = FingerprintInput {
            principal: &Principal::new(&self.principal),
            method: &Method::from_bytes(method.as_bytes()).expect("letters are a method"),
            path_and_query: &self.path,
            headers: &headers,
            body: &Bytes::from(self.body.clone()),
        };
        options.compute(&input).as_bytes().to_vec()
    }

    fn scoped_key(&self, secret: Option<&ScopeSecret>, scope: Scope) -> ScopedKey {
        let method = format!("M{}", self.method);
        let method = Method::from_bytes(method.as_bytes()).expect("letters are a method");
        let key = IdempotencyKey::new(&format!("k{}", self.body)).expect("letters are a key");
        let principal = Principal::new(&self.principal);
        ScopedKey::derive(secret, scope, &principal, (&method, &self.path), &key)
    }
}

/// Texts that look like lengths, tags and names of the parts themselves.
fn text() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "a",
        "b",
        "A",
        "1",
        "json",
        "raw",
        "principal",
        "x-a",
        "M",
        "POST",
    ]);
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn all_options() -> Vec<FingerprintOptions> {
    let names = || NAMES.map(HeaderName::from_static);
    vec![
        FingerprintOptions::raw().with_headers(names()),
        FingerprintOptions::canonical_json().with_headers(names()),
        FingerprintOptions::custom(1, |input| input.body.to_vec()).with_headers(names()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes_that_move_between_parts_change_the_fingerprint(
        text in text(),
        one in vec(0_usize..64, 7),
        other in vec(0_usize..64, 7),
        of_first in (0_usize..=4, 0_usize..=4),
    ) {
        let one = Parts::cut(&text, one, of_first.0);
        let other = Parts::cut(&text, other, of_first.1);
        for options in all_options() {
            prop_assert_eq!(
                one == other,
                one.fingerprint(&options) == other.fingerprint(&options),
                "under {}", options
            );
        }
    }

    #[test]
    fn bytes_that_move_between_parts_change_the_scoped_key(
        text in text(),
        one in vec(0_usize..64, 7),
        other in vec(0_usize..64, 7),
    ) {
        let one = Parts::cut(&text, one, 0);
        let other = Parts::cut(&text, other, 0);
        let secret = ScopeSecret::new("s");
        for secret in [None, Some(&secret)] {
            let name = |parts: &Parts, scope| parts.scoped_key(secret, scope);
            let of_key = |parts: &Parts| (parts.principal.clone(), parts.body.clone());
            prop_assert_eq!(
                of_key(&one) == of_key(&other),
                name(&one, Scope::Principal) == name(&other, Scope::Principal)
            );
            let of_endpoint = |parts: &Parts| {
                (of_key(parts), parts.method.clone(), parts.path.clone())
            };
            prop_assert_eq!(
                of_endpoint(&one) == of_endpoint(&other),
                name(&one, Scope::PrincipalAndEndpoint) == name(&other, Scope::PrincipalAndEndpoint)
            );
            prop_assert_ne!(
                name(&one, Scope::Principal),
                name(&other, Scope::PrincipalAndEndpoint)
            );
        }
    }

    #[test]
    fn a_kind_of_principal_is_part_of_its_name(id in text()) {
        let key = IdempotencyKey::new("k").expect("a letter is a key");
        let endpoint = (&Method::POST, "/");
        let name = |principal: &Principal| {
            ScopedKey::derive(None, Scope::Principal, principal, endpoint, &key)
        };
        prop_assert_ne!(name(&Principal::new(&id)), name(&Principal::constant(&id)));
        prop_assert_ne!(name(&Principal::new(&id)), name(&Principal::bearer(&id)));
    }

    #[test]
    fn a_scoped_key_is_short_url_safe_text_that_reads_back(id in text(), key in "[a-z]{1,40}") {
        let key = IdempotencyKey::new(&key).expect("letters are a key");
        let principal = Principal::new(&id);
        let name = ScopedKey::derive(None, Scope::Principal, &principal, (&Method::POST, "/"), &key);
        let text = name.to_string();
        prop_assert_eq!(text.len(), "idem:v1:".len() + 22);
        let digest = text.strip_prefix("idem:v1:").expect("the prefix of the version");
        prop_assert!(digest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        prop_assert_eq!(text.parse(), Ok(name));
    }
}
