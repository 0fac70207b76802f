//! Events that a global manager handles, and commands that it returns.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::NodeId;
use serde::{Deserialize, Serialize};

use crate::{Capacity, ControlMessage, Decision, Member};

/// An input of a global manager. Events are plain data, so that a recorded run can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GemEvent {
    /// A message from a manager on another node, or on this one.
    Message {
        /// The sender's node.
        from: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// The current cluster members.
    Members(Vec<Member>),
    /// The requested servers have been provided: they are members, or will be shortly.
    Provisioned {
        /// The number of the request.
        request: u64,
        /// The servers.
        nodes: Vec<NodeId>,
    },
    /// The request for servers failed, or another manager has changed the cluster's size in this period.
    ProvisionFailed {
        /// The number of the request.
        request: u64,
        /// The reason.
        reason: String,
    },
    /// A new policy is in force.
    PolicyChanged(Arc<Policy>),
    /// Time has passed. Due at the time that `next_timer` returns, at the latest.
    Tick,
}

/// An output of a global manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GemCommand {
    /// Send a message to a manager on this node. An adjustment and a vote go to its global manager, the others to its
    /// local one. The receiver can be this node itself.
    Send {
        /// The node.
        to: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// Request servers from the provisioner and report the result.
    AddServers {
        /// Request number, counted per manager.
        request: u64,
        /// Number of servers.
        count: u32,
        /// They are for reserved actors; this does not count as the one size change allowed per period.
        for_reserve: bool,
    },
    /// Drain a server so that it leaves. Managers move its actors away; its local manager reports when it is empty.
    RemoveServer {
        /// The server.
        node: NodeId,
    },
    /// Store this measurement, one per round.
    Measured(Capacity),
    /// Store this record, replacing an earlier one with the same id.
    Record(Box<Decision>),
}

impl GemCommand {
    pub(crate) fn send(to: NodeId, message: ControlMessage) -> Self {
        GemCommand::Send { to, message }
    }
}

impl From<Decision> for GemCommand {
    fn from(decision: Decision) -> Self {
        GemCommand::Record(Box::new(decision))
    }
}
