//! Commands: the output of a node's state machine.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, CallId, Caller, Message, NodeId, Outcome, Time};

use crate::{Frame, MoveId};

/// Something for the driver to execute. The [crate documentation](crate) has the driver contract.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Send this frame to a peer, after all earlier ones to it. Without a connection, dial one and report
    /// [`LinkUp`](crate::Event::LinkUp); the frame may then be dropped, because it is retransmitted.
    Transmit {
        /// The peer.
        to: NodeId,
        /// The frame, with deadlines already relative.
        frame: Frame,
    },
    /// Complete the call of a caller on this node.
    Complete {
        /// The call.
        call: CallId,
        /// The outcome.
        outcome: Outcome,
    },
    /// Enqueue a message into an activation's mailbox, after all earlier ones. If the activation is gone, answer with
    /// [`Bounced`](crate::Event::Bounced). If its mailbox is full, answer with [`Replied`](crate::Event::Replied) and
    /// `Overloaded`.
    Deliver {
        /// The activation of the message's target.
        epoch: ActivationEpoch,
        /// The message.
        message: Arc<Message>,
    },
    /// Load an actor, closed: it accepts messages only through [`Deliver`](Command::Deliver) and starts no turn until
    /// [`Open`](Command::Open). For a type with stored state, claim this epoch in the store first. Answer with
    /// [`Activated`](crate::Event::Activated).
    Activate {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
        /// The source of its state.
        source: StateSource,
    },
    /// Let an activation run, and let callers on this node reach it directly, without the protocol, from now on. Also
    /// ends a [`Freeze`](Command::Freeze).
    Open {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// Stop an activation at its next turn boundary and encode its state. It still accepts messages, also from callers
    /// on this node, but starts no turn. Answer with [`Frozen`](crate::Event::Frozen) by the deadline; without an image
    /// the activation resumes.
    Freeze {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
        /// When to give up.
        deadline: Time,
    },
    /// The move failed: resume a frozen activation where it stopped.
    Resume {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// The move is committed: atomically take the queue of a frozen activation and end it. From then on callers on this
    /// node use [`Send`](crate::Event::Send). Answer with [`Released`](crate::Event::Released). Calls from this node
    /// keep waiting until [`Complete`](Command::Complete).
    Release {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// Choose a node for a new actor. Answer with [`Placed`](crate::Event::Placed).
    NeedPlacement {
        /// The actor.
        actor: ActorId,
        /// The first caller.
        caller: Caller,
        /// The node of that caller.
        caller_node: NodeId,
    },
    /// A move requested with [`Move`](crate::Event::Move), [`Moves`](crate::Event::Moves) or
    /// [`MoveTogether`](crate::Event::MoveTogether) has ended.
    MoveEnded {
        /// The move.
        id: MoveId,
        /// The new activation, or the reason why the actor stays.
        result: Result<ActivationEpoch, MoveError>,
    },
    /// A peer that is neither a server nor a slot owner sent a body reserved to those. The body was ignored; the driver
    /// should log it. Emitted once per peer.
    Refused {
        /// The peer.
        from: NodeId,
    },
}

// Every call passes several of these on. Up to this size they are copied inline, without a `memcpy` call.
const _: () = assert!(size_of::<Command>() <= 128 && size_of::<crate::Event>() <= 128);

/// The source of an activation's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSource {
    /// The store, or the type's initial state if nothing is stored.
    Fresh,
    /// The image of the activation that it continues.
    Staged(Bytes),
}

/// Why a move did not happen. The actor stays where it was, with its mailbox intact; retrying is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
pub enum MoveError {
    /// The actor is not active on this node.
    #[error("the actor is not active here")]
    NotHere,
    /// The actor is already at the target.
    #[error("the actor is already there")]
    AlreadyThere,
    /// The actor is being moved already.
    #[error("the actor is already being moved")]
    AlreadyMoving,
    /// Too many moves are in progress at the named node.
    #[error("too many moves are under way at {0}")]
    TooMany(NodeId),
    /// The target accepts no actors: it is not a member, hosts none, or is draining.
    #[error("the target takes no actors")]
    TargetUnfit,
    /// The target died before the move was decided.
    #[error("the target was lost")]
    TargetLost,
    /// The actor did not reach a turn boundary in time, or cannot be encoded.
    #[error("the actor did not freeze in time")]
    NotFrozen,
    /// The activation ended before the move was decided.
    #[error("the actor ended by itself")]
    Ended,
    /// The deadline of the move passed.
    #[error("the move took too long")]
    DeadlineExceeded,
    /// The target has joined so recently that a node involved in the move does not know it yet.
    #[error("the target has only just joined")]
    TargetTooNew,
}
