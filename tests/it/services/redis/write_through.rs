//! `kill -9` of the services under load, while outcomes go into the archive
//! first, and Redis loses nothing.

use std::time::Duration;

use super::{
    load::Load,
    seen::{Rules, Seen, must_be_told_late, must_hold},
    server::{durable, lose_everything},
};
use crate::services::{Service, Site};
#[cfg(feature = "postgres")]
use crate::support::postgres::Schema;

#[tokio::test]
async fn no_kill_loses_an_answer_or_repeats_an_effect_beside_sqlite() {
    no_kill_loses_an_answer_or_repeats_an_effect("sqlite:archive.db").await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn no_kill_loses_an_answer_or_repeats_an_effect_beside_postgres() {
    let schema = Schema::new();
    no_kill_loses_an_answer_or_repeats_an_effect(&schema.url()).await;
}

async fn no_kill_loses_an_answer_or_repeats_an_effect(archive: &str) {
    let server = durable().await;
    let site = Site::over(server.url())
        .set("ARCHIVE_URL", archive)
        .set("ARCHIVE_LOOKUP", "all")
        .set("LEASE", "1s")
        .set("MAX_LEASE", "3s")
        .set("TTL", "4s")
        .set("SWEEP_EVERY", "300ms");
    let mut services = Vec::from(<[Service; 2]>::from(tokio::join!(
        site.testbed(),
        site.testbed()
    )));
    let load = Load::begin(&[&services[0], &services[1]], RULES);
    for killed in KILLED {
        load.settles(SETTLED_A_ROUND).await;
        for place in killed {
            // What a process was at does not tell where the kill meets it.
            services.remove(*place).kill().await;
            let restarted = site.testbed().await;
            load.replace(*place, &restarted);
            services.insert(*place, restarted);
        }
    }
    load.settles(SETTLED_A_ROUND).await;
    assert!(load.broken() > 0, "the kills met nobody");
    let mut seen = load.end().await;
    let service = &services[0];
    let total = must_hold(&mut seen, service, 0).await;
    assert_eq!(
        service.total().await,
        total,
        "nothing ran under another key"
    );
    let without = seen.iter().filter(|seen| seen.is_known_without_response());
    println!(
        "{} keys ran {total} times, {} without their response",
        seen.len(),
        without.count()
    );

    // What Redis still tells of what has expired is what the archive tells.
    let late = must_be_told_late(&mut seen, service).await;
    lose_everything(&server).await;
    assert_eq!(must_be_told_late(&mut seen, service).await, late);
    assert_eq!(service.total().await, total, "a late retry ran");
    assert!(
        seen.iter().all(Seen::is_decided),
        "of each it is known what became of it"
    );
}

const RULES: Rules = Rules {
    lease: Duration::from_secs(1),
    ttl: Duration::from_secs(4),
};

const KILLED: [&[usize]; 5] = [&[0], &[1], &[0, 1], &[1], &[0]];
const SETTLED_A_ROUND: usize = 60;
