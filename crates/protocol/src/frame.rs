//! What nodes send to each other.
//!
//! Between two nodes there is one stream of numbered frames in each direction, whatever connections carry it: it is
//! neither lost nor doubled nor reordered as long as both live.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{
    ActivationEpoch, ActorId, CallError, CallId, Caller, Header, Message, NodeId, Outcome, SlotEpoch, Time,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{MoveError, MovedRequest, Slot};

/// What travels in one piece from node to node. Drivers encode it as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Its number among the frames with a body from this node to that peer, from 1; without a body, that of the last one.
    pub number: u64,
    /// The number up to which the sender had handled everything from the peer when it said this. It counts once the
    /// receiver has handled everything up to this frame's own number, so that nothing is acknowledged before what follows
    /// from it is known.
    pub acknowledged: u64,
    /// When it was transmitted, on the sender's clock: the deadlines of messages in it are on that clock.
    pub sent_at: Time,
    /// What it says; nothing if it only acknowledges.
    pub body: Option<Body>,
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A call or tell for an actor.
    Message {
        /// The message.
        #[serde(deserialize_with = "shared")]
        message: Arc<Message>,
        /// The activation that it is meant for, which the receiving node is thought to host. Without one, the receiving
        /// node is the owner of the actor's slot and shall pass it on.
        epoch: Option<ActivationEpoch>,
    },
    /// A call or tell, from the owner of the slot to the host. Its arrival is confirmed to its origin.
    Passed {
        /// The message.
        #[serde(deserialize_with = "shared")]
        message: Arc<Message>,
        /// The activation that it is meant for. The grant of it may still be on the way from an earlier owner.
        epoch: ActivationEpoch,
    },
    /// To the origin of a message: it went from this node to another.
    PassedOn {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// To whom it went.
        to: NodeId,
    },
    /// To the origin of a message that went from node to node: it has its place in the receiver's queue here.
    Landed {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// The activation here.
        epoch: ActivationEpoch,
    },
    /// To the origin of a message: it waits here until it is clear whether it is at the right place. That it has landed, or
    /// comes back, is said later.
    Kept {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// Who sent it, which its origin need not remember.
        caller: Caller,
    },
    /// Back to the origin of a message: that activation is not here.
    Returned {
        /// The message.
        message: Arc<Message>,
        /// A later activation, if this node knows one.
        place: Option<(NodeId, ActivationEpoch)>,
    },
    /// To the origin of a message: it will not run, for this reason.
    TurnedAway {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// Why. Boxed, so that it does not make every frame larger.
        error: Box<CallError>,
    },
    /// The outcome of a call, from the node that ran it (or refused it) to its origin.
    Reply {
        /// The call.
        call: CallId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Acknowledge at once: somebody waits for it.
    Ping,
    /// What follows was sent in knowledge of this view: the receiver waits until it has it too.
    ViewIs {
        /// The view's revision.
        revision: u64,
    },
    /// Between the nodes that take part in a move.
    Move(MoveBody),
    /// To and from the owners of directory slots.
    Directory(DirectoryBody),
    /// To everybody: this node hosts nobody any more and is about to go. Whoever has sent to it turns to the directory.
    Leaving,
    /// To everybody, later: all that this node has passed on has arrived where it said that it went.
    Parted,
}

/// What the source and the target of a move send to each other. A move is named by actor, source epoch and number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveBody {
    /// The actor.
    pub actor: ActorId,
    /// The activation that moves.
    pub epoch: ActivationEpoch,
    /// Counts the attempts to move this activation.
    pub attempt: u32,
    /// What is said.
    pub step: MoveStep,
}

/// One step of a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MoveStep {
    /// Source to target: will you take it?
    Offer,
    /// Target to source: yes. Everything that the target's callers sent before has been sent before this.
    Accept,
    /// Target to source: no.
    Refuse(MoveError),
    /// Source to target, before the state image: what the actor knows of requests that may come again.
    Requests(Vec<MovedRequest>),
    /// Source to target: a part of the state image, in order.
    Stage {
        /// The part.
        chunk: Bytes,
        /// Whether it is the last one.
        last: bool,
    },
    /// Source to target: the move is off, forget it.
    Cancel,
    /// Source to target, after the commit: a part of the queue, in order. It proves the commit.
    Release {
        /// The new activation.
        to_epoch: ActivationEpoch,
        /// The part.
        queue: Vec<Arc<Message>>,
        /// Whether it is the last one.
        last: bool,
    },
    /// Source to target, after the last part of the queue: what the actor itself has sent from the source has found its
    /// place, so it may send again.
    Settled,
    /// Target to source: the whole queue is here, so the source need not vouch for the new activation any longer.
    Arrived,
}

