//! The key on the wire, and whose it is.

use axum_idempotency::{
    KeyError, KeySyntax,
    client::{Key, UnusableKey},
};
use http::{HeaderName, Method, StatusCode};

use super::support::{Client, answering, bare, patient};
use crate::support::{Backend, Work, ulid_of};

#[tokio::test]
async fn post_and_patch_get_a_ulid_of_now_and_other_methods_nothing() {
    let backend = Backend::memory();
    let work = answering([|| axum::response::IntoResponse::into_response(StatusCode::BAD_GATEWAY)]);
    for method in [
        Method::POST,
        Method::PATCH,
        Method::PUT,
        Method::DELETE,
        Method::GET,
    ] {
        let client = Client::over(&bare(&work), patient(&backend));
        let answer = client.request(method.clone(), "/charges").send().await;
        let answer = answer.unwrap();
        if method == Method::POST || method == Method::PATCH {
            assert_eq!(client.attempts(), 10, "{method} is retried");
            let key = Key::new(&client.only_key()).expect("a key");
            let now = axum_idempotency::Clock::now(&backend.clock);
            assert_eq!(key.made_at(), Some(now), "a ULID of now");
            assert_eq!(Key::of_response(&answer), Some(&key));
        } else {
            assert_eq!(client.keys(), [Vec::<String>::new()], "{method}");
            assert_eq!(Key::of_response(&answer), None);
        }
    }
}

#[tokio::test]
async fn the_methods_and_the_header_can_be_others() {
    let name = HeaderName::from_static("x-request-key");
    let settings = patient(&Backend::memory())
        .methods([Method::PUT])
        .header(name.clone());
    let work = Work::charging();
    let client = Client::over(&bare(&work), settings);
    client
        .request(Method::PUT, "/charges")
        .send()
        .await
        .unwrap();
    client.post("/charges").send().await.unwrap();
    let keys = client.lines_of(name.as_str());
    assert_eq!((keys[0].len(), keys[1].len()), (1, 0), "{keys:?}");
    assert!(client.keys().concat().is_empty());
}

#[tokio::test]
async fn a_header_that_is_there_is_left_as_it_is() {
    for line in ["order-1", "\"order 1\"", "\"order-1\";v=2"] {
        let work = Work::charging();
        let client = Client::over(&bare(&work), patient(&Backend::memory()));
        let charge = client.post("/charges").header("idempotency-key", line);
        let answer = charge.with_extension(Key::generate()).send().await;
        assert_eq!(client.keys(), [[line]]);
        let answer = answer.unwrap();
        let key = Key::of_response(&answer).expect("the key of the header");
        assert!(["order-1", "order 1"].contains(&key.as_str()));
    }
}

#[tokio::test]
async fn the_callers_key_is_sent_and_comes_back() {
    let work = Work::charging();
    let client = Client::over(&bare(&work), patient(&Backend::memory()));
    let key = Key::new("order 1").expect("a key");
    let charge = client.post("/charges").with_extension(key.clone());
    let answer = charge.send().await.unwrap();
    assert_eq!(client.keys(), [["\"order 1\""]]);
    assert_eq!(Key::of_response(&answer), Some(&key));
}

#[tokio::test]
async fn a_server_of_the_strict_syntax_takes_structured_fields_and_no_bare_keys() {
    let backend = Backend::memory();
    let shop = backend
        .shop()
        .policy(|policy| policy.key_syntax(KeySyntax::Strict))
        .in_memory();
    let bare = Client::with(&shop, patient(&backend));
    let answer = bare.post("/charges").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let quoted = Client::with(&shop, patient(&backend).structured_field());
    let answer = quoted.post("/charges").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(quoted.only_key().len(), 28, "26 characters in quotes");
}

#[tokio::test]
async fn a_header_that_no_server_would_take_is_refused_before_it_is_sent() {
    let work = Work::charging();
    for (lines, reason) in [
        (&[""][..], KeyError::Empty),
        (&["a,b"], KeyError::BadCharacter),
        (&["\"open"], KeyError::BadSyntax),
        (&["one", "two"], KeyError::MultipleValues),
    ] {
        let client = Client::over(&bare(&work), patient(&Backend::memory()));
        let mut charge = client.post("/charges");
        for line in lines {
            charge = charge.header("idempotency-key", *line);
        }
        let error = charge.send().await.unwrap_err();
        let unusable = UnusableKey::from_error(&error).expect("the key is refused");
        assert_eq!(unusable.reason, reason, "{lines:?}");
        assert_eq!(client.attempts(), 0, "{lines:?} was sent");
    }
}

#[tokio::test]
async fn a_restored_key_keeps_the_time_it_was_made_at() {
    let backend = Backend::memory();
    let made_at = axum_idempotency::Clock::now(&backend.clock);
    let key = Key::new(&ulid_of(made_at)).expect("a key");
    assert_eq!(key.made_at(), Some(made_at));
    assert_eq!(Key::new("order-1").expect("a key").made_at(), None);
}
