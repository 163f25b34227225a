//! A claim whose connection breaks while the server commits it: the lock that
//! its repetition meets is its own.

use std::time::Duration;

use axum_idempotency::{
    claim::ClaimRequest,
    store::{Store as _, postgres::PostgresStore},
};
use tokio::time::sleep;

use super::{Fixture, Raw, in_time, key, leased, request};
use crate::support::postgres::Proxy;

/// Claims by way of a proxy, and cuts the connection in mid-commit.
async fn claim_cut_in_commit(fixture: &Fixture, claim: ClaimRequest) -> u32 {
    let mut raw = fixture.raw().await;
    raw.script(SLOW_COMMIT).await;
    let proxy = Proxy::before(&fixture.schema.url());
    let store = PostgresStore::open(&proxy.url()).await.expect("a store");
    let (answer, ()) = tokio::join!(store.claim(claim), async {
        is_committing(&mut raw).await;
        raw.run("ALTER TABLE naps RENAME TO no_naps").await;
        proxy.cut();
    });
    leased(answer.expect("an answer")).attempt
}

async fn is_committing(raw: &mut Raw) {
    raw.until(
        "SELECT count(*) > 0 FROM pg_stat_activity \
         WHERE application_name = current_setting('application_name') \
           AND wait_event = 'PgSleep'",
    )
    .await;
}

#[tokio::test]
async fn a_fresh_claim_cut_in_mid_commit_is_this_attempts_own() {
    in_time(async {
        let fixture = Fixture::new().await;
        let attempt = claim_cut_in_commit(&fixture, request(key("cut"))).await;
        assert_eq!(attempt, 1);
    })
    .await;
}

#[tokio::test]
async fn a_takeover_cut_in_mid_commit_is_this_attempts_own() {
    in_time(async {
        let fixture = Fixture::new().await;
        let mut first = request(key("cut"));
        first.lease = Duration::from_millis(1);
        leased(fixture.store.claim(first).await.expect("an answer"));
        sleep(Duration::from_millis(5)).await;
        let attempt = claim_cut_in_commit(&fixture, request(key("cut"))).await;
        assert_eq!(attempt, 2);
    })
    .await;
}

/// Whoever commits a record sleeps, as long as there is a table of that name.
/// The server does not notice meanwhile that its client has gone.
const SLOW_COMMIT: &str = "
CREATE TABLE naps ();
CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('naps') IS NOT NULL THEN
        PERFORM pg_sleep(0.7);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER nap AFTER INSERT OR UPDATE ON idempotency_keys
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap();
";
