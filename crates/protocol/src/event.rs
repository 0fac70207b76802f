//! What happens to a node: the input of its state machine.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, Outcome, Time};

use crate::{Frame, View};

/// Names a move for whoever asked for it. The protocol only hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveId(pub u64);

/// A move that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// Names it.
    pub id: MoveId,
    /// The actor.
    pub actor: ActorId,
    /// Where it shall go.
    pub to: NodeId,
}

/// Something that happened at a node. See the [crate's page](crate) for the rules that a driver keeps.
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
    /// A caller here makes no call again of a request that it began with
    /// [`begin_request`](crate::Node::begin_request): what is remembered of it elsewhere may be forgotten.
    Settle {
        /// The request's number.
        request: u64,
    },
    /// A frame came from a peer.
    Frame {
        /// Who sent it, as its connection has proven.
        from: NodeId,
        /// The frame.
        frame: Frame,
    },
    /// Frames transmitted to this peer from now on go over a new connection.
    LinkUp {
        /// The peer.
        peer: NodeId,
    },
    /// The connection to this peer broke: what was transmitted and not acknowledged may be lost. It says nothing about
    /// whether the peer lives.
    LinkDown {
        /// The peer.
        peer: NodeId,
    },
    /// The membership changed.
    View(View),
    /// The lease is good until this time on the node's clock. From then on nothing leaves, which is looked at with every
    /// event, because a process may be stopped for any time between two. When a later time comes, what was kept back leaves.
    MayActUntil(Time),
    /// The runtime carried out an [`Activate`](crate::Command::Activate).
    Activated {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// Ok if it is there, closed. Otherwise nothing is there, no call has run, and the calls that wait end with this
        /// error.
        result: Result<(), CallError>,
    },
    /// The runtime carried out a [`Freeze`](crate::Command::Freeze).
    Frozen {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// The encoded state (with timers and whatever else moves along), or `None` if the actor did not come to a turn
        /// boundary in time or can't be moved; it goes on then.
        image: Option<Bytes>,
    },
    /// The runtime carried out a [`Release`](crate::Command::Release): the activation is gone, and this is what waited
    /// in its mailbox, in order.
    Released {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// Its queue.
        queue: Vec<Arc<Message>>,
    },
    /// The runtime ended an activation by itself (idle, or dropped after a failed save). Mail for it bounces from then
    /// on.
    Passivated {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// A [`Deliver`](crate::Command::Deliver) found the activation gone. Comes before any event that is not a bounce.
    Bounced {
        /// Which activation it was meant for.
        epoch: ActivationEpoch,
        /// The message.
        message: Arc<Message>,
    },
    /// The runtime finished a call that came with [`Deliver`](crate::Command::Deliver): the outcome goes to its origin,
    /// which may be this node. Tells must not be reported. `NotDelivered`, `Overloaded`, `Rejected`, `CallCycle` and
    /// `DeadlineExceeded` send that it has not run.
    Replied {
        /// The call.
        call: CallId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Somebody wants an actor of this node moved. Exactly one [`MoveEnded`](crate::Command::MoveEnded) answers it.
    Move {
        /// Names the move.
        id: MoveId,
        /// The actor.
        actor: ActorId,
        /// Where it shall go.
        to: NodeId,
    },
    /// Somebody wants many actors of this node moved, such as all of them before it leaves. They wait until the limits on
    /// moves allow them to begin, and a target that has too much to do is asked again. Each one is answered by a
    /// [`MoveEnded`](crate::Command::MoveEnded) of its own: what becomes of one says nothing about the others.
    Moves(Vec<PlannedMove>),
    /// Somebody wants actors of this node moved together: none is frozen before targets have taken all of them, and if one
    /// can't be frozen or taken none is moved. From when all are frozen each move is decided for itself. A group that
    /// is larger than [`Limits::moves_out`](crate::Limits::moves_out) is refused. Each move is answered by a
    /// [`MoveEnded`](crate::Command::MoveEnded).
    MoveTogether(Vec<PlannedMove>),
    /// Where a new actor goes: the answer to [`NeedPlacement`](crate::Command::NeedPlacement).
    Placed {
        /// The actor.
        actor: ActorId,
        /// The node that shall host it; `None` if none is known that can. If the view says that this node takes no actors, or
        /// another does, the actor goes to one that does.
        node: Option<NodeId>,
    },
    /// This node is to go. It hosts nobody any more, and the view says that it takes nobody. Comes again and again until
    /// [`may_go`](crate::Node::may_go) says that nobody will send to it.
    Part,
    /// This node, which is a client's, is no longer a member, and never will be again. Every call of a caller here ends:
    /// with `NotDelivered` if it certainly never left or came back, with `Unknown` else. Whoever sends from now on is
    /// turned away; nothing else matters to it any more.
    Evicted,
    /// The time that [`Node::next_timer`](crate::Node::next_timer) named has come. Too early or too often does no harm.
    Timer,
}
