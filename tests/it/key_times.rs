//! The time that a key carries, and what the layer makes of it.

use std::time::Duration;

use axum_idempotency::{ArchiveLookup, Clock as _, Retry};

use crate::support::{Backend, Opening, Verb, on_every_backend, ulid_of};

on_every_backend!(
    a_uuid_of_version_7_tells_its_age_like_a_ulid,
    a_key_made_ahead_of_time_is_kept_as_much_longer,
    a_key_made_up_to_a_day_ahead_is_taken,
    a_time_beyond_ten_years_is_no_time,
    a_time_beyond_ten_years_does_not_hide_an_archived_record,
    a_time_before_2010_is_no_time,
);

fn all_keys(opening: Opening) -> Opening {
    opening.policy(|policy| policy.archive_lookup(ArchiveLookup::AllKeys))
}

async fn a_uuid_of_version_7_tells_its_age_like_a_ulid(backend: Backend) {
    let shop = backend.shop().open().await;
    let made = |age: Duration| {
        let ms = (backend.clock.now() - age).as_millisecond();
        let ms = u64::try_from(ms).unwrap().to_be_bytes();
        let bytes = [ms[2], ms[3], ms[4], ms[5], ms[6], ms[7], 1, 2, 3, 4];
        let random = uuid::Builder::from_unix_timestamp_millis(0, &bytes[..].try_into().unwrap());
        let mut whole = random.into_uuid().into_bytes();
        whole[..6].copy_from_slice(&bytes[..6]);
        uuid::Uuid::from_bytes(whole).to_string()
    };
    shop.post("/charges")
        .key(&made(Duration::ZERO))
        .send()
        .await
        .expect_run(1);
    assert_eq!(shop.archive.calls(Verb::Lookup), 0, "a young key");
    shop.post("/charges")
        .key(&made(2 * DAY))
        .send()
        .await
        .expect_run(2);
    assert_eq!(shop.archive.calls(Verb::Lookup), 1, "an old key");
}

async fn a_key_made_ahead_of_time_is_kept_as_much_longer(backend: Backend) {
    let ahead = Duration::from_hours(1);
    let shop = backend.shop().open().await;
    let key = backend.ulid_made_ahead(ahead);
    let first = shop.post("/charges").key(&key).send().await;
    first.expect_run(1);
    let record = backend
        .record(&key)
        .await
        .expect("the request left a record");
    assert_eq!(record.expires_at, record.created_at + ahead + DAY);
    let window = DAY + ahead;
    backend
        .clock
        .advance(window.saturating_sub(Duration::from_secs(1)));
    shop.post("/charges")
        .key(&key)
        .send()
        .await
        .expect_replay_of(&first);
    backend.clock.advance(Duration::from_secs(1));
    backend.sweep().await;
    let late = shop.post("/charges").key(&key).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
}

async fn a_key_made_up_to_a_day_ahead_is_taken(backend: Backend) {
    let shop = backend.shop().open().await;
    let last = backend.ulid_made_ahead(DAY);
    shop.post("/charges").key(&last).send().await.expect_run(1);
    let beyond = backend.ulid_made_ahead(DAY + Duration::from_millis(1));
    let refused = shop.post("/charges").key(&beyond).send().await;
    refused.expect_problem(400, "idempotency_key_invalid", Retry::Fix);
    let all = all_keys(backend.shop()).open().await;
    all.post("/charges").key(&beyond).send().await.expect_run(1);
}

async fn a_time_beyond_ten_years_is_no_time(backend: Backend) {
    let shop = backend.shop().open().await;
    let opaque = backend.ulid_made_ahead(3_654 * DAY);
    shop.post("/charges")
        .key(&opaque)
        .send()
        .await
        .expect_run(1);
    let record = backend
        .record(&opaque)
        .await
        .expect("the request left a record");
    assert_eq!(
        record.expires_at,
        record.created_at + DAY,
        "it is as opaque as any"
    );
    let refused = backend.ulid_made_ahead(3_650 * DAY);
    let refused = shop.post("/charges").key(&refused).send().await;
    refused.expect_problem(400, "idempotency_key_invalid", Retry::Fix);
}

/// The key is opaque, so that its record expires by the store's clock; a
/// lookup that took its "time" for a lower bound would miss the row.
async fn a_time_beyond_ten_years_does_not_hide_an_archived_record(backend: Backend) {
    let shop = all_keys(backend.shop()).open().await;
    let opaque = backend.ulid_made_ahead(3_654 * DAY);
    shop.post("/charges")
        .key(&opaque)
        .send()
        .await
        .expect_run(1);
    backend.clock.advance(DAY);
    assert_eq!(backend.sweep().await, 1);
    let late = shop.post("/charges").key(&opaque).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    // By now the same "time" lies within ten years.
    backend.clock.advance(2 * DAY);
    let late = shop.post("/charges").key(&opaque).send().await;
    late.expect_problem(409, "idempotency_key_expired", Retry::Reconcile);
    assert_eq!(shop.work.runs(), 1, "a late retry ran again");
}

async fn a_time_before_2010_is_no_time(backend: Backend) {
    let shop = backend.shop().open().await;
    let key = ulid_of("2009-12-31T23:59:59Z".parse().unwrap());
    shop.post("/charges").key(&key).send().await.expect_run(1);
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        0,
        "an opaque key was looked up"
    );
    let key = ulid_of("2010-01-01T00:00:00Z".parse().unwrap());
    shop.post("/charges").key(&key).send().await.expect_run(2);
    assert_eq!(
        shop.archive.calls(Verb::Lookup),
        1,
        "an old key was not looked up"
    );
}

const DAY: Duration = Duration::from_hours(24);
