//! A bounded torture: few keys, many clients, and whatever goes wrong between
//! them. A model of what the clients saw judges every answer.
//!
//! `TORTURE_SEED` repeats what is sent, if not when.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use self::{
    model::Model,
    plan::{Plan, Random, TENANTS},
};
use super::{Service, Site, eventually, http::Request};

mod model;
mod plan;

#[tokio::test]
async fn one_process_over_memory() {
    let site = short_lived(Site::memory()).set("IN_FLIGHT", "wait:200ms");
    let service = site.testbed().await;
    let torture = Torture::begin("one process over memory", &[&service]);
    torture.judge(&service).await;
}

on_every_durable_store!(two_processes_of_which_one_is_killed);
on_redis_beside_postgres!(two_processes_of_which_one_is_killed);

async fn two_processes_of_which_one_is_killed(site: Site) {
    let site = short_lived(site);
    let killed = site.testbed().await;
    let site = site.set("IN_FLIGHT", "wait:1s");
    let survivor = site.testbed().await;
    let torture = Torture::begin("two processes", &[&killed, &survivor]);
    sleep(STORM / 2).await;
    torture.world.model().kill();
    torture.world.services()[0] = survivor.address;
    killed.kill().await;
    let restarted = site.testbed().await;
    torture.world.services()[0] = restarted.address;
    torture.judge(&survivor).await;
}

fn short_lived(site: Site) -> Site {
    let seconds = |duration: Duration| format!("{}s", duration.as_secs());
    site.set("TTL", &seconds(TTL))
        .set("LEASE", &seconds(LEASE))
        .set("MAX_LEASE", &seconds(MAX_LEASE))
        .set("SWEEP_EVERY", "300ms")
        .set("ARCHIVE_LOOKUP", "all")
}

/// Whether outcomes go into the archive before they are recorded.
fn archives_first(services: &[&Service]) -> bool {
    #[cfg(feature = "redis")]
    return services.iter().all(|service| service.place.redis.is_some());
    #[cfg(not(feature = "redis"))]
    return services.is_empty();
}

struct Torture {
    name: &'static str,
    world: Arc<World>,
    clients: Vec<JoinHandle<()>>,
}

/// What all clients share.
struct World {
    services: Mutex<Vec<SocketAddr>>,
    board: Mutex<Board>,
    model: Mutex<Model>,
}

/// The keys in use, and those that were.
struct Board {
    alive: Vec<Arc<Plan>>,
    retired: Vec<Arc<Plan>>,
}

impl Torture {
    fn begin(name: &'static str, services: &[&Service]) -> Self {
        let mut random = Random::seeded(name);
        let addresses = services.iter().map(|service| service.address);
        let world = Arc::new(World {
            services: Mutex::new(addresses.collect()),
            board: Mutex::new(Board {
                alive: (0..ALIVE).map(|_| Plan::draw(&mut random)).collect(),
                retired: Vec::new(),
            }),
            model: Mutex::new(Model::new(LEASE, TTL, archives_first(services))),
        });
        let end = Instant::now() + STORM;
        let clients = (0..CLIENTS).map(|_| {
            let client = client(Arc::clone(&world), random.fork(), end);
            tokio::spawn(client)
        });
        Self {
            name,
            clients: clients.collect(),
            world,
        }
    }

    /// After the storm: repeats every request there was, and counts what it
    /// did.
    async fn judge(self, service: &Service) {
        for client in self.clients {
            client.await.expect("no client gave up");
        }
        let seen = self.world.model().seen();
        let mut total = 0;
        for some in seen.chunks(CLIENTS) {
            let judged = some
                .iter()
                .map(|(tenant, plan)| judge_one(&self.world, service, tenant, plan));
            total += join_all(judged).await.iter().sum::<u64>();
        }
        {
            let model = self.world.model();
            println!("torture, {}: {}", self.name, model.report());
            model.must_hold();
        }
        let everything = service.total().await;
        assert_eq!(everything, total, "nothing ran under any other key");
    }
}

/// The last word on one key; returns how often it ran.
async fn judge_one(
    world: &World,
    service: &Service,
    tenant: &'static str,
    plan: &Arc<Plan>,
) -> u64 {
    let variant = world.model().winner(tenant, plan).unwrap_or(0);
    let request = plan.request(service.address, tenant, variant);
    let is_decided = async || {
        let sent = world.model().sent(tenant, plan);
        let answer = request.send().await;
        let mut model = world.model();
        model.answered(tenant, plan, variant, sent, &answer)
    };
    eventually("a last word on every key", is_decided).await;
    let counted = service
        .get(&format!("/executions?key={}", plan.key))
        .tenant(tenant);
    let count = counted.send().await.json()["count"]
        .as_u64()
        .expect("a count");
    world.model().counted(tenant, plan, count);
    count
}

async fn client(world: Arc<World>, mut random: Random, end: Instant) {
    while Instant::now() < end {
        let tenant = TENANTS[random.below(TENANTS.len())];
        let plan = world.pick(&mut random);
        let variant = usize::from(random.one_in(6));
        let address = {
            let services = world.services();
            services[random.below(services.len())]
        };
        let request = plan.request(address, tenant, variant);
        let sent = world.model().sent(tenant, &plan);
        let met = match random.below(12) {
            0 => hang_up(&request, random.below(80)).await,
            1 => request.break_off().await,
            _ => match request.try_send().await {
                Ok(answer) => {
                    world
                        .model()
                        .answered(tenant, &plan, variant, sent, &answer);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match met {
            Ok(()) => world.model().hung_up(),
            Err(error) => {
                world.model().broke(&error);
                // The service was killed.
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Hangs up in mid-handler, or wherever the request is by then.
async fn hang_up(request: &Request, after_ms: usize) -> std::io::Result<()> {
    let waiting = request.connect().await?.begin().await?;
    sleep(Duration::from_millis(after_ms as u64)).await;
    drop(waiting);
    Ok(())
}

impl World {
    /// A key to send: most often one in use, now and then one that was, or a
    /// new one in the place of another.
    fn pick(&self, random: &mut Random) -> Arc<Plan> {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        if random.one_in(10) && !board.retired.is_empty() {
            return Arc::clone(&board.retired[random.below(board.retired.len())]);
        }
        let place = random.below(board.alive.len());
        if random.one_in(40) {
            let old = std::mem::replace(&mut board.alive[place], Plan::draw(random));
            board.retired.push(old);
        }
        Arc::clone(&board.alive[place])
    }

    fn services(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const STORM: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(6);
const MAX_LEASE: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(2);
/// Keys in use by each tenant at a time: few, so that they collide.
const ALIVE: usize = 16;
const CLIENTS: usize = 24;
