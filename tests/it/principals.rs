//! Who a key belongs to, and that two principals never meet.

use axum_idempotency::{
    IdempotencyKey, Principal, PrincipalSource, Retry, Scope, ScopeSecret, ScopedKey,
    store::Store as _,
};
use http::Method;

use crate::support::{Answer, Backend, Verb, Work, on_every_backend};

on_every_backend!(
    the_key_of_another_principal_is_an_unknown_key,
    the_key_of_another_principal_is_unknown_while_it_is_in_flight,
    the_bearer_scheme_is_read_in_any_case_and_the_token_is_not,
    a_head_that_does_not_say_who_calls_has_no_principal,
    two_authorization_headers_are_no_principal,
    a_header_set_by_a_gateway_is_a_principal,
    an_extension_set_by_an_outer_layer_is_a_principal,
    a_constant_is_not_the_account_of_the_same_name,
    a_bearer_token_is_not_the_account_of_the_same_name,
    one_key_names_independent_operations_under_the_endpoint_scope,
    one_key_at_two_endpoints_is_a_reuse_under_the_default_scope,
    nested_routers_are_told_apart_by_the_original_path,
    a_scope_secret_changes_every_name,
    a_replay_is_authorised_again,
);

async fn the_key_of_another_principal_is_an_unknown_key(backend: Backend) {
    let work = Work::answering(|seen| async move {
        let mut response = seen.charge();
        *response.body_mut() = "the same for all".into();
        response.headers_mut().remove("location");
        response
    });
    let shop = backend.shop().work(work).open().await;
    shop.post("/charges").key("k").from("alice").send().await;
    let taken = shop.post("/charges").key("k").from("bob").send().await;
    let unknown = shop.post("/charges").key("fresh").from("bob").send().await;
    assert_same(&taken, &unknown);
    let reused = shop
        .post("/charges")
        .key("k")
        .from("carol")
        .body("other")
        .send()
        .await;
    assert_same(&reused, &unknown);
    backend.clock.advance(std::time::Duration::from_hours(24));
    let late = shop.post("/charges").key("k").from("dave").send().await;
    assert_same(&late, &unknown);
    assert_eq!(shop.work.runs(), 5, "somebody got another's answer");
}

async fn the_key_of_another_principal_is_unknown_while_it_is_in_flight(backend: Backend) {
    let shop = backend.shop().open().await;
    let handler = shop.work.hold();
    let alice = shop.post("/charges").key("k").from("alice").start();
    handler.reached().await;
    shop.post("/charges")
        .key("k")
        .from("bob")
        .send()
        .await
        .expect_run(2);
    handler.open();
    alice.answer().await.expect_run(1);
}

async fn the_bearer_scheme_is_read_in_any_case_and_the_token_is_not(backend: Backend) {
    let shop = backend.shop().open().await;
    let ask = |value: &str| {
        let ask = shop.post("/charges").key("k").anonymous();
        ask.header("authorization", value).send()
    };
    let first = ask("Bearer tok").await;
    first.expect_run(1);
    for same in ["bearer tok", "BEARER tok", "Bearer  tok", "Bearer tok "] {
        ask(same).await.expect_replay_of(&first);
    }
    ask("Bearer TOK").await.expect_run(2);
}

async fn a_head_that_does_not_say_who_calls_has_no_principal(backend: Backend) {
    let shop = backend.shop().open().await;
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer   ",
        "Basic dTpw",
        "Bearertok",
        "tok",
    ] {
        let ask = shop.post("/charges").key("k").anonymous();
        let answer = ask.header("authorization", value).send().await;
        answer.expect_problem(401, "idempotency_principal_missing", Retry::Fix);
    }
    assert_eq!(shop.work.runs(), 0, "a request of nobody ran");
    assert_eq!(
        shop.store.calls(Verb::Claim),
        0,
        "a key of nobody was claimed"
    );
}

