//! What a key is, and whose it is.

use super::{Site, http::Answer, ulid};

on_every_store!(
    a_key_is_of_one_endpoint_only_where_the_scope_says_so,
    the_same_key_and_body_under_another_path_is_another_request,
    tenants_never_see_each_other,
    a_quoted_key_and_a_bare_one_are_the_same,
    a_request_without_one_usable_key_runs_nothing,
);

async fn the_same_key_and_body_under_another_path_is_another_request(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let first = service.post("/v1/echo").key(&key).body("charge");
    let answer = first.send().await;
    assert_eq!(answer.status, 200, "{answer}");
    for other in ["/v2/echo", "/echo", "/v1/echo?delay_ms=0"] {
        let other = service.post(other).key(&key).body("charge").send().await;
        other.problem(422, "idempotency_key_reused");
    }
    first.send().await.must_replay(&answer);
    assert_eq!(service.executions(&key).await, 1);
}

async fn a_key_is_of_one_endpoint_only_where_the_scope_says_so(site: Site) {
    let service = site.set("SCOPE", "endpoint").testbed().await;
    let key = ulid();
    for (path, execution) in [("/v1/echo", 1), ("/v2/echo", 2), ("/echo", 3)] {
        let request = service.post(path).key(&key).body("charge");
        let answer = request.send().await;
        assert_eq!(answer.json()["execution"], execution, "{path}: {answer}");
        request.send().await.must_replay(&answer);
        let other = request.body("another charge").send().await;
        other.problem(422, "idempotency_key_reused");
    }
    assert_eq!(service.executions(&key).await, 3);
}

async fn tenants_never_see_each_other(site: Site) {
    let service = site.testbed().await;
    let key = ulid();
    let request = |tenant| {
        service
            .post("/echo?size=300")
            .key(&key)
            .tenant(tenant)
            .body("charge")
    };
    let theirs = request("acct_1").send().await;
    let ours = request("acct_2").send().await;
    let (json, their_json) = (ours.json(), theirs.json());
    assert!(!ours.is_replay(), "{ours}");
    assert_eq!(json["execution"], 1, "{ours}");
    assert_ne!(json["id"], their_json["id"]);
    let names = |answer: &Answer| {
        let names = [
            "content-type",
            "content-length",
            "location",
            "retry-after",
            "cache-control",
        ];
        names.map(|name| answer.header(name).is_some())
    };
    assert_eq!(
        names(&ours),
        names(&theirs),
        "nothing tells that the key is known"
    );
    request("acct_1").send().await.must_replay(&theirs);
    request("acct_2").send().await.must_replay(&ours);
    let unknown = service
        .get(&format!("/executions?key={key}"))
        .tenant("acct_3");
    assert_eq!(unknown.send().await.json()["count"], 0);

    let nobody = request("acct_1").anonymous().send().await;
    nobody.problem(401, "idempotency_principal_missing");
    assert_eq!(service.total().await, 2);
}

async fn a_quoted_key_and_a_bare_one_are_the_same(site: Site) {
    let service = site.testbed().await;
    let first = service.post("/echo").key("k").body("charge").send().await;
    let quoted = service.post("/echo").key("\"k\"").body("charge");
    quoted.send().await.must_replay(&first);
    let upper = service.post("/echo").key("K").body("charge").send().await;
    assert!(!upper.is_replay(), "case matters: {upper}");
    assert_eq!(service.executions("k").await, 1);
    assert_eq!(service.executions("K").await, 1);
}

async fn a_request_without_one_usable_key_runs_nothing(site: Site) {
    let service = site.testbed().await;
    let missing = service.post("/echo").body("charge").send().await;
    let problem = missing.problem(400, "idempotency_key_missing");
    assert_eq!(problem["header"], "Idempotency-Key");

    let long = "k".repeat(256);
    let unusable = [
        vec!["k", "k"],
        vec!["a", "b"],
        vec![""],
        vec!["\"k"],
        vec!["a b"],
        vec![&long],
    ];
    for keys in unusable {
        let request = service.post("/echo").body("charge");
        let request = keys.iter().fold(request, |request, key| request.key(key));
        let answer = request.send().await;
        let problem = answer.problem(400, "idempotency_key_invalid");
        assert_eq!(problem["retry"], "fix");
        assert!(problem["reason"].is_string(), "{keys:?}: {answer}");
    }
    assert_eq!(service.total().await, 0);
    let longest = service.post("/echo").key(&long[1..]).send().await;
    assert_eq!(longest.status, 200, "{longest}");
}
