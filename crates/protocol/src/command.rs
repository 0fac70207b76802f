//! What a node wants done: the output of its state machine.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, CallId, Caller, Message, NodeId, Outcome, Time};

use crate::{Frame, MoveId};

/// Something for the driver to do. See the [crate's page](crate) for the rules that a driver keeps.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Send this frame to a peer, after all earlier ones to it. Without a connection: dial one and report
    /// [`LinkUp`](crate::Event::LinkUp), dropping the frame is fine then (it is transmitted again).
    Transmit {
        /// The peer.
        to: NodeId,
        /// The frame, deadlines already relative.
        frame: Frame,
    },
    /// Give a caller on this node the outcome of its call.
    Complete {
        /// The call.
        call: CallId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Put a message into an activation's mailbox, after all earlier ones. If the activation is gone, answer with
    /// [`Bounced`](crate::Event::Bounced); if its mailbox is full, with
    /// [`Replied`](crate::Event::Replied) and `Overloaded`.
    Deliver {
        /// Which activation of the message's target.
        epoch: ActivationEpoch,
        /// The message.
        message: Arc<Message>,
    },
    /// Bring an actor into memory, closed: it takes mail only by [`Deliver`](Command::Deliver) and starts no turn until
    /// [`Open`](Command::Open). For a type with stored state, claim this epoch in the store first. Answer with
    /// [`Activated`](crate::Event::Activated).
    Activate {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// Where its state comes from.
        source: StateSource,
    },
    /// Let an activation run, and let callers on this node reach it without the protocol from now on. Also ends what
    /// [`Freeze`](Command::Freeze) began.
    Open {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// Stop an activation at its next turn boundary and encode its state. It still takes mail, also from callers on this
    /// node, but starts no turn. Answer with [`Frozen`](crate::Event::Frozen), at the latest at the deadline; without an
    /// image the activation simply goes on.
    Freeze {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// When to give up.
        deadline: Time,
    },
    /// The move failed: a frozen activation goes on as if nothing had been.
    Resume {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// The move is decided: take the queue of a frozen activation and end it in one step, so that callers on this node
    /// come with [`Send`](crate::Event::Send) from then on. Answer with [`Released`](crate::Event::Released). Calls from
    /// callers on this node keep waiting: [`Complete`](Command::Complete) answers them.
    Release {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// A new actor needs a node. Answer with [`Placed`](crate::Event::Placed).
    NeedPlacement {
        /// The actor.
        actor: ActorId,
        /// Who called it first.
        caller: Caller,
        /// Where that caller is.
        caller_node: NodeId,
    },
    /// A move asked for with [`Move`](crate::Event::Move) was decided.
    MoveEnded {
        /// Which move.
        id: MoveId,
        /// The new activation, or why the actor stays.
        result: Result<ActivationEpoch, MoveError>,
    },
    /// A peer has said what only servers and owners of slots send, and is neither. It was ignored; somebody should know. Given
    /// once for each peer.
    Refused {
        /// The peer.
        from: NodeId,
    },
}

// Every call passes several of these on: up to this size they are copied in place, without a call.
const _: () = assert!(size_of::<Command>() <= 128 && size_of::<crate::Event>() <= 128);

/// Where an activation's state comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSource {
    /// The store, or the type's initial state if nothing is stored.
    Fresh,
    /// The image of the activation that it continues.
    Staged(Bytes),
}

/// Why a move did not happen. The actor runs on where it was, with everything in its mailbox; trying again is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
pub enum MoveError {
    /// The actor is not active on this node.
    #[error("the actor is not active here")]
    NotHere,
    /// It is already where it should go.
    #[error("the actor is already there")]
    AlreadyThere,
    /// It is being moved already.
    #[error("the actor is already being moved")]
    AlreadyMoving,
    /// Too many moves are under way at the node that this names.
    #[error("too many moves are under way at {0}")]
    TooMany(NodeId),
    /// The target takes no actors: it is not there, hosts none, or is being emptied.
    #[error("the target takes no actors")]
    TargetUnfit,
    /// The target died before the move was decided.
    #[error("the target was lost")]
    TargetLost,
    /// The actor did not come to a turn boundary in time, or can't be encoded.
    #[error("the actor did not freeze in time")]
    NotFrozen,
    /// The actor ended by itself before the move was decided.
    #[error("the actor ended by itself")]
    Ended,
    /// The time limit came first.
    #[error("the move took too long")]
    DeadlineExceeded,
    /// The target has joined so recently that a node that has to do with the move has not heard of it yet.
    #[error("the target has only just joined")]
    TargetTooNew,
}