async fn two_authorization_headers_are_no_principal(backend: Backend) {
    let shop = backend.shop().open().await;
    for second in ["Bearer alice", "Bearer bob", "Basic dTpw"] {
        let ask = shop
            .post("/charges")
            .key("k")
            .header("authorization", second);
        let answer = ask.send().await;
        answer.expect_problem(401, "idempotency_principal_missing", Retry::Fix);
    }
    assert_eq!(shop.work.runs(), 0, "one of two identities was chosen");
}

async fn a_header_set_by_a_gateway_is_a_principal(backend: Backend) {
    let source = PrincipalSource::header("x-account".parse().unwrap());
    let shop = backend.shop().principal(source).open().await;
    let ask = || shop.post("/charges").key("k");
    let first = ask().header("x-account", "acct_1").send().await;
    first.expect_run(1);
    // What the bearer is does not count.
    let repeat = ask().from("bob").header("x-account", "acct_1").send().await;
    repeat.expect_replay_of(&first);
    ask()
        .header("x-account", "acct_2")
        .send()
        .await
        .expect_run(2);
    let twice = ask()
        .header("x-account", "acct_1")
        .header("x-account", "acct_1");
    for nobody in [ask(), ask().header("x-account", " "), twice] {
        let answer = nobody.send().await;
        answer.expect_problem(401, "idempotency_principal_missing", Retry::Fix);
    }
}

async fn an_extension_set_by_an_outer_layer_is_a_principal(backend: Backend) {
    #[derive(Clone)]
    struct Account(String);
    let source = PrincipalSource::extension(|account: &Account| Principal::new(&account.0));
    let shop = backend.shop().principal(source).in_memory();
    let ask = |account: &str| {
        let ask = shop.post("/charges").key("k");
        ask.extension(Account(account.to_owned())).send()
    };
    let first = ask("acct_1").await;
    first.expect_run(1);
    ask("acct_1").await.expect_replay_of(&first);
    ask("acct_2").await.expect_run(2);
    let nobody = shop.post("/charges").key("k").send().await;
    nobody.expect_problem(401, "idempotency_principal_missing", Retry::Fix);
}

async fn a_constant_is_not_the_account_of_the_same_name(backend: Backend) {
    let hooks = backend
        .shop()
        .principal(PrincipalSource::constant("stripe"))
        .open()
        .await;
    let account = PrincipalSource::from_fn(|_| Some(Principal::new("stripe")));
    let accounts = backend.shop().principal(account).open().await;
    hooks.post("/hooks").key("k").send().await.expect_run(1);
    accounts.post("/hooks").key("k").send().await.expect_run(1);
}

async fn a_bearer_token_is_not_the_account_of_the_same_name(backend: Backend) {
    let bearers = backend.shop().open().await;
    bearers
        .post("/charges")
        .key("k")
        .from("tok")
        .send()
        .await
        .expect_run(1);
    // Not even the account that is called like the token's hash.
    let hash = Principal::bearer("tok").id().to_vec();
    for name in [b"tok".to_vec(), hash] {
        let account = PrincipalSource::from_fn(move |_| Some(Principal::new(&name)));
        let accounts = backend.shop().principal(account).open().await;
        accounts
            .post("/charges")
            .key("k")
            .send()
            .await
            .expect_run(1);
    }
}

async fn one_key_names_independent_operations_under_the_endpoint_scope(backend: Backend) {
    let shop = backend
        .shop()
        .policy(|policy| policy.scope(Scope::PrincipalAndEndpoint))
        .open()
        .await;
    let charge = shop.post("/charges").key("k").send().await;
    charge.expect_run(1);
    shop.post("/refunds").key("k").send().await.expect_run(2);
    shop.request(Method::PATCH, "/charges")
        .key("k")
        .send()
        .await
        .expect_run(3);
    let repeat = shop.post("/charges").key("k").send().await;
    repeat.expect_replay_of(&charge);
    // The query belongs to the fingerprint, not to the endpoint.
    let other = shop.post("/charges?dry=1").key("k").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
}

