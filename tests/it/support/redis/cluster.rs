//! A cluster of a test's own.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use super::{
    cli,
    layout::{Layout, Node},
    programs::Programs,
    server::{Plan, Server, fields},
};
use crate::support::servers::Patience;

/// Three masters and a replica of each, which a test may kill, restart and move
/// slots between. It ends when the value is dropped.
///
/// Nodes are known by numbers from 0 to 5, which stay theirs whatever they become.
/// It takes seconds to make; for a test that does nothing to the cluster itself
/// there is [`shared_cluster_url`](super::shared_cluster_url).
pub(crate) struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let programs = Programs::any();
        let node = |_| {
            let plan = Plan {
                programs: programs.clone(),
                arguments: &SETTINGS,
                is_node: true,
                master: None,
            };
            Server::planned(plan)
        };
        let cluster = Self {
            nodes: join_all((0..NODES).map(node)).await,
        };
        let places: Vec<_> = cluster.nodes.iter().map(Server::place).collect();
        let create = ["--cluster", "create"]
            .into_iter()
            .chain(places.iter().map(String::as_str))
            .chain(["--cluster-replicas", "1", "--cluster-yes"]);
        let created = cli::run(&programs.cli, create).await;
        created.unwrap_or_else(|complaint| panic!("no cluster: {complaint}"));
        cluster.settle().await;
        cluster
    }

    /// Names three nodes, of which the rest is learned.
    pub(crate) fn url(&self) -> String {
        let seeds = self.nodes.iter().take(SEEDS).map(Server::place);
        format!("redis+cluster://{}", seeds.collect::<Vec<_>>().join(","))
    }

    pub(crate) fn node(&self, number: usize) -> &Server {
        &self.nodes[number]
    }

    /// The nodes that have slots, in the order of their first.
    pub(crate) async fn masters(&self) -> Vec<usize> {
        let layout = self.layout().await;
        let mut seen = BTreeSet::new();
        let owners = layout.ranges().into_values().map(|(_, port)| port);
        let owners: Vec<_> = owners.filter(|port| seen.insert(*port)).collect();
        owners.iter().map(|port| self.number(*port)).collect()
    }

    /// The replicas of a master that are up.
    pub(crate) async fn replicas(&self, master: usize) -> Vec<usize> {
        let layout = self.layout().await;
        let id = Some(&*self.at(&layout, master).id);
        let follows = |number: &usize| {
            let node = self.at(&layout, *number);
            node.master.as_deref() == id && self.nodes[*number].is_up()
        };
        (0..NODES).filter(follows).collect()
    }

    /// The node that has the slot of a key.
    pub(crate) async fn slot_owner(&self, key: &str) -> usize {
        let slot = self.slot_of(key).await;
        let layout = self.layout().await;
        let owner = layout.owner_of(slot).expect("every slot is somebody's");
        self.number(owner.port)
    }

    /// Kills a node that has slots. Its replica takes them when the others have
    /// missed it for a second or two: see [`Self::wait_until_failed_over`].
    pub(crate) async fn kill_master(&mut self, number: usize) {
        let masters = self.masters().await;
        assert!(masters.contains(&number), "node {number} has no slots");
        self.nodes[number].kill().await;
    }

    /// Kills a node that has no slots: its master has nobody to take over.
    pub(crate) async fn kill_replica(&mut self, number: usize) {
        let masters = self.masters().await;
        assert!(!masters.contains(&number), "node {number} has slots");
        self.nodes[number].kill().await;
    }

    /// Until every slot has an owner that is up, as every node sees it that is.
    pub(crate) async fn wait_until_failed_over(&self) {
        self.settle().await;
    }

    /// Starts a node again, and waits until it has found its place: it is a
    /// replica now where another has taken its slots.
    pub(crate) async fn restart(&mut self, number: usize) {
        self.nodes[number].restart().await;
        self.settle().await;
    }

    /// Moves the first so many slots of a master to another with all their keys,
    /// one after another, while clients go on.
    pub(crate) async fn move_slots(&self, from: usize, to: usize, count: usize) {
        let layout = self.layout().await;
        let (source, target) = (self.at(&layout, from), self.at(&layout, to));
        let (count, place) = (count.to_string(), self.nodes[from].place());
        let reshard = [
            ["--cluster", "reshard"],
            [&place, "--cluster-yes"],
            ["--cluster-from", &source.id],
            ["--cluster-to", &target.id],
            ["--cluster-slots", &count],
        ];
        let client = &self.nodes[from].programs().cli;
        let moved = cli::run(client, reshard.as_flattened()).await;
        moved.unwrap_or_else(|complaint| panic!("the slots do not move: {complaint}"));
        self.settle().await;
    }

    /// What `redis-cli` prints for a command that succeeds, wherever in the
    /// cluster its keys are.
    pub(crate) async fn cli(&self, command: &[&str]) -> String {
        let arguments: Vec<_> = ["-c"].iter().chain(command).copied().collect();
        self.someone().cli(&arguments).await
    }

    pub(super) async fn slot_of(&self, key: &str) -> u16 {
        let slot = self.someone().cli(&["CLUSTER", "KEYSLOT", key]).await;
        slot.parse().expect("a number of a slot")
    }

    pub(super) async fn id_of(&self, number: usize) -> String {
        self.nodes[number].cli(&["CLUSTER", "MYID"]).await
    }

    /// Waits until the nodes that are up agree, miss nobody but those that are
    /// not, and serve every slot.
    pub(super) async fn settle(&self) {
        let patience = Patience::for_it("the cluster is whole");
        while !self.is_settled().await {
            patience.a_moment().await;
        }
    }

    async fn is_settled(&self) -> bool {
        let mut agreed = None;
        for (number, node) in self.up() {
            let state = node.try_cli(&["CLUSTER", "INFO"]).await;
            let state = fields(&state.unwrap_or_default());
            let Ok(nodes) = node.try_cli(&["CLUSTER", "NODES"]).await else {
                return false;
            };
            let layout = Layout::parse(&nodes);
            let seen = (layout.ranges(), self.masters_in(&layout));
            let is_whole = state
                .get("cluster_state")
                .is_some_and(|state| state == "ok")
                && layout.covers_everything()
                && self.up().all(|(_, node)| is_reachable(&layout, node))
                && self.owners_are_up(&layout);
            if !is_whole || *agreed.get_or_insert_with(|| seen.clone()) != seen {
                return false;
            }
            let place = self.at(&layout, number);
            let is_placed = match place.master {
                Some(_) => node.follows().await,
                None => place.has_slots(),
            };
            if !is_placed {
                return false;
            }
        }
        true
    }

    /// Whom each node that is up follows, if anybody.
    fn masters_in(&self, layout: &Layout) -> BTreeMap<usize, Option<String>> {
        let master = |number| self.at(layout, number).master.clone();
        self.up()
            .map(|(number, _)| (number, master(number)))
            .collect()
    }

    fn owners_are_up(&self, layout: &Layout) -> bool {
        let up: BTreeSet<_> = self.up().map(|(_, node)| node.port()).collect();
        let mut owners = layout.ranges().into_values();
        owners.all(|(_, port)| up.contains(&port))
    }

    fn up(&self) -> impl Iterator<Item = (usize, &Server)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.is_up())
    }

    fn someone(&self) -> &Server {
        let (_, node) = self.up().next().expect("a node that is up");
        node
    }

    async fn layout(&self) -> Layout {
        Layout::parse(&self.someone().cli(&["CLUSTER", "NODES"]).await)
    }

    fn at<'a>(&self, layout: &'a Layout, number: usize) -> &'a Node {
        let node = layout.at(self.nodes[number].port());
        node.expect("the nodes know each other")
    }

    fn number(&self, port: u16) -> usize {
        let number = self.nodes.iter().position(|node| node.port() == port);
        number.expect("a node of this cluster")
    }
}

fn is_reachable(layout: &Layout, node: &Server) -> bool {
    layout.at(node.port()).is_some_and(|node| node.is_reachable)
}

const NODES: usize = 6;
const SEEDS: usize = 3;

/// Who is missed is so for a second. What is lost is lost only itself, a replica
/// fails over however long it has heard nothing, and nobody changes masters but
/// by a failover.
const SETTINGS: [&str; 10] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    "--cluster-require-full-coverage",
    "no",
    "--cluster-replica-validity-factor",
    "0",
    "--cluster-allow-replica-migration",
    "no",
];
