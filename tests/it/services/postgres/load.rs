//! Clients that repeat each request until it is answered, and who judge every
//! answer.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{task::JoinHandle, time::sleep};

use super::watched::Watched;
use crate::services::{Service, eventually};

/// What may become of requests while something fails.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) lease: Duration,
    /// Within this every request is answered.
    pub(super) patience: Duration,
    /// Whether an attempt may lose its lease, so that another runs.
    pub(super) takeover: bool,
    /// Whether what the handler itself asks of the database may fail: then its
    /// 500 is an answer like any other.
    pub(super) handler_fails: bool,
}

/// Clients at work.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Watched>>>,
}

pub(super) struct Shared {
    pub(super) terms: Terms,
    pub(super) counts: Counts,
    services: Mutex<Vec<SocketAddr>>,
    is_over: AtomicBool,
}

/// What the clients saw.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) answers: AtomicU64,
    pub(super) replays: AtomicU64,
    pub(super) takeovers: AtomicU64,
    pub(super) in_progress: AtomicU64,
    pub(super) unavailable: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) failed_handlers: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) slowest_ms: AtomicU64,
}

impl Load {
    pub(super) fn begin(terms: Terms, services: &[&Service]) -> Self {
        let services = services.iter().map(|service| service.address);
        let shared = Arc::new(Shared {
            terms,
            counts: Counts::default(),
            services: Mutex::new(services.collect()),
            is_over: AtomicBool::new(false),
        });
        let client = |number| tokio::spawn(client(Arc::clone(&shared), number));
        Self {
            clients: (0..CLIENTS).map(client).collect(),
            shared,
        }
    }

    /// Waits until so many more requests have got their answers.
    pub(super) async fn is_answered(&self, more: u64) {
        self.counts(|counts| &counts.answers, more, "answered")
            .await;
    }

    /// Waits until so many more requests were refused for want of the store.
    pub(super) async fn is_refused(&self, more: u64) {
        self.counts(|counts| &counts.unavailable, more, "refused")
            .await;
    }

    async fn counts(&self, count: impl Fn(&Counts) -> &AtomicU64, more: u64, what: &str) {
        let now = || count(&self.shared.counts).load(Relaxed);
        let enough = now() + more;
        let what = format!("{more} more requests are {what}");
        eventually(&what, async || now() >= enough).await;
    }

    /// From here on the clients ask the one in the place of the other.
    pub(super) fn replace(&self, old: SocketAddr, new: &Service) {
        for address in &mut *self.shared.services() {
            if *address == old {
                *address = new.address;
            }
        }
    }

    /// When all is well again: repeats every request at every service, and
    /// counts what it did.
    pub(super) async fn judge(self, services: &[&Service]) {
        self.shared.is_over.store(true, Relaxed);
        let mut seen = Vec::new();
        for client in self.clients {
            seen.extend(client.await.expect("a client met a fault"));
        }
        let requests = seen.len();
        let mut executions = 0;
        let mut left = seen.into_iter().peekable();
        while left.peek().is_some() {
            let some: Vec<_> = left.by_ref().take(CLIENTS).collect();
            let judged = some
                .into_iter()
                .map(|watched| last_word(&self.shared, watched, services));
            executions += join_all(judged).await.iter().sum::<u64>();
        }
        println!("{requests} requests, {:?}", self.shared.counts);
        if !self.shared.terms.takeover {
            let total = services[0].total().await;
            assert_eq!(total, executions, "nothing ran under any other key");
        }
    }
}

/// Every service replays the one answer; returns how often the effect happened.
async fn last_word(shared: &Shared, mut watched: Watched, services: &[&Service]) -> u64 {
    for service in services {
        let answered = async || {
            let answered = watched.ask(shared, service.address).await;
            answered.unwrap_or_else(|error| panic!("no answer although all is well: {error}"))
        };
        eventually("an answer, now that all is well", answered).await;
    }
    let first = watched.answer.as_ref().expect("it was answered");
    for service in services {
        let request = watched.request(service.address);
        request.send().await.must_replay(first);
    }
    let count = services[0].executions(&watched.key).await;
    watched.must_have_executed(shared, count);
    count
}

async fn client(shared: Arc<Shared>, number: usize) -> Vec<Watched> {
    let mut seen = Vec::new();
    let mut turn = number;
    while !shared.is_over.load(Relaxed) {
        let mut watched = Watched::new();
        while watched.answer.is_none() && !shared.is_over.load(Relaxed) {
            turn += 1;
            let services = shared.services().clone();
            let service = services[turn % services.len()];
            if turn.is_multiple_of(7) {
                // Nobody is there any more to get the answer.
                let hung_up = async { watched.request(service).connect().await?.begin().await };
                drop(hung_up.await);
            }
            if turn.is_multiple_of(3) {
                watched.ask_all(&shared, &services).await;
            } else if watched.ask(&shared, service).await.is_err() {
                shared.counts.broken.fetch_add(1, Relaxed);
            }
            if watched.answer.is_none() {
                sleep(PAUSE).await;
            }
        }
        if watched.answer.is_some() {
            shared.counts.answers.fetch_add(1, Relaxed);
        }
        seen.push(watched);
    }
    seen
}

impl Shared {
    fn services(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const CLIENTS: usize = 24;
/// Before a client asks again.
const PAUSE: Duration = Duration::from_millis(25);
