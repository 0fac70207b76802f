//! Events: the input of a node's state machine.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, Outcome, Time};

use crate::{Frame, View};

/// Identifies a move for its requester. The protocol only returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveId(pub u64);

/// A requested move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The move's id.
    pub id: MoveId,
    /// The actor.
    pub actor: ActorId,
    /// The target node.
    pub to: NodeId,
}

/// Something that happened at a node. The [crate documentation](crate) has the driver contract.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A caller on this node sends to an actor that is not open here. If the message is a call, exactly one
    /// [`Complete`](crate::Command::Complete) answers it.
    Send {
        /// The message; its call's origin is this node.
        message: Arc<Message>,
    },
    /// A caller on this node no longer waits for its call. No [`Complete`](crate::Command::Complete) follows; the call
    /// may still run.
    GiveUp {
        /// The call.
        call: CallId,
    },
    /// A caller on this node makes no further call of a request begun with
    /// [`begin_request`](crate::Node::begin_request). Records of the request may be dropped.
    Settle {
        /// The request's number.
        request: u64,
    },
    /// A frame arrived from a peer.
    Frame {
        /// The sender, as authenticated by its connection.
        from: NodeId,
        /// The frame.
        frame: Frame,
    },
    /// Frames transmitted to this peer from now on use a new connection.
    LinkUp {
        /// The peer.
        peer: NodeId,
    },
    /// The connection to this peer broke: transmitted but unacknowledged frames may be lost. This does not imply that
    /// the peer is dead.
    LinkDown {
        /// The peer.
        peer: NodeId,
    },
    /// The membership changed.
    View(View),
    /// The lease is valid until this time on the node's clock. After it no frame is transmitted until a later time
    /// arrives, which releases the frames held back. The node checks this on every event, because a process may be
    /// suspended for any time between two.
    MayActUntil(Time),
    /// The runtime executed an [`Activate`](crate::Command::Activate).
    Activated {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
        /// `Ok` if the activation exists and is closed. Otherwise there is none, no call has run, and held calls end
        /// with this error.
        result: Result<(), CallError>,
    },
    /// The runtime executed a [`Freeze`](crate::Command::Freeze).
    Frozen {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
        /// The encoded state, with timers and everything else that moves along. `None` if the actor did not reach a
        /// turn boundary in time or cannot be moved; it then resumes.
        image: Option<Bytes>,
    },
    /// The runtime executed a [`Release`](crate::Command::Release): the activation is gone, and these messages were
    /// queued in its mailbox, in order.
    Released {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
        /// The messages.
        queue: Vec<Arc<Message>>,
    },
    /// The runtime ended an activation by itself (idle, or dropped after a failed save). Messages for it bounce from
    /// then on.
    Passivated {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// A [`Deliver`](crate::Command::Deliver) found the activation gone. Precedes any event that is not a bounce.
    Bounced {
        /// The activation that the message was meant for.
        epoch: ActivationEpoch,
        /// The message.
        message: Arc<Message>,
    },
    /// The runtime finished a call that came with [`Deliver`](crate::Command::Deliver): the outcome goes to its origin,
    /// which may be this node. Tells must not be reported. `NotDelivered`, `Overloaded`, `Rejected`, `CallCycle` and
    /// `DeadlineExceeded` mean that the call has not run.
    Replied {
        /// The call.
        call: CallId,
        /// The outcome.
        outcome: Outcome,
    },
    /// Move an actor of this node. Exactly one [`MoveEnded`](crate::Command::MoveEnded) answers it.
    Move {
        /// The move's id.
        id: MoveId,
        /// The actor.
        actor: ActorId,
        /// The target node.
        to: NodeId,
    },
    /// Move many actors of this node, such as all of them before it leaves. The moves are queued until the limits allow
    /// them to begin, and overloaded targets are retried. Each move ends independently, with a
    /// [`MoveEnded`](crate::Command::MoveEnded) of its own.
    Moves(Vec<PlannedMove>),
    /// Move actors of this node together. None is frozen before targets have accepted all of them, and if one cannot be
    /// frozen or accepted none is moved. Once all are frozen each move is decided independently. A group larger than
    /// [`Limits::moves_out`](crate::Limits::moves_out) is refused. Each move is answered by a
    /// [`MoveEnded`](crate::Command::MoveEnded).
    MoveTogether(Vec<PlannedMove>),
    /// The node for a new actor: the answer to [`NeedPlacement`](crate::Command::NeedPlacement).
    Placed {
        /// The actor.
        actor: ActorId,
        /// The node to host it; `None` if placement knows none. If there is none, or the view shows that the node accepts
        /// no actors, the directory chooses a node that does.
        node: Option<NodeId>,
    },
    /// This node is to leave. It hosts no actors any more, and the view marks it as accepting none. The driver repeats
    /// this event until [`may_go`](crate::Node::may_go) returns true.
    Leave,
    /// This node, a client, has lost its membership for good. Each call of a local caller ends: with `NotDelivered` if
    /// it certainly never left or was returned, otherwise with `Unknown`. Later sends are rejected, and other events
    /// are ignored.
    Evicted,
    /// The time returned by [`Node::next_timer`](crate::Node::next_timer) has come. Early or redundant events are
    /// harmless.
    Timer,
}
