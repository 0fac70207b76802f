//! Frames: the messages between nodes.
//!
//! Each pair of nodes has one stream of numbered frames per direction, independent of the connections that carry it. As
//! long as both nodes live, no frame is lost, duplicated or reordered.

use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{
    ActivationEpoch, ActorId, CallError, CallId, Caller, Header, Message, NodeId, Outcome, SlotEpoch, Time,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{MoveError, MovedRequest, Slot};

/// The unit of transmission between nodes. Drivers encode it as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The frame's number among the frames with a body to that peer, from 1. A frame without a body has the number of
    /// the last one with a body.
    pub number: u64,
    /// The sender had handled every frame from the peer up to this number. It takes effect once the receiver has
    /// handled everything up to this frame's own number, so that responses precede acknowledgements.
    pub acknowledged: u64,
    /// Transmission time on the sender's clock, to which the deadlines of messages inside refer.
    pub sent_at: Time,
    /// The body; `None` for a bare acknowledgement.
    pub body: Option<Body>,
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A call or tell for an actor.
    Message {
        /// The message.
        #[serde(deserialize_with = "shared")]
        message: Arc<Message>,
        /// The activation that the message is meant for, which the receiving node is believed to host. Without one, the
        /// receiving node is the owner of the actor's slot and forwards the message.
        epoch: Option<ActivationEpoch>,
    },
    /// A call or tell, forwarded by the owner of the slot to the host. Its arrival is confirmed to its origin.
    Passed {
        /// The message.
        #[serde(deserialize_with = "shared")]
        message: Arc<Message>,
        /// The activation that it is meant for, whose grant may still be in flight from an earlier owner.
        epoch: ActivationEpoch,
    },
    /// To the origin of a message: it was forwarded to another node.
    PassedOn {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// The node that it was forwarded to.
        to: NodeId,
    },
    /// To the origin of a forwarded message: it has its place in the receiver's queue here.
    Landed {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// The activation here.
        epoch: ActivationEpoch,
    },
    /// To the origin of a message: it is kept here until its place is certain. A `Landed` or `Returned` follows.
    Kept {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// The sender, so that the origin need not remember it.
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
    Rejected {
        /// Its receiver.
        actor: ActorId,
        /// The message.
        call: CallId,
        /// The reason. Boxed to keep frames small.
        error: Box<CallError>,
    },
    /// The outcome of a call, from the node that ran or rejected it to its origin.
    Reply {
        /// The call.
        call: CallId,
        /// The outcome.
        outcome: Outcome,
    },
    /// Request for an immediate acknowledgement.
    Ping,
    /// The following frames were sent in knowledge of this view; the receiver defers them until it has it too.
    ViewIs {
        /// The view's revision.
        revision: u64,
    },
    /// Between the source and the target of a move.
    Move(MoveBody),
    /// To and from the owners of directory slots.
    Directory(DirectoryBody),
    /// To all members: this node hosts no actors any more and is leaving. Senders resolve actors through the directory.
    Leaving,
    /// To all members, later: all messages forwarded by this node have arrived.
    Parted,
}

/// A message between the source and the target of a move. A move is identified by actor, source epoch and attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveBody {
    /// The actor.
    pub actor: ActorId,
    /// The activation that moves.
    pub epoch: ActivationEpoch,
    /// The number of this attempt to move the activation.
    pub attempt: u32,
    /// The step.
    pub step: MoveStep,
}

