//! The model of the network: ordered connections that delay, break and hang, and duplicated frames.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use elastin_types::{NodeId, Time};

use crate::Options;
use crate::random::Random;

/// The shortest delay of a frame.
const DELAY_LEAST: Duration = Duration::from_micros(50);

/// One direction between two nodes.
#[derive(Debug, Default)]
struct Link {
    /// The number of the current connection. Frames of earlier ones are lost.
    connection: u64,
    /// No frame overtakes another on the same connection.
    last_arrival: Time,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Network {
    random: Random,
    delay_least: Duration,
    delay_most: Duration,
    /// The rate of duplicated frames, per million.
    duplicates: u64,
    links: BTreeMap<(NodeId, NodeId), Link>,
    /// Directions in which all frames are dropped.
    cut: BTreeSet<(NodeId, NodeId)>,
}

impl Network {
    pub(crate) fn new(random: Random, options: &Options) -> Self {
        Self {
            random,
            delay_least: if options.exact { options.delay_most } else { DELAY_LEAST },
            delay_most: options.delay_most,
            duplicates: options.faults.duplicates,
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
        }
    }

    /// The arrival time of a frame sent now, and its connection; `None` if it is lost.
    pub(crate) fn send(&mut self, now: Time, from: NodeId, to: NodeId) -> Option<(Time, u64)> {
        if self.cut.contains(&(from, to)) {
            return None;
        }
        let delay = self.random.between(self.delay_least, self.delay_most);
        let link = self.links.entry((from, to)).or_default();
        link.last_arrival = link.last_arrival.max(now + delay);
        Some((link.last_arrival, link.connection))
    }

    /// Whether the next frame is duplicated.
    pub(crate) fn should_duplicate(&mut self) -> bool {
        self.duplicates > 0 && self.random.below(1_000_000) < self.duplicates
    }

    pub(crate) fn stop_duplicating(&mut self) {
        self.duplicates = 0;
    }

    /// Whether a frame of this connection still arrives.
    pub(crate) fn arrives(&self, from: NodeId, to: NodeId, connection: u64) -> bool {
        self.links
            .get(&(from, to))
            .is_some_and(|link| link.connection == connection)
    }

    /// Breaks the connection in one direction, and loses its frames.
    pub(crate) fn break_link(&mut self, from: NodeId, to: NodeId) {
        let link = self.links.entry((from, to)).or_default();
        link.connection += 1;
        link.last_arrival = Time::ZERO;
    }

    /// Drops everything in one direction until it is healed.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.break_link(from, to);
        self.cut.insert((from, to));
    }

    /// Ends all cuts.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }
}
