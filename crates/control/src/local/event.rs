//! What a local manager is told, and what it wants done.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, Snapshot};
use serde::{Deserialize, Serialize};

use crate::{ControlMessage, Decision, Member, NewActor, Placement};

/// One move that a local manager asked for, by number within that manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoveId(pub u64);

/// Something that a local manager must know. Events are plain data, so that a recorded run can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LemEvent {
    /// An elasticity period has ended with this result. The snapshot has this one server, and the actors on it that the
    /// policy is interested in; all of them if [`Lem::wants_all_actors`](crate::Lem::wants_all_actors) says so. The first
    /// is due as soon as the server has joined and knows the members, however short it is, so that a global manager
    /// learns of the server at once.
    Period(Snapshot),
    /// A message from a manager on another node, or on this one.
    Message {
        /// The node it comes from.
        from: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// A move that the manager asked for has ended.
    MoveEnded {
        /// Which move.
        id: MoveId,
        /// Why the actor did not move, if it did not: it is then where it was.
        result: Result<(), String>,
    },
    /// Who is in the cluster now.
    Members(Vec<Member>),
    /// Another policy is in force from now on.
    PolicyChanged(Arc<Policy>),
    /// A new actor needs a place.
    Place {
        /// The caller's number for this asking.
        request: u64,
        /// The actor.
        new: NewActor,
    },
    /// Time has passed: at the latest due when `next_timer` says.
    Tick,
}

/// Something that a local manager wants done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LemCommand {
    /// Send a message to the manager on this node. A report, a placement and a vote go to its global manager, the
    /// others to its local one; the receiver can be this node itself.
    Send {
        /// The node.
        to: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// Send a message to the local manager of the server that this actor is on, as the directory has it. If it is on
    /// none, drop the message.
    SendToHost {
        /// The actor.
        actor: ActorId,
        /// The message.
        message: ControlMessage,
    },
    /// Move an actor of this server, and tell the end with [`LemEvent::MoveEnded`].
    Move {
        /// Which move.
        id: MoveId,
        /// The actor.
        actor: ActorId,
        /// Where to.
        to: NodeId,
    },
    /// The answer to [`LemEvent::Place`].
    Placed {
        /// The caller's number for the asking.
        request: u64,
        /// Where the actor goes; `None` if no server that takes actors is known.
        placement: Option<Placement>,
    },
    /// This server is being emptied and has no actors left: it may go.
    Leave,
    /// Keep this record, in place of an earlier one with the same id.
    Record(Box<Decision>),
}

impl LemCommand {
    pub(crate) fn record(decision: Decision) -> Self {
        LemCommand::Record(Box::new(decision))
    }
}
