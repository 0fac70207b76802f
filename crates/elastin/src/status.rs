//! The status of a cluster as the node of the global manager knows it, for operators.

use std::collections::{BTreeMap, VecDeque};

use elastin_cluster::{Role, Roster};
use elastin_control::{Capacity, Decision, DecisionId};
use elastin_types::{NodeId, ServerStats};
use serde::{Deserialize, Serialize};

/// The most decisions kept; older ones are discarded.
const DECISIONS_MAX: usize = 10_000;

/// The most periods whose capacities are kept: a day of ten-second periods.
const CAPACITIES_MAX: usize = 8_640;

/// One server, as it last reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Its node id, which is new after every restart.
    pub node: NodeId,
    /// Its CPU use in percent of its share, once it has reported.
    pub cpu_percent: Option<f64>,
    /// The number of actors that it hosts.
    pub actors: u64,
    /// Whether it is draining.
    pub draining: bool,
    /// The actors that it is reserved for.
    pub reserved_for: Vec<elastin_types::ActorId>,
}

/// Servers, decisions and capacities of a cluster.
#[derive(Default)]
pub(crate) struct Status {
    servers: BTreeMap<NodeId, ServerStatus>,
    /// The names of all servers, past ones included, so that old decisions can still be explained.
    names: BTreeMap<NodeId, String>,
    /// Decisions in the order in which they were first recorded.
    decisions: BTreeMap<u64, Decision>,
    sequence_of: BTreeMap<DecisionId, u64>,
    decisions_recorded: u64,
    capacities: VecDeque<Capacity>,
}

impl Status {
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        self.servers.values().cloned().collect()
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.values().cloned().collect()
    }

    /// Sets the servers to those of a roster. Servers that stay keep their last report.
    pub(crate) fn set_roster(&mut self, roster: &Roster) {
        let mut before = std::mem::take(&mut self.servers);
        let servers = roster.members.iter().filter(|(_, record)| record.role == Role::Server);
        for (&node, record) in servers {
            self.names.insert(node, record.name.clone());
            let known = before.remove(&node).unwrap_or_else(|| ServerStatus {
                name: record.name.clone(),
                node,
                cpu_percent: None,
                actors: 0,
                draining: false,
                reserved_for: Vec::new(),
            });
            let draining = record.draining;
            self.servers.insert(node, ServerStatus { draining, ..known });
        }
    }

    /// Records the report of a server.
    pub(crate) fn record_report(&mut self, stats: &ServerStats, reserved_for: Vec<elastin_types::ActorId>) {
        if let Some(server) = self.servers.get_mut(&stats.node) {
            server.cpu_percent = stats.usage.cpu.percent();
            server.actors = stats.actors;
            server.reserved_for = reserved_for;
        }
    }

    /// Records a new decision, or the progress of a known one.
    pub(crate) fn record_decision(&mut self, decision: Decision) {
        let sequence = *self.sequence_of.entry(decision.id).or_insert_with(|| {
            self.decisions_recorded += 1;
            self.decisions_recorded
        });
        self.decisions.insert(sequence, decision);
        if self.decisions.len() > DECISIONS_MAX
            && let Some((_, oldest)) = self.decisions.pop_first()
        {
            self.sequence_of.remove(&oldest.id);
        }
    }

    /// Demand and supply, period by period.
    pub(crate) fn capacities(&self) -> Vec<Capacity> {
        self.capacities.iter().copied().collect()
    }

    pub(crate) fn record_capacity(&mut self, capacity: Capacity) {
        if self.capacities.len() == CAPACITIES_MAX {
            self.capacities.pop_front();
        }
        self.capacities.push_back(capacity);
    }

    /// Replaces the ids of servers in a text by their names.
    pub(crate) fn with_names(&self, text: &str) -> String {
        // Longer ids first, so that n1 is not replaced inside n12.
        self.names.iter().rev().fold(text.to_owned(), |text, (node, name)| {
            text.replace(&node.to_string(), name)
        })
    }
}

#[cfg(test)]
mod tests {
    use elastin_cluster::MemberRecord;

    use super::*;

    fn roster(servers: &[(u64, &str)]) -> Roster {
        let record = |(node, name): &(u64, &str)| (NodeId(*node), MemberRecord::new(*name, Role::Server, None));
        Roster {
            members: servers.iter().map(record).collect(),
        }
    }

    #[test]
    fn ids_are_replaced_by_names_longest_first() {
        let mut status = Status::default();
        status.set_roster(&roster(&[(1, "server-1"), (12, "server-2")]));
        assert_eq!(status.with_names("moved n12 → n1"), "moved server-2 → server-1");
    }

    #[test]
    fn the_name_of_a_server_outlives_it() {
        let mut status = Status::default();
        status.set_roster(&roster(&[(3, "server-1")]));
        status.set_roster(&roster(&[]));
        assert!(status.servers().is_empty());
        assert_eq!(status.with_names("n3"), "server-1");
    }
}
