//! An outcome that is learned later.

use super::{Fixture, support::*};
use crate::{
    record::{Completion, Record, RecordState, ResourceId},
    store::{Fenced, Renewed},
};

fn learned() -> Completion {
    Completion {
        status: 201,
        resource_id: ResourceId::new("ch_found"),
        response: None,
    }
}

pub(super) async fn a_lapsed_record_takes_the_outcome(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let before = record(store, first.key).await;
    same(
        &amend(store, first.key, &learned()).await,
        &true,
        "the amendment",
    );
    let found = record(store, first.key).await;
    let expected = Record {
        token: found.token,
        state: RecordState::Completed(learned()),
        ..before
    };
    same(&found, &expected, "the record");
    let replayed = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&replayed.completion, &learned(), "the answer");
    claim(store, &reuse_of(&first))
        .await
        .mismatch("a reuse of the key");
}

pub(super) async fn only_a_lapsed_record_takes_it(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let absent = key("absent");
    same(
        &amend(store, absent, &learned()).await,
        &false,
        "the amendment of nothing",
    );
    no_record(store, absent, "after the amendment of nothing").await;

    let live = request("live");
    claim(store, &live).await.claimed("the first claim");
    same(
        &amend(store, live.key, &learned()).await,
        &false,
        "the amendment of a live lease",
    );
    claim(store, &retry_of(&live)).await.in_flight("a retry");

    let completed = request("completed");
    run(store, &completed, 500).await;
    let amended = amend(store, completed.key, &learned()).await;
    same(&amended, &false, "the amendment of a completed record");
    let found = claim(store, &retry_of(&completed))
        .await
        .completed("a retry");
    same(&found.completion, &answered(500), "the answer");
}

pub(super) async fn nothing_ran_under_an_unconfirmed_claim(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = old("k", now(store).await);
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    let before = record(store, first.key).await;
    let amended = amend(store, first.key, &learned()).await;
    same(&amended, &false, "the amendment of an unconfirmed claim");
    same(&record(store, first.key).await, &before, "the record");
}

pub(super) async fn an_amended_attempt_owns_nothing_any_more(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    same(
        &amend(store, first.key, &learned()).await,
        &true,
        "the amendment",
    );
    let done = complete(store, &first, &answered(500)).await;
    same(
        &done,
        &Fenced::Stale,
        "the completion by the attempt that was amended",
    );
    let renewed = renew(store, renewal_of(&first)).await;
    same(
        &renewed,
        &Renewed::Lost,
        "the renewal by the attempt that was amended",
    );
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&found.completion, &learned(), "the answer");
}

pub(super) async fn an_expired_record_takes_the_outcome(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = archived("k");
    let lease = claim(store, &first).await.claimed("the first claim");
    fixture.advance(TTL + HOUR).await;
    same(
        &amend(store, first.key, &learned()).await,
        &true,
        "the amendment",
    );
    let found = claim(store, &retry_of(&first))
        .await
        .expired("a late retry");
    same(&found.status, &201, "the status");
    same(
        &found.resource_id,
        &learned().resource_id,
        "the resource id",
    );
    same(&found.expired_at, &lease.expires_at, "the time of expiry");
}

pub(super) async fn a_record_takes_one_outcome(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let first = request("k");
    claim(store, &first).await.claimed("the first claim");
    fixture.advance(LEASE).await;
    same(
        &amend(store, first.key, &learned()).await,
        &true,
        "the amendment",
    );
    same(
        &amend(store, first.key, &answered(500)).await,
        &false,
        "the second amendment",
    );
    let found = claim(store, &retry_of(&first)).await.completed("a retry");
    same(&found.completion, &learned(), "the answer");
}
