//! What a global manager's node knows of its cluster, for people to look at.

use std::collections::{BTreeMap, VecDeque};

use elastin_control::{Capacity, Decision, DecisionId};
use elastin_types::{NodeId, ServerStats};
use serde::{Deserialize, Serialize};

/// How many decisions are kept for a look back; older ones are forgotten.
const DECISIONS_MAX: usize = 10_000;

/// How many periods' capacities are kept: a day of ten-second periods.
const CAPACITIES_MAX: usize = 8_640;

/// One server, as it last reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// This life of it.
    pub node: NodeId,
    /// Its CPU use in percent of its share, once it has reported.
    pub cpu_percent: Option<f64>,
    /// How many actors are on it.
    pub actors: u64,
    /// Whether it is being emptied.
    pub draining: bool,
    /// The actors that have it for themselves.
    pub reserved_for: Vec<elastin_types::ActorId>,
}

/// What a global manager's node knows.
#[derive(Default)]
pub(crate) struct Status {
    servers: BTreeMap<NodeId, ServerStatus>,
    /// The names of all servers that ever were, so that old decisions can still be told.
    names: BTreeMap<NodeId, String>,
    /// Decisions by when they were first heard of.
    decisions: BTreeMap<u64, Decision>,
    heard_as: BTreeMap<DecisionId, u64>,
    decisions_heard: u64,
    capacities: VecDeque<Capacity>,
}

impl Status {
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        self.servers.values().cloned().collect()
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.values().cloned().collect()
    }

    /// Who is there now.
    pub(crate) fn set_servers(&mut self, now: impl Iterator<Item = (NodeId, String, bool)>) {
        let mut before = std::mem::take(&mut self.servers);
        for (node, name, draining) in now {
            self.names.insert(node, name.clone());
            let known = before.remove(&node).unwrap_or(ServerStatus {
                name,
                node,
                cpu_percent: None,
                actors: 0,
                draining,
                reserved_for: Vec::new(),
            });
            self.servers.insert(node, ServerStatus { draining, ..known });
        }
    }

    /// A server reported.
    pub(crate) fn reported(&mut self, stats: &ServerStats, reserved_for: Vec<elastin_types::ActorId>) {
        if let Some(server) = self.servers.get_mut(&stats.node) {
            server.cpu_percent = stats.usage.cpu.percent();
            server.actors = stats.actors;
            server.reserved_for = reserved_for;
        }
    }

    /// A decision was made, or got further.
    pub(crate) fn decided(&mut self, decision: Decision) {
        let number = *self.heard_as.entry(decision.id).or_insert_with(|| {
            self.decisions_heard += 1;
            self.decisions_heard
        });
        self.decisions.insert(number, decision);
        if self.decisions.len() > DECISIONS_MAX
            && let Some((_, forgotten)) = self.decisions.pop_first()
        {
            self.heard_as.remove(&forgotten.id);
        }
    }

    /// What was needed and what there was, period by period.
    pub(crate) fn capacities(&self) -> Vec<Capacity> {
        self.capacities.iter().copied().collect()
    }

    pub(crate) fn measured(&mut self, capacity: Capacity) {
        if self.capacities.len() == CAPACITIES_MAX {
            self.capacities.pop_front();
        }
        self.capacities.push_back(capacity);
    }

    /// Replaces the ids of servers in a text by their names.
    pub(crate) fn with_names(&self, text: &str) -> String {
        // Longer ids first, so that the name of n1 is not put into n12.
        self.names.iter().rev().fold(text.to_owned(), |text, (node, name)| {
            text.replace(&node.to_string(), name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_names_and_longer_ids_go_first() {
        let mut status = Status::default();
        let servers = [
            (NodeId(1), "server-1".to_owned(), false),
            (NodeId(12), "server-2".to_owned(), false),
        ];
        status.set_servers(servers.into_iter());
        assert_eq!(status.with_names("moved n12 → n1"), "moved server-2 → server-1");
    }

    #[test]
    fn a_server_that_left_is_gone_but_its_name_is_kept() {
        let mut status = Status::default();
        status.set_servers([(NodeId(3), "server-1".to_owned(), false)].into_iter());
        status.set_servers(std::iter::empty());
        assert!(status.servers().is_empty());
        assert_eq!(status.with_names("n3"), "server-1");
    }
}
