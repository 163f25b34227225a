//! Making the tables.

use super::Place;

on_every_place!(migrations_may_be_repeated_and_say_what_is_there);

async fn migrations_may_be_repeated_and_say_what_is_there(place: Place) {
    let first = place.json(&["migrate"]).await;
    assert_eq!(first["was_up_to_date"], false, "{first:#}");
    if first["archive_backend"] == "postgres" {
        let partitions = first["partitions"].as_array().expect("partitions");
        assert!(partitions.len() >= 3, "{first:#}");
    } else {
        assert!(first["partitions"].is_null(), "{first:#}");
    }
    let again = place.json(&["migrate"]).await;
    assert_eq!(again["was_up_to_date"], true, "{again:#}");
    assert_eq!(again["partitions"], first["partitions"], "{again:#}");
    place.run(&["migrate"]).await.exits(0).says("up to date");
}

#[tokio::test]
async fn no_other_command_makes_tables_and_each_says_who_does() {
    for place in [Place::sqlite(), Place::postgres()] {
        for arguments in [
            &["stats"][..],
            &["sweep"],
            &["partitions", "list"],
            &["in-flight", "--at", "now"],
            &["lookup", "--principal", "p", "--key", "k"],
            &["verify"],
        ] {
            let ran = place.run(arguments).await.exits(2);
            ran.complains_of("run `idempotency migrate`");
        }
        assert_eq!(
            place.dir.path().read_dir().unwrap().count(),
            0,
            "no file is made"
        );
    }
}

#[tokio::test]
async fn the_tables_may_be_in_a_schema_of_their_own() {
    let place = Place::postgres();
    let schema = format!("axum_idempotency_test_{}", uuid::Uuid::new_v4().simple());
    place.json(&["migrate", "--schema", &schema]).await;
    place.json(&["stats", "--schema", &schema]).await;
    place.run(&["stats"]).await.exits(2).complains_of("migrate");
    place
        .run_sql(&format!("DROP SCHEMA {schema} CASCADE"))
        .await;
}