async fn one_key_at_two_endpoints_is_a_reuse_under_the_default_scope(backend: Backend) {
    let shop = backend.shop().open().await;
    shop.post("/charges").key("k").send().await.expect_run(1);
    let other = shop.post("/refunds").key("k").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    let other = shop
        .request(Method::PATCH, "/charges")
        .key("k")
        .send()
        .await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);
    assert_eq!(shop.work.runs(), 1, "a reused key ran");
}

async fn nested_routers_are_told_apart_by_the_original_path(backend: Backend) {
    let nested = |opening: crate::support::Opening| {
        opening.routes(|work, layer| {
            let version = work.router().layer(layer.clone());
            axum::Router::new()
                .nest("/v1", version.clone())
                .nest("/v2", version)
        })
    };
    let shop = nested(backend.shop()).open().await;
    shop.post("/v1/charges").key("k").send().await.expect_run(1);
    let other = shop.post("/v2/charges").key("k").send().await;
    other.expect_problem(422, "idempotency_key_reused", Retry::NewKey);

    let endpoint = backend
        .shop()
        .policy(|policy| policy.scope(Scope::PrincipalAndEndpoint));
    let shop = nested(endpoint).open().await;
    shop.post("/v1/charges").key("e").send().await.expect_run(1);
    shop.post("/v2/charges").key("e").send().await.expect_run(2);
}

async fn a_scope_secret_changes_every_name(backend: Backend) {
    let store = backend.process();
    let secret = |text: &'static str| {
        backend
            .shop()
            .over(store.clone())
            .layer(move |layer| layer.scope_secret(ScopeSecret::new(text)))
    };
    let one = secret("one").open().await;
    one.post("/charges").key("k").send().await.expect_run(1);
    assert!(
        backend.record("k").await.is_none(),
        "the name can be found by trying"
    );
    let key = IdempotencyKey::new("k").unwrap();
    let named = |secret: &str| {
        let secret = ScopeSecret::new(secret);
        let alice = Principal::bearer("alice");
        let endpoint = (&Method::POST, "/charges");
        ScopedKey::derive(Some(&secret), Scope::Principal, &alice, endpoint, &key)
    };
    assert!(
        store.get(named("one")).await.unwrap().is_some(),
        "it is no HMAC"
    );
    assert_ne!(named("one"), named("two"));
    let two = secret("two").open().await;
    two.post("/charges").key("k").send().await.expect_run(1);
    let plain = backend.shop().over(store).open().await;
    plain.post("/charges").key("k").send().await.expect_run(1);
    let again = one.post("/charges").key("k").send().await;
    assert!(
        again.is_marked_as_replay(),
        "the same secret finds its record"
    );
}

/// The layer stands inside the one that authorises.
async fn a_replay_is_authorised_again(backend: Backend) {
    let is_revoked = tokio::sync::watch::Sender::new(false);
    let revoked = is_revoked.subscribe();
    let authorise = move |request: axum::extract::Request, next: axum::middleware::Next| {
        let is_revoked = *revoked.borrow();
        async move {
            if is_revoked {
                return axum::response::IntoResponse::into_response(http::StatusCode::FORBIDDEN);
            }
            next.run(request).await
        }
    };
    let shop = backend
        .shop()
        .outside(|router| router.layer(axum::middleware::from_fn(authorise)))
        .open()
        .await;
    let first = shop.post("/charges").key("k").send().await;
    shop.post("/charges")
        .key("k")
        .send()
        .await
        .expect_replay_of(&first);
    is_revoked.send_replace(true);
    let refused = shop.post("/charges").key("k").send().await;
    assert_eq!(
        refused.status, 403,
        "a replay went to a caller whose access was revoked"
    );
}

/// Equal in all that a client can see, but the time.
#[track_caller]
fn assert_same(one: &Answer, other: &Answer) {
    let seen = |answer: &Answer| {
        let mut headers = answer.headers.clone();
        headers.remove("date");
        (answer.status, answer.body.clone(), format!("{headers:?}"))
    };
    assert_eq!(
        seen(one),
        seen(other),
        "another's key can be told from an unknown one"
    );
}
