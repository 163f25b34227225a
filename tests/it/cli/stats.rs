//! The overview.

use super::{Place, records::Filled};

on_every_place!(the_overview_counts_records_by_state_and_tells_the_backlog);

async fn the_overview_counts_records_by_state_and_tells_the_backlog(place: Place) {
    let filled = Filled::at(&place).await;
    let stats = place.json(&["stats"]).await;
    let store = &stats["store"];
    for (name, expected) in [
        ("records", 4),
        ("running", 1),
        ("lapsed", 1),
        ("completed", 1),
        ("expired", 1),
        ("smallest_ttl_ms", 24 * 3_600_000),
        ("largest_ttl_ms", 7 * 24 * 3_600_000),
    ] {
        assert_eq!(store[name].as_u64(), Some(expected), "{name}: {stats:#}");
    }
    let oldest = filled.ago(6 * super::place::HOUR).to_string();
    assert_eq!(store["oldest_expired"], oldest.as_str(), "{stats:#}");
    assert_eq!(stats["archive"]["rows"], 1, "{stats:#}");
    let is_partitioned = stats["archive_backend"] == "postgres";
    assert_eq!(
        stats["archive"]["is_partitioned"], is_partitioned,
        "{stats:#}"
    );
    if is_partitioned {
        let days = stats["archive"]["newest_partition_days"].as_i64();
        assert!(days.is_some_and(|days| days >= 58), "{stats:#}");
    }
    let ran = place.run(&["stats"]).await.exits(0);
    ran.says("expired, wait for the sweep  1");
    ran.says("published TTLs");
}

#[tokio::test]
async fn redis_without_an_archive_says_so() {
    let place = Place::redis();
    let place = place.without_archive_url();
    let stats = place.json(&["stats"]).await;
    assert!(stats["archive"].is_null(), "{stats:#}");
    assert_eq!(stats["store_backend"], "redis", "{stats:#}");
    place.run(&["stats"]).await.exits(0).says("archive");
}