/// What nodes and slot owners send to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DirectoryBody {
    /// Owner to host: activate this actor.
    Grant {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// Host to owner: this activation is over (or never began).
    Ended {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// Owner to host: noted; nobody is sent to you for this activation after this.
    EndNoted {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
    },
    /// Target of a move to owner: the state is staged here; make me the host if `from` still is and has not called this
    /// attempt off.
    Commit {
        /// The actor.
        actor: ActorId,
        /// Who hosts it now.
        from: NodeId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// Which attempt to move it.
        attempt: u32,
    },
    /// Source of a move to owner: no attempt up to this one may be committed any more, if none was.
    Abort {
        /// The actor.
        actor: ActorId,
        /// Which activation.
        epoch: ActivationEpoch,
        /// Which attempt to move it.
        attempt: u32,
    },
    /// Owner to source and target: the move is decided.
    Decided {
        /// The actor.
        actor: ActorId,
        /// The activation that was to move.
        epoch: ActivationEpoch,
        /// Which attempt to move it.
        attempt: u32,
        /// Where the actor is now. If that is a later activation than `epoch` the move was committed.
        node: NodeId,
        /// The activation there.
        now: ActivationEpoch,
        /// The owner's epoch, by which an earlier owner is known.
        by: SlotEpoch,
    },
    /// Old owner to new owner: a part of what is known of these slots, in order.
    HandOver {
        /// The slots, each with the new owner's epoch.
        slots: Vec<(Slot, SlotEpoch)>,
        /// Actors and where they are.
        entries: Vec<Entry>,
        /// Whether it is the last part; `None` if the old owner has nothing to give and the new one must ask everybody.
        last: Option<bool>,
    },
    /// New owner to every node: what do you host in these slots? Whoever answers acts on no earlier owner's word after.
    Recover {
        /// The slots, each with the new owner's epoch.
        slots: Vec<(Slot, SlotEpoch)>,
    },
    /// Node to new owner: a part of what it hosts, in order.
    Recovered {
        /// Actors and where they are.
        entries: Vec<Entry>,
        /// With the last part: the slots that this answers.
        done: Vec<(Slot, SlotEpoch)>,
    },
}

/// Where an actor is, as the directory keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The actor.
    pub actor: ActorId,
    /// Its host.
    pub node: NodeId,
    /// The activation there.
    pub epoch: ActivationEpoch,
    /// Attempts to move this activation below this number can't be committed any more.
    pub attempts_void: u32,
}

/// Decodes a message to be shared. What serde does for this by itself takes two allocations.
fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Message>, D::Error> {
    Message::deserialize(from).map(Arc::new)
}

impl Body {
    /// The bytes that it carries for others: arguments, replies, parts of states and queues. What is around them is small
    /// and bounded by how many frames there may be.
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Body::Message { message, .. } | Body::Passed { message, .. } | Body::Returned { message, .. } => {
                message.body.len()
            }
            Body::Reply { outcome, .. } => outcome.as_ref().map_or(0, |reply| reply.len()),
            Body::Move(MoveBody { step, .. }) => match step {
                MoveStep::Stage { chunk, .. } => chunk.len(),
                MoveStep::Requests(requests) => requests.iter().map(MovedRequest::bytes).sum(),
                MoveStep::Release { queue, .. } => queue.iter().map(|message| message.body.len()).sum(),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Whether it is a message for an actor, or the outcome of one.
    pub(crate) fn is_of_call(&self) -> bool {
        matches!(self, Body::Message { .. } | Body::Passed { .. } | Body::Reply { .. })
    }

    /// Whether it is a message that nobody waits for a reply to.
    pub(crate) fn is_tell(&self) -> bool {
        matches!(self, Body::Message { message, .. } if message.header.one_way)
    }

    /// Applies `change` to the header of every message inside that has a deadline. Messages are copied only if somebody else
    /// has them too.
    fn each_with_deadline(&mut self, change: impl Fn(&mut Header)) {
        let change = |message: &mut Arc<Message>| {
            if message.header.deadline.is_some() {
                change(&mut Arc::make_mut(message).header);
            }
        };
        match self {
            Body::Message { message, .. } | Body::Passed { message, .. } | Body::Returned { message, .. } => {
                change(message)
            }
            Body::Move(MoveBody {
                step: MoveStep::Release { queue, .. },
                ..
            }) => queue.iter_mut().for_each(change),
            _ => {}
        }
    }

    /// It came from a node whose clock showed `theirs` when it left, and `ours` is now on this one's.
    pub(crate) fn change_clock(&mut self, theirs: Time, ours: Time) {
        self.each_with_deadline(|header| header.change_clock(theirs, ours));
    }
}
