//! Clients that repeat a request until they know what became of it, and hold
//! the services to every word of theirs.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{task::JoinHandle, time::sleep};

use super::seen::{Rules, Seen};
use crate::services::{PATIENCE, Service, http::Request, until};

/// Clients at work. Each sends one key after another, every third of them twice
/// at once, and now and then one that it has an answer to.
pub(super) struct Load {
    world: Arc<World>,
    clients: Vec<JoinHandle<Vec<Seen>>>,
}

/// What all clients share.
struct World {
    rules: Rules,
    services: Mutex<Vec<SocketAddr>>,
    /// How often the store may have lost something.
    losses: AtomicUsize,
    sent: AtomicUsize,
    settled: AtomicUsize,
    broken: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    pub(super) fn begin(services: &[&Service], rules: Rules) -> Self {
        let addresses = services.iter().map(|service| service.address);
        let world = Arc::new(World {
            rules,
            services: Mutex::new(addresses.collect()),
            losses: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let client = |_| tokio::spawn(client(Arc::clone(&world)));
        Self {
            clients: (0..CLIENTS).map(client).collect(),
            world,
        }
    }

    /// Another process is in the place of one.
    pub(super) fn replace(&self, place: usize, service: &Service) {
        self.world.addresses()[place] = service.address;
    }

    /// The store is down, and may have lost what it knew when it is back.
    pub(super) fn loses(&self) {
        self.world.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until so many more keys have their last word.
    pub(super) async fn settles(&self, more: usize) {
        let enough = self.world.settled.load(Ordering::SeqCst) + more;
        until("the load goes on", async || {
            // Whoever gave up will say why.
            let is_up = self.clients.iter().all(|client| !client.is_finished());
            let is_enough = self.world.settled.load(Ordering::SeqCst) >= enough;
            (is_enough || !is_up).then_some(())
        })
        .await;
    }

    /// How many connections broke.
    pub(super) fn broken(&self) -> usize {
        self.world.broken.load(Ordering::SeqCst)
    }

    /// Ends when every key that was begun has its last word.
    pub(super) async fn end(self) -> Vec<Seen> {
        self.world.is_over.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for client in join_all(self.clients).await {
            all.extend(client.expect("no answer was wrong"));
        }
        all
    }
}

async fn client(world: Arc<World>) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    while !world.is_over.load(Ordering::SeqCst) {
        let number = all.len();
        let mut seen = Seen::begin(world.rules, world.losses());
        world.settle(&mut seen, number.is_multiple_of(3)).await;
        world.settled.fetch_add(1, Ordering::SeqCst);
        all.push(seen);
        if number % 4 == 3 {
            world.settle(&mut all[number / 2], false).await;
        }
    }
    all
}

impl World {
    /// Repeats a request until there is a last word on it.
    async fn settle(&self, seen: &mut Seen, twice: bool) {
        let send = async |request: Request| {
            let answer = request.try_send().await.ok();
            let is_broken = usize::from(answer.is_none());
            self.broken.fetch_add(is_broken, Ordering::SeqCst);
            answer
        };
        let settled = async {
            loop {
                let one = self.next_request(seen);
                let answers = if twice {
                    let other = self.next_request(seen);
                    tokio::join!(send(one), send(other)).into()
                } else {
                    [send(one).await, None]
                };
                let mut is_settled = false;
                for answer in answers.iter().flatten() {
                    is_settled |= seen.hears(answer, self.losses());
                }
                if is_settled {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, settled).await;
        assert!(in_time.is_ok(), "no last word on {}", seen.key());
    }

    /// To one service after the other.
    fn next_request(&self, seen: &Seen) -> Request {
        let addresses = self.addresses();
        let number = self.sent.fetch_add(1, Ordering::SeqCst);
        seen.request(addresses[number % addresses.len()])
    }

    fn losses(&self) -> usize {
        self.losses.load(Ordering::SeqCst)
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const CLIENTS: usize = 10;
