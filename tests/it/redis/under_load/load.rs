//! Clients that never have enough.

use std::{panic::resume_unwind, sync::Arc, time::Duration};

use axum_idempotency::{Clock as _, Retry, SystemClock};
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};
use uuid::Uuid;

use super::{Aftermath, Ledger, Services};
use crate::support::{Answer, Shop, ulid_of};

/// Clients at work, until they are stopped.
pub(super) struct Load {
    services: Arc<Services>,
    clients: JoinSet<()>,
    goes_on: watch::Sender<bool>,
    answered: watch::Sender<usize>,
}

impl Load {
    /// Begins, and comes back when all is going well.
    pub(super) async fn on(services: Services) -> Self {
        let mut load = Self {
            services: Arc::new(services),
            clients: JoinSet::new(),
            goes_on: watch::Sender::new(true),
            answered: watch::Sender::default(),
        };
        for number in 0..CLIENTS {
            load.clients.spawn(client(
                number,
                Arc::clone(&load.services),
                load.goes_on.subscribe(),
                load.answered.clone(),
            ));
        }
        load.goes_well().await;
        load
    }

    /// Waits until so many keys more are answered by every process.
    pub(super) async fn answers(&mut self, keys: usize) {
        let mut answered = self.answered.subscribe();
        let enough = *answered.borrow() + keys;
        let answers = async move {
            let enough = answered.wait_for(|answered| *answered >= enough).await;
            enough.expect("the load outlives those who watch it");
        };
        self.wait_for(answers).await;
    }

    /// Waits until every client has had answers to keys that it made after this
    /// call, some of them.
    pub(super) async fn goes_well(&mut self) {
        self.answers(10 * CLIENTS).await;
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.services.ledger
    }

    /// Waits until every client may have been told, and some again, that the
    /// store cannot be reached.
    pub(super) async fn is_refused(&mut self) {
        let services = Arc::clone(&self.services);
        let refusals = async move { services.ledger.refuses(2 * CLIENTS).await };
        self.wait_for(refusals).await;
    }

    /// Waits until a key, one in all, has run again.
    pub(super) async fn runs_one_again(&mut self) {
        let services = Arc::clone(&self.services);
        let again = async move { services.ledger.runs_again(1).await };
        self.wait_for(again).await;
    }

    /// What was under way has come to its end, but for so many that are held.
    pub(super) async fn is_archived_but(&mut self, held: usize) {
        let services = Arc::clone(&self.services);
        let archived = async move { services.archive_all_but(held).await };
        self.wait_for(archived).await;
    }

    /// No process can claim a key now, and none runs for it. Its clients may be
    /// told no more than that what they ask for is in progress: a server that
    /// takes no writes says so too.
    pub(super) async fn refuses_fresh_keys(&self) {
        for shop in &self.services.shops {
            let key = fresh_key(1);
            let answer = shop.post("/charges").key(&key).send().await;
            answer.expect_problem(503, "idempotency_store_unavailable", Retry::SameKeyLater);
            let entries = self.ledger().entries();
            assert!(!entries.contains_key(&key), "it ran without a record");
        }
    }

    /// Fails with the first client that does.
    async fn wait_for(&mut self, waited: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            Some(ended) = self.clients.join_next() => {
                let failure = ended.expect_err("a client goes on until it is stopped");
                resume_unwind(failure.into_panic());
            }
            () = waited => {}
        }
    }

    /// Lets every client come to the end of its key.
    pub(super) async fn stop(mut self) -> Aftermath {
        self.goes_on.send_replace(false);
        while let Some(ended) = self.clients.join_next().await {
            if let Err(failure) = ended {
                resume_unwind(failure.into_panic());
            }
        }
        Aftermath::of(self.services)
    }
}

async fn client(
    number: usize,
    services: Arc<Services>,
    goes_on: watch::Receiver<bool>,
    answered: watch::Sender<usize>,
) {
    while *goes_on.borrow() {
        let key = fresh_key(number);
        let everywhere = services
            .shops
            .iter()
            .map(|shop| answer(shop, &key, &services.ledger));
        for answer in join_all(everywhere).await {
            services.ledger.told(&key, answer);
        }
        answered.send_modify(|answered| *answered += 1);
    }
}

/// Every other client's keys tell when they were made.
pub(super) fn fresh_key(client: usize) -> String {
    if client.is_multiple_of(2) {
        ulid_of(SystemClock.now())
    } else {
        Uuid::new_v4().to_string()
    }
}

/// Repeats a key until it is answered for good.
pub(super) async fn answer(shop: &Shop, key: &str, ledger: &Ledger) -> Answer {
    let deadline = Instant::now() + LONGEST;
    let mut last = None;
    loop {
        let sent = Instant::now();
        let answered = timeout_at(deadline, shop.post("/charges").key(key).send()).await;
        ledger.took(sent.elapsed());
        let Ok(answer) = answered else {
            let entry = &ledger.entries()[key];
            panic!("{key} has no answer; before it was told {last:?}: {entry:#?}");
        };
        if !is_to_repeat(&answer) {
            return answer;
        }
        ledger.put_off(key, &answer);
        last = Some(answer);
        sleep(PAUSE).await;
    }
}

/// In progress, or the store cannot be reached.
fn is_to_repeat(answer: &Answer) -> bool {
    match answer.status.as_u16() {
        409 => answer.json()["code"] == "idempotency_request_in_progress",
        503 => answer.json()["code"] == "idempotency_store_unavailable",
        _ => false,
    }
}

const CLIENTS: usize = 12;

/// How long a key may be without an answer: less than a lease, so that nothing
/// waits for one to lapse.
const LONGEST: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(10);
