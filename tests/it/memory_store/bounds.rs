//! How much the store takes, and what it drops to make room.

use std::time::Duration;

use axum_idempotency::{
    archive::MemoryArchive,
    store::{Fenced, Renewal, Store as _},
};

use super::{Bounded, Got, HOUR, LEASE, TTL, archived, claim, request};

#[tokio::test]
async fn a_full_store_takes_no_new_key_and_keeps_what_it_has() {
    let bounded = Bounded::new(3, usize::MAX);
    let names = ["completed", "lapsed", "live"];
    let [completed, lapsed, live] = names.map(archived);
    bounded.claim(&completed).await;
    bounded.complete(&completed, 100).await;
    bounded.claim(&lapsed).await;
    bounded.clock.advance(LEASE);
    bounded.claim(&live).await;

    assert_eq!(bounded.claim(&archived("new")).await, Got::Full);
    assert_eq!(bounded.claim(&archived("completed")).await, Got::Completed);
    assert_eq!(bounded.claim(&archived("live")).await, Got::InFlight);
    assert_eq!(bounded.claim(&archived("lapsed")).await, Got::Claimed);
    bounded.complete(&live, 100).await;
    assert_eq!(bounded.claim(&archived("new")).await, Got::Full);
    assert_eq!(bounded.claim(&archived("live")).await, Got::Completed);
}

#[tokio::test]
async fn a_release_makes_room() {
    let bounded = Bounded::new(1, usize::MAX);
    let first = request("first");
    bounded.claim(&first).await;
    assert_eq!(bounded.claim(&request("second")).await, Got::Full);
    let released = bounded.store.release(first.key, first.token).await;
    assert_eq!(released.unwrap(), Fenced::Owner);
    assert_eq!(bounded.claim(&request("second")).await, Got::Claimed);
}

#[tokio::test]
async fn an_erased_answer_makes_room() {
    let bounded = Bounded::new(10, 100);
    let first = request("first");
    bounded.claim(&first).await;
    bounded.complete(&first, 100).await;
    assert_eq!(bounded.claim(&request("second")).await, Got::Full);
    let operator = bounded.store.inspect().unwrap();
    assert!(operator.erase_response(first.key).await.unwrap());
    assert_eq!(operator.census().await.unwrap().bytes, Some(0));
    assert_eq!(bounded.claim(&request("second")).await, Got::Claimed);
    assert_eq!(bounded.claim(&first).await, Got::Completed);
}

#[tokio::test]
async fn with_an_archive_an_expired_record_is_never_dropped() {
    let bounded = Bounded::new(1, usize::MAX);
    let first = archived("first");
    bounded.claim(&first).await;
    bounded.complete(&first, 100).await;
    bounded.clock.advance(TTL);
    assert_eq!(bounded.claim(&archived("second")).await, Got::Full);
    assert_eq!(bounded.claim(&archived("first")).await, Got::Expired);

    let archive = MemoryArchive::new();
    assert_eq!(bounded.store.sweep(Some(&archive), 100).await.unwrap(), 1);
    assert_eq!(bounded.claim(&archived("second")).await, Got::Claimed);
}

#[tokio::test]
async fn without_an_archive_expired_records_make_room_oldest_first() {
    // More than a claim drops at once, spread over all shards.
    let bounded = Bounded::new(300, usize::MAX);
    for n in 0..300 {
        bounded.claim(&request(&format!("old {n}"))).await;
        bounded.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(bounded.claim(&request("early")).await, Got::Full);

    bounded.clock.advance(TTL);
    for n in 0..100 {
        assert_eq!(
            bounded.claim(&request(&format!("new {n}"))).await,
            Got::Claimed
        );
    }
    let mut left = Vec::new();
    for n in 0..300 {
        let key = request(&format!("old {n}")).key;
        left.extend(bounded.store.get(key).await.unwrap().map(|_| n));
    }
    let (dropped, last) = (300 - left.len(), left.last().copied());
    assert!(
        (100..=200).contains(&dropped),
        "{dropped} were dropped for 100"
    );
    assert_eq!(
        left,
        (dropped..300).collect::<Vec<_>>(),
        "the youngest are left"
    );
    assert_eq!(last, Some(299));
}

#[tokio::test]
async fn a_live_lease_past_its_ttl_is_not_dropped() {
    let bounded = Bounded::new(1, usize::MAX);
    let first = request("first");
    bounded.claim(&first).await;
    let renewal = Renewal {
        key: first.key,
        token: first.token,
        lease: 2 * TTL,
        confirmed: true,
    };
    bounded.store.renew(&[renewal]).await.unwrap();
    bounded.clock.advance(TTL + HOUR);
    assert_eq!(bounded.claim(&request("second")).await, Got::Full);
    bounded.complete(&first, 100).await;
    assert_eq!(bounded.claim(&request("second")).await, Got::Claimed);
}

#[tokio::test]
async fn bytes_gate_new_keys_and_never_a_completion() {
    let bounded = Bounded::new(usize::MAX, 1_000);
    let [first, second] = ["first", "second"].map(archived);
    bounded.claim(&first).await;
    bounded.claim(&second).await;
    bounded.complete(&first, 2_000).await;
    assert_eq!(bounded.claim(&archived("third")).await, Got::Full);
    bounded.complete(&second, 2_000).await;
    assert_eq!(bounded.claim(&archived("first")).await, Got::Completed);
    assert_eq!(bounded.claim(&archived("second")).await, Got::Completed);

    bounded.clock.advance(TTL);
    assert_eq!(bounded.store.sweep(None, 100).await.unwrap(), 2);
    assert_eq!(bounded.claim(&archived("third")).await, Got::Claimed);
}

#[tokio::test]
async fn without_an_archive_expired_bytes_make_room() {
    let bounded = Bounded::new(usize::MAX, 1_000);
    for n in 0..200 {
        let in_flight = request(&format!("in flight {n}"));
        bounded.claim(&in_flight).await;
    }
    let first = request("first");
    bounded.claim(&first).await;
    bounded.complete(&first, 2_000).await;
    assert_eq!(bounded.claim(&request("second")).await, Got::Full);
    bounded.clock.advance(TTL);
    assert_eq!(bounded.claim(&request("second")).await, Got::Claimed);
}

#[tokio::test]
async fn an_expired_record_is_replaced_in_a_full_store() {
    let bounded = Bounded::new(1, 1_000);
    let first = request("first");
    bounded.claim(&first).await;
    bounded.complete(&first, 2_000).await;
    bounded.clock.advance(TTL);
    assert_eq!(bounded.claim(&request("first")).await, Got::Claimed);
    assert!(
        bounded.holds().contains("records: 1, bytes: 0"),
        "{}",
        bounded.holds()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_capacity_is_exact_under_concurrency() {
    for expired in [0, 10] {
        let bounded = Bounded::new(10, usize::MAX);
        for n in 0..expired {
            bounded.claim(&request(&format!("old {n}"))).await;
        }
        bounded.clock.advance(TTL);
        let claims = (0..64).map(|n| {
            let store = bounded.store.clone();
            tokio::spawn(async move { claim(&store, &request(&format!("k{n}"))).await })
        });
        let mut claimed = 0;
        for claim in claims.collect::<Vec<_>>() {
            claimed += usize::from(claim.await.unwrap() == Got::Claimed);
        }
        assert_eq!(claimed, 10);
        assert!(
            bounded.holds().contains("records: 10,"),
            "{}",
            bounded.holds()
        );
    }
}
