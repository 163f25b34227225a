//! An answer is erased, and what happened stays known.

use super::{Fixture, support::*};
use crate::{
    inspect::{InspectStore, LiveRecord, LiveState},
    record::{Completion, Record, RecordState},
    scope::ScopedKey,
};

async fn erase(inspect: &dyn InspectStore, key: ScopedKey) -> bool {
    ok(inspect.erase_response(key).await, "an erasure")
}

/// The same completion without its answer.
fn erased(completion: Completion) -> Completion {
    Completion {
        response: None,
        ..completion
    }
}

pub(super) async fn an_erased_answer_is_gone_and_the_rest_stays(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    run(store, &first, 201).await;
    let (before, told) = (
        record(store, first.key).await,
        live(inspect, first.key).await,
    );
    fixture.advance(MINUTE).await;
    same(&erase(inspect, first.key).await, &true, "the erasure");
    let expected = Record {
        state: RecordState::Completed(erased(answered(201))),
        ..before
    };
    same(&record(store, first.key).await, &expected, "the record");
    let after = live(inspect, first.key).await;
    let LiveState::Completed {
        completed_at,
        status,
        ref resource_id,
        ..
    } = told.state
    else {
        panic!("expected a completed record, got {told:?}");
    };
    let expected = LiveRecord {
        state: LiveState::Completed {
            completed_at,
            status,
            resource_id: resource_id.clone(),
            kept_bytes: None,
        },
        ..told
    };
    same(&after, &expected, "the record as an operator sees it");
}

pub(super) async fn a_repeat_after_an_erasure_is_told_that_it_was_not_kept(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    run(store, &first, 201).await;
    erase(inspect, first.key).await;
    let elsewhere = fixture.elsewhere().await;
    for store in [store, &*elsewhere] {
        let repeated = claim(store, &retry_of(&first)).await.completed("a repeat");
        let expected = erased(answered(201));
        same(&repeated.completion, &expected, "what a repeat is told");
        let reuse = claim(store, &reuse_of(&first)).await;
        reuse.mismatch("a reuse of the key");
    }
}

pub(super) async fn an_erased_record_expires_and_is_swept_like_any_other(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = archived("k");
    run(store, &first, 201).await;
    let tombstone = record(store, first.key).await.tombstone();
    erase(inspect, first.key).await;
    fixture.advance(TTL).await;
    let expired = claim(store, &retry_of(&first)).await.expired("a retry");
    same(&expired, &tombstone, "what a retry after expiry is told");
    let archive = fixture.archive();
    same(
        &sweep(store, archive.as_deref(), 100).await,
        &1,
        "the records that a sweep moves",
    );
    no_record(store, first.key, "after a sweep").await;
    if let Some(archive) = archive {
        let found = lookup(&*archive, first.key).await;
        same(&found, &Some(tombstone), "the archived row");
    }
}

pub(super) async fn there_is_nothing_to_erase_twice(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let first = request("k");
    run(store, &first, 201).await;
    same(&erase(inspect, first.key).await, &true, "the erasure");
    same(&erase(inspect, first.key).await, &false, "the second one");
}

pub(super) async fn only_a_completed_record_has_an_answer_to_erase(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let unknown = key("unknown");
    same(
        &erase(inspect, unknown).await,
        &false,
        "that of an unknown key",
    );
    no_record(store, unknown, "of an unknown key").await;

    let running = request("running");
    claim(store, &running).await.claimed("a claim");
    let before = record(store, running.key).await;
    same(&erase(inspect, running.key).await, &false, "what runs");
    same(&record(store, running.key).await, &before, "what runs");
    fixture.advance(LEASE).await;
    same(&erase(inspect, running.key).await, &false, "what lapsed");

    let not_kept = request("not kept");
    claim(store, &not_kept).await.claimed("a claim");
    let _ = complete(store, &not_kept, &erased(answered(201))).await;
    same(
        &erase(inspect, not_kept.key).await,
        &false,
        "an answer that was not kept",
    );
}

pub(super) async fn an_erasure_touches_its_own_key_only(fixture: &dyn Fixture) {
    let store = &*fixture.store();
    let Some(inspect) = inspected(fixture, store) else {
        return;
    };
    let (one, other) = (request("one"), request("other"));
    run(store, &one, 201).await;
    run(store, &other, 202).await;
    erase(inspect, one.key).await;
    let repeated = claim(store, &retry_of(&other)).await.completed("a repeat");
    same(&repeated.completion, &answered(202), "the other answer");
}
