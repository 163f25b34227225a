//! Who has what in a cluster, as one of its nodes sees it.

use std::collections::BTreeMap;

/// What `CLUSTER NODES` tells.
#[derive(Debug)]
pub(super) struct Layout {
    nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub id: String,
    pub port: u16,
    /// Of a replica, the id of its master.
    pub master: Option<String>,
    pub is_reachable: bool,
    /// First and last of each range.
    slots: Vec<(u16, u16)>,
}

impl Layout {
    pub(super) fn parse(text: &str) -> Self {
        let nodes = text.lines().map(|line| {
            Node::parse(line).unwrap_or_else(|| panic!("not a node of a cluster: {line}"))
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    pub(super) fn at(&self, port: u16) -> Option<&Node> {
        self.nodes.iter().find(|node| node.port == port)
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<&Node> {
        let has = |node: &&Node| node.slots.iter().any(|(a, b)| (*a..=*b).contains(&slot));
        self.nodes.iter().find(has)
    }

    /// The first of each range of slots, with its last and whose it is.
    pub(super) fn ranges(&self) -> BTreeMap<u16, (u16, u16)> {
        let of_node = |node: &Node| {
            let port = node.port;
            let slots = node.slots.clone().into_iter();
            slots.map(move |(first, last)| (first, (last, port)))
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    pub(super) fn covers_everything(&self) -> bool {
        let ranges = self.ranges();
        let count = |(first, (last, _)): (&u16, &(u16, u16))| usize::from(last - first) + 1;
        ranges.iter().map(count).sum::<usize>() == SLOTS
    }
}

impl Node {
    /// `ID HOST:PORT@BUS,... FLAGS MASTER PING PONG EPOCH CONNECTION SLOTS...`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let id = words.next()?.to_owned();
        let (place, _) = words.next()?.split_once('@')?;
        let (_, port) = place.rsplit_once(':')?;
        let flags: Vec<_> = words.next()?.split(',').collect();
        let master = words.next().filter(|id| *id != "-").map(str::to_owned);
        let connection = words.nth(3)?;
        let has_failed = flags.iter().any(|flag| flag.starts_with("fail"));
        Some(Self {
            id,
            port: port.parse().ok()?,
            master,
            is_reachable: connection == "connected" && !has_failed,
            slots: words.filter_map(range).collect(),
        })
    }

    pub(super) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }
}

/// `5`, `5-9`, or, of a slot that moves, `[5->-ID]`.
fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

const SLOTS: usize = 16_384;

#[test]
fn a_layout_is_read_from_what_a_node_tells() {
    let layout = Layout::parse(
        "a1 127.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-9 11 [11->-b2]\n\
         b2 127.0.0.1:7002@17002,host master,fail? - 0 0 2 connected 12-16383 10\n\
         c3 127.0.0.1:7003@17003 slave a1 0 0 1 disconnected",
    );
    assert!(layout.covers_everything());
    assert_eq!(layout.owner_of(11).map(|node| node.port), Some(7001));
    assert_eq!(layout.owner_of(10).map(|node| &*node.id), Some("b2"));
    let reachable = |port| layout.at(port).map(|node| node.is_reachable);
    assert_eq!(reachable(7001), Some(true));
    assert_eq!(reachable(7002), Some(false));
    assert_eq!(reachable(7003), Some(false));
    let replica = layout.at(7003).expect("a node");
    assert_eq!(replica.master.as_deref(), Some("a1"));
    assert!(!replica.has_slots());
}