/// One step of a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MoveStep {
    /// Source to target: offers the actor.
    Offer,
    /// Target to source: accepts. Everything that the target's callers sent to the source precedes this.
    Accept,
    /// Target to source: refuses.
    Refuse(MoveError),
    /// Source to target, before the state image: the actor's deduplication records.
    Requests(Vec<MovedRequest>),
    /// Source to target: a chunk of the state image, in order.
    Stage {
        /// The chunk.
        chunk: Bytes,
        /// Whether it is the last chunk.
        last: bool,
    },
    /// Source to target: the move is cancelled.
    Cancel,
    /// Source to target, after the commit: a part of the queue, in order. It proves the commit.
    Release {
        /// The new activation.
        to_epoch: ActivationEpoch,
        /// The messages.
        queue: Vec<Arc<Message>>,
        /// Whether it is the last part.
        last: bool,
    },
    /// Source to target, after the last part of the queue: everything that the actor sent from the source has settled,
    /// so it may send again.
    Settled,
    /// Target to source: the whole queue is here, so the source need not vouch for the new activation any longer.
    Arrived,
}

/// A message between nodes and slot owners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DirectoryBody {
    /// Owner to host: activate this actor.
    Grant {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// Host to owner: this activation is over, or never began.
    Ended {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// Owner to host: noted. No message for this activation is forwarded after this.
    EndNoted {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
    },
    /// Target of a move to owner: the state is staged here. Make the target the host if `from` still is, and has not
    /// aborted this attempt.
    Commit {
        /// The actor.
        actor: ActorId,
        /// The present host.
        from: NodeId,
        /// The activation.
        epoch: ActivationEpoch,
        /// The attempt to move it.
        attempt: u32,
    },
    /// Source of a move to owner: unless an attempt up to this one was committed, none may be any more.
    Abort {
        /// The actor.
        actor: ActorId,
        /// The activation.
        epoch: ActivationEpoch,
        /// The attempt to move it.
        attempt: u32,
    },
    /// Owner to source and target: the move is decided.
    Decided {
        /// The actor.
        actor: ActorId,
        /// The activation that was to move.
        epoch: ActivationEpoch,
        /// The attempt to move it.
        attempt: u32,
        /// The actor's present host. The move was committed if the activation there is later than `epoch`.
        node: NodeId,
        /// The activation there.
        now: ActivationEpoch,
        /// The owner's epoch, which exposes a stale owner.
        by: SlotEpoch,
    },
    /// Old owner to new owner: a part of the entries of these slots, in order.
    HandOver {
        /// The slots, each with the new owner's epoch.
        slots: Vec<(Slot, SlotEpoch)>,
        /// Locations of actors.
        entries: Vec<Entry>,
        /// Whether it is the last part; `None` if the old owner has no entries to give and the new one must recover
        /// them.
        last: Option<bool>,
    },
    /// New owner to every host: request for the activations in these slots. After the answer the host ignores earlier
    /// owners.
    Recover {
        /// The slots, each with the new owner's epoch.
        slots: Vec<(Slot, SlotEpoch)>,
    },
    /// Host to new owner: a part of its activations, in order.
    Recovered {
        /// Locations of actors.
        entries: Vec<Entry>,
        /// With the last part: the slots that this answers.
        done: Vec<(Slot, SlotEpoch)>,
    },
}

/// The location of an actor, as kept by the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The actor.
    pub actor: ActorId,
    /// Its host.
    pub node: NodeId,
    /// The activation there.
    pub epoch: ActivationEpoch,
    /// Attempts to move this activation below this number cannot be committed any more.
    pub attempts_void: u32,
}

/// Decodes a message into an `Arc` with a single allocation; serde's own implementation takes two.
fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Message>, D::Error> {
    Message::deserialize(from).map(Arc::new)
}

impl Body {
    /// Payload bytes: arguments, replies, parts of images and queues. The overhead is small and bounded by the number
    /// of frames.
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

    /// Whether it is a tell.
    pub(crate) fn is_tell(&self) -> bool {
        matches!(self, Body::Message { message, .. } if message.header.one_way)
    }

    /// Applies `change` to the header of every contained message with a deadline. Messages are copied only if they are
    /// shared.
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

    /// Converts deadlines from the sender's clock, which showed `theirs` at transmission, to this node's, which shows
    /// `ours`.
    pub(crate) fn change_clock(&mut self, theirs: Time, ours: Time) {
        self.each_with_deadline(|header| header.change_clock(theirs, ours));
    }
}
