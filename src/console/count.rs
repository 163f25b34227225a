//! What the overview counts, once a minute at most.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Console,
    ask::{Answer, Desk, Patience, Unanswered},
};
use crate::inspect::{
    ArchiveCensus, ArchiveGauges, InspectStore, Inspector, PerMinute, StoreCensus,
};

/// Answers, each for itself: one that is missing hides none of the others.
#[derive(Debug)]
pub(super) struct Counted {
    /// The store's clock as it began.
    pub now: Answer<Timestamp>,
    pub backlog: Answer<u64>,
    pub store: Answer<StoreCensus>,
    pub gauges: Answer<ArchiveGauges>,
    pub archive: Answer<ArchiveCensus>,
    pub archived_in_a_day: Answer<u64>,
    /// How long one lookup took; `None` without an archive.
    pub lookup: Answer<Option<Duration>>,
    pub minutes: Answer<Vec<PerMinute>>,
}

impl Counted {
    /// Whether somebody who was asked did not answer.
    pub(super) fn is_partial(&self) -> bool {
        let failures = [
            self.now.as_ref().err(),
            self.backlog.as_ref().err(),
            self.store.as_ref().err(),
            self.gauges.as_ref().err(),
            self.archive.as_ref().err(),
            self.archived_in_a_day.as_ref().err(),
            self.lookup.as_ref().err(),
            self.minutes.as_ref().err(),
        ];
        let mut failures = failures.into_iter().flatten();
        failures.any(|why| *why != Unanswered::CannotTell)
    }
}

/// The last answers, and when they came.
#[derive(Debug)]
pub(super) struct Kept {
    counted: Arc<Counted>,
    since: Instant,
}

impl Kept {
    fn is_good(&self) -> bool {
        let for_so_long = if self.counted.is_partial() {
            PARTIAL_FOR
        } else {
            WHOLE_FOR
        };
        self.since.elapsed() < for_so_long
    }
}

/// The answers, and how old they are. `None` when the count has panicked, which
/// is in the log.
pub(super) async fn counted(desk: &Desk) -> Option<(Arc<Counted>, Duration)> {
    let kept = Arc::clone(&desk.kept);
    let console = desk.console.clone();
    // In a task of its own: a count that was begun is used, whoever hangs up,
    // and the next one does not begin beside it.
    let count = tokio::spawn(async move {
        let mut kept = kept.lock_owned().await;
        if let Some(last) = kept.as_ref().filter(|last| last.is_good()) {
            return (Arc::clone(&last.counted), last.since.elapsed());
        }
        let counted = Arc::new(count(&console).await);
        *kept = Some(Kept {
            counted: Arc::clone(&counted),
            since: Instant::now(),
        });
        (counted, Duration::ZERO)
    });
    match count.await {
        Ok(counted) => Some(counted),
        Err(error) => {
            tracing::error!(%error, "the console's count ended early");
            None
        }
    }
}

async fn count(console: &Console) -> Counted {
    let patience = Patience::of(console);
    let inspector = &console.inspector;
    let now = patience.ask(inspector.now()).await;
    let (live, past) = tokio::join!(
        count_live(inspector.inspected_store(), patience),
        count_past(inspector, patience),
    );
    let (backlog, store) = live;
    let (gauges, archive, archived_in_a_day, lookup) = past;
    Counted {
        minutes: count_minutes(inspector, patience, now).await,
        now,
        backlog,
        store,
        gauges,
        archive,
        archived_in_a_day,
        lookup,
    }
}

/// What is cheap comes first: it is known then though the rest takes too long.
async fn count_live(
    store: Option<&dyn InspectStore>,
    patience: Patience,
) -> (Answer<u64>, Answer<StoreCensus>) {
    let Some(store) = store else {
        return (Err(Unanswered::CannotTell), Err(Unanswered::CannotTell));
    };
    (
        patience.ask(store.backlog()).await,
        patience.ask(store.census()).await,
    )
}

type Past = (
    Answer<ArchiveGauges>,
    Answer<ArchiveCensus>,
    Answer<u64>,
    Answer<Option<Duration>>,
);

async fn count_past(inspector: &Inspector, patience: Patience) -> Past {
    let lookup = patience.ask(inspector.time_a_lookup()).await;
    let Some(archive) = inspector.inspected_archive() else {
        let none = Unanswered::CannotTell;
        return (Err(none), Err(none), Err(none), lookup);
    };
    let gauges = patience.ask(archive.gauges()).await;
    let in_a_day = patience.ask(inspector.expired_within(A_DAY)).await;
    let in_a_day = in_a_day.map(Option::unwrap_or_default);
    let census = patience.ask(archive.census()).await;
    (gauges, census, in_a_day, lookup)
}

/// Of the minutes that are over: that of now is not to be compared yet.
async fn count_minutes(
    inspector: &Inspector,
    patience: Patience,
    now: Answer<Timestamp>,
) -> Answer<Vec<PerMinute>> {
    if inspector.inspected_store().is_none() && inspector.inspected_archive().is_none() {
        return Err(Unanswered::CannotTell);
    }
    let second = now?.as_second();
    let until = Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(Timestamp::MAX);
    let from = until.checked_sub(A_DAY).unwrap_or(Timestamp::MIN);
    patience.ask(inspector.keys_per_minute(from, until)).await
}

const A_DAY: Duration = Duration::from_hours(24);
/// How long a count is shown.
const WHOLE_FOR: Duration = Duration::from_mins(1);
/// The same for one that somebody did not answer: it is worth another try soon.
const PARTIAL_FOR: Duration = Duration::from_secs(5);
