//! Events that a local manager handles, and commands that it returns.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, Snapshot};
use serde::{Deserialize, Serialize};

use crate::{ControlMessage, Decision, Member, NewActor, Placement};

/// A move that a local manager requested, numbered per manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoveId(pub u64);

/// An input of a local manager. Events are plain data, so that a recorded run can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LemEvent {
    /// An elasticity period has ended with this snapshot. It contains this server and the actors on it that the policy
    /// is interested in, or all actors if [`Lem::wants_all_actors`](crate::Lem::wants_all_actors) is true.
    ///
    /// The first period ends when the server has joined and knows the members, however short it is. A global manager
    /// thus sees a new server immediately.
    Period(Snapshot),
    /// A message from a manager on another node, or on this one.
    Message {
        /// The sender's node.
        from: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// A requested move has ended.
    MoveEnded {
        /// The move.
        id: MoveId,
        /// The reason if the actor did not move; it is then still on this server.
        result: Result<(), String>,
    },
    /// The current cluster members.
    Members(Vec<Member>),
    /// A new policy is in force.
    PolicyChanged(Arc<Policy>),
    /// A new actor needs a server.
    Place {
        /// The driver's number for this request.
        request: u64,
        /// The actor.
        new: NewActor,
    },
    /// Time has passed. Due at the time that `next_timer` returns, at the latest.
    Tick,
}

/// An output of a local manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LemCommand {
    /// Send a message to a manager on this node. A report, a placement and a vote go to its global manager, the others
    /// to its local one. The receiver can be this node itself.
    Send {
        /// The node.
        to: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// Send a message to the local manager of the server that hosts this actor according to the directory. If none
    /// does, drop the message.
    SendToHost {
        /// The actor.
        actor: ActorId,
        /// The message.
        message: ControlMessage,
    },
    /// Move an actor of this server and report the result with [`LemEvent::MoveEnded`].
    Move {
        /// The move.
        id: MoveId,
        /// The actor.
        actor: ActorId,
        /// The target server.
        to: NodeId,
    },
    /// Reply to [`LemEvent::Place`].
    Placed {
        /// The driver's number for the request.
        request: u64,
        /// The chosen server; `None` if no server that accepts actors is known.
        placement: Option<Placement>,
    },
    /// This server has been drained and may leave.
    Leave,
    /// Store this record, replacing an earlier one with the same id.
    Record(Box<Decision>),
}

impl LemCommand {
    pub(crate) fn send(to: NodeId, message: ControlMessage) -> Self {
        LemCommand::Send { to, message }
    }
}

impl From<Decision> for LemCommand {
    fn from(decision: Decision) -> Self {
        LemCommand::Record(Box::new(decision))
    }
}
