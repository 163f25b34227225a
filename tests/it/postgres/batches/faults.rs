//! A row that the database refuses, and transactions that are in each other's
//! way.

use axum_idempotency::store::{Fenced, Renewal, Renewed, Store as _, StoreErrorKind};
use futures_util::future::join_all;

use super::{Fixture, completion, in_time, key, leased, promptly, refuse, request};
use crate::support::{Logs, attempt::LEASE};

const BAD: usize = 20;
const REFUSED: &str = "RAISE EXCEPTION 'not this one'";

#[tokio::test]
async fn a_claim_that_the_database_refuses_fails_alone() {
    in_time(async {
        let logs = Logs::capture();
        let fixture = Fixture::new().await;
        refuse(&mut fixture.raw().await, "INSERT", key(BAD), REFUSED).await;
        let claims = (0..41).map(|n| fixture.store.claim(request(key(n))));
        for (n, claim) in join_all(claims).await.into_iter().enumerate() {
            if n == BAD {
                let error = claim.expect_err("refused");
                assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            } else {
                leased(claim.expect("an answer"));
            }
        }
        assert_told(&logs);
    })
    .await;
}

fn assert_told(logs: &Logs) {
    let text = logs.text();
    let told = text.contains("asked again in smaller ones") && text.contains("not this one");
    assert!(told, "an operator is not told: {text}");
}

#[tokio::test]
async fn a_completion_that_the_database_refuses_fails_alone() {
    in_time(async {
        let logs = Logs::capture();
        let fixture = Fixture::new().await;
        let attempts = fixture.claims(41).await;
        refuse(&mut fixture.raw().await, "UPDATE", key(BAD), REFUSED).await;
        let done = attempts
            .iter()
            .map(|&(key, token)| fixture.store.complete(key, token, completion(201)));
        for (n, done) in join_all(done).await.into_iter().enumerate() {
            if n == BAD {
                let error = done.expect_err("refused");
                assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            } else {
                assert_eq!(done.expect("an answer"), Fenced::Owner);
            }
        }
        assert_told(&logs);
    })
    .await;
}

#[tokio::test]
async fn a_release_that_the_database_refuses_fails_alone() {
    in_time(async {
        let fixture = Fixture::new().await;
        let attempts = fixture.claims(41).await;
        refuse(&mut fixture.raw().await, "DELETE", key(BAD), REFUSED).await;
        let done = attempts
            .iter()
            .map(|&(key, token)| fixture.store.release(key, token));
        for (n, done) in join_all(done).await.into_iter().enumerate() {
            if n == BAD {
                done.expect_err("refused");
            } else {
                assert_eq!(done.expect("an answer"), Fenced::Owner);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_renewal_that_the_database_refuses_costs_no_other_its_lease() {
    in_time(async {
        let fixture = Fixture::new().await;
        let attempts = fixture.claims(41).await;
        refuse(&mut fixture.raw().await, "UPDATE", key(BAD), REFUSED).await;
        let renewals: Vec<_> = attempts
            .iter()
            .map(|&(key, token)| Renewal {
                key,
                token,
                lease: LEASE,
                confirmed: false,
            })
            .collect();
        let answers = fixture.store.renew(&renewals).await;
        let answers = answers.expect("the others are renewed, and told so");
        for (n, answer) in answers.into_iter().enumerate() {
            match answer {
                Renewed::Until(_) => assert_ne!(n, BAD, "refused"),
                Renewed::Locked => assert_eq!(n, BAD, "not refused"),
                Renewed::Lost => panic!("{n} is lost"),
            }
        }
        // Where all fail, all is told.
        let error = fixture.store.renew(&renewals[BAD..=BAD]).await;
        assert_eq!(
            error.expect_err("refused").kind(),
            StoreErrorKind::Unavailable
        );
    })
    .await;
}

/// A sequence counts also what is rolled back.
const IN_THE_WAY: &str = "IF nextval('tries') <= 5 THEN \
                          RAISE EXCEPTION 'in the way' USING ERRCODE = '";

#[tokio::test]
async fn transactions_that_were_in_each_others_way_are_repeated() {
    for (code, completes) in [("40001", true), ("40P01", false)] {
        in_time(async {
            let fixture = Fixture::new().await;
            let mut raw = fixture.raw().await;
            raw.run("CREATE SEQUENCE tries").await;
            let how = format!("{IN_THE_WAY}{code}'; END IF");
            refuse(&mut raw, "INSERT OR UPDATE OR DELETE", key(0), &how).await;
            let requests: Vec<_> = (0..20).map(|n| request(key(n))).collect();
            let token = requests[0].token;
            let claims = requests.into_iter().map(|one| fixture.store.claim(one));
            for claim in promptly("a repetition", join_all(claims)).await {
                leased(claim.expect("an answer"));
            }
            raw.run("ALTER SEQUENCE tries RESTART").await;
            let ended = if completes {
                fixture.store.complete(key(0), token, completion(201)).await
            } else {
                fixture.store.release(key(0), token).await
            };
            assert_eq!(ended.expect("an answer"), Fenced::Owner, "{code}");
        })
        .await;
    }
}
