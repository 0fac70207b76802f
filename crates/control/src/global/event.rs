//! What a global manager is told, and what it wants done.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::NodeId;
use serde::{Deserialize, Serialize};

use crate::{Capacity, ControlMessage, Decision, Member};

/// Something that a global manager must know. Events are plain data, so that a recorded run can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GemEvent {
    /// A message from a manager on another node, or on this one.
    Message {
        /// The node it comes from.
        from: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// Who is in the cluster now.
    Members(Vec<Member>),
    /// The servers that were asked for have been provided: they are members, or will be in a moment.
    Provisioned {
        /// The number of the asking.
        request: u64,
        /// The servers.
        nodes: Vec<NodeId>,
    },
    /// The servers that were asked for do not come, or another manager has changed the cluster's size in this period.
    ProvisionFailed {
        /// The number of the asking.
        request: u64,
        /// Why.
        reason: String,
    },
    /// Another policy is in force from now on.
    PolicyChanged(Arc<Policy>),
    /// Time has passed: at the latest due when `next_timer` says.
    Tick,
}

/// Something that a global manager wants done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GemCommand {
    /// Send a message to the manager on this node. An adjustment and a vote go to its global manager, the others to its
    /// local one; the receiver can be this node itself.
    Send {
        /// The node.
        to: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// Get more servers from the provisioner, and tell the end.
    AddServers {
        /// Counts the askings of this manager.
        request: u64,
        /// How many.
        count: u32,
        /// They are for reserved actors, which does not count as the one change of size that a period may have.
        for_reserve: bool,
    },
    /// Let a server leave: from now on it is draining. Managers move its actors away, and its local manager says when it
    /// is empty.
    RemoveServer {
        /// The server.
        node: NodeId,
    },
    /// Keep this measurement; there is one in each round.
    Measured(Capacity),
    /// Keep this record, in place of an earlier one with the same id.
    Record(Box<Decision>),
}

impl GemCommand {
    pub(crate) fn record(decision: Decision) -> Self {
        GemCommand::Record(Box::new(decision))
    }
}
