//! Erasing what was answered.

use serde_json::Value;

use super::{
    Place,
    records::{Filled, PRINCIPAL},
};

on_every_place!(
    an_answer_is_erased_and_its_record_stays,
    without_a_yes_nothing_is_erased,
    what_has_no_answer_yet_or_is_unknown_is_no_success,
);

async fn forget(place: &Place, key: &str, more: &[&str], code: i32) -> Value {
    let arguments = ["forget", "--principal", PRINCIPAL, "--key", key, "--json"];
    let ran = place.run(&[&arguments[..], more].concat()).await;
    ran.exits(code).json()
}

async fn kept_bytes(place: &Place) -> Value {
    let found = place
        .json(&["lookup", "--principal", PRINCIPAL, "--key", "done"])
        .await;
    assert_eq!(found["live"]["status"], 201, "the record stays: {found:#}");
    found["live"]["kept_bytes"].clone()
}

async fn an_answer_is_erased_and_its_record_stays(place: Place) {
    Filled::at(&place).await;
    let forgotten = forget(&place, "done", &["--yes"], 0).await;
    assert_eq!(forgotten["erased"], true, "{forgotten:#}");
    assert!(kept_bytes(&place).await.is_null());
    let again = forget(&place, "done", &["--yes"], 0).await;
    assert_eq!(again["erased"], false, "{again:#}");
}

async fn without_a_yes_nothing_is_erased(place: Place) {
    Filled::at(&place).await;
    let asked = forget(&place, "done", &[], 0).await;
    assert_eq!(asked["dry_run"], true, "{asked:#}");
    assert_eq!(asked["erased"], false, "{asked:#}");
    assert!(kept_bytes(&place).await.as_u64() > Some(0));
}

async fn what_has_no_answer_yet_or_is_unknown_is_no_success(place: Place) {
    Filled::at(&place).await;
    for (key, state, code) in [
        ("running", "in_progress", 1),
        ("nobody", "unknown", 1),
        ("old", "archived", 0),
    ] {
        let forgotten = forget(&place, key, &["--yes"], code).await;
        assert_eq!(forgotten["state"], state, "{key}: {forgotten:#}");
        assert_eq!(forgotten["erased"], false, "{key}: {forgotten:#}");
    }
}
