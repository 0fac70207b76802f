//! Routes: where a node sends messages for an actor, and when it may change that without reordering them.
//!
//! A message is meant for one activation, and a node that hosts another one (or none) returns it. So each message sent
//! to an activation either enters that activation's queue, which moves along with the actor, or is returned. The sender
//! switches to a later activation only after every message has done one or the other. It then sends the returned
//! messages first, and the held ones after them. The acknowledgement of the last frame proves that all messages are
//! accounted for: a message is returned, or reported as kept, before its frame is acknowledged.
//!
//! Only one message at a time goes through the directory, and the rest waits until it has landed: on that path two
//! messages could reach different activations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, CallId, Caller, Message, NodeId};

/// The path to one actor, and the messages held for it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: Path,
    /// Held messages, in order. Bounded by [`Limits::held_per_actor`](crate::Limits::held_per_actor).
    pub(crate) held: VecDeque<Arc<Message>>,
}

/// The path of messages to an actor.
#[derive(Debug)]
pub(crate) enum Path {
    /// No path: the slot has no living owner.
    Blocked,
    /// One message is on its way through the directory.
    Asking(Asking),
    /// Directly to the host.
    Direct {
        node: NodeId,
        epoch: ActivationEpoch,
        /// The number of the last frame sent to it.
        last: u64,
        /// Set when the path is to be left. Boxed, because that is rare.
        leaving: Option<Box<Leaving>>,
        /// Messages kept at that node until the actor's location is certain, with their senders. An empty map does not
        /// allocate.
        kept: BTreeMap<CallId, Caller>,
    },
}

/// A message on its way through the directory.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) call: CallId,
    pub(crate) caller: Caller,
    /// Nodes that may have the message.
    pub(crate) at: Vec<NodeId>,
    /// How often the message was returned.
    pub(crate) returns: u32,
}

/// A path to be left once everything sent along it is accounted for.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) next: Place,
    /// Returned messages, in order.
    pub(crate) returned: VecDeque<Arc<Message>>,
    /// Whether the node was asked for an immediate acknowledgement.
    pub(crate) pinged: bool,
}

/// The destination of a new path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Through the directory.
    Directory,
    /// To this host.
    Host(NodeId, ActivationEpoch),
}

impl Leaving {
    pub(crate) fn to(next: Place) -> Self {
        Self {
            next,
            returned: VecDeque::new(),
            pinged: false,
        }
    }

    /// Learns of a destination; the later of two activations wins.
    pub(crate) fn learn(&mut self, place: Place) {
        let Place::Host(_, epoch) = place else {
            return;
        };
        if !matches!(self.next, Place::Host(_, known) if known >= epoch) {
            self.next = place;
        }
    }
}

impl Route {
    /// Messages held at this node, in no particular order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arc<Message>> {
        let returned = match &self.path {
            Path::Direct {
                leaving: Some(leaving), ..
            } => Some(&leaving.returned),
            _ => None,
        };
        self.held.iter().chain(returned.into_iter().flatten())
    }

    /// Whether a message of a matching caller has no place in its receiver's queue yet, as far as the route knows.
    pub(crate) fn waits_for(&self, is_it: impl Fn(&Caller) -> bool) -> bool {
        let in_flight = match &self.path {
            Path::Blocked => false,
            Path::Asking(asking) => is_it(&asking.caller),
            Path::Direct { kept, .. } => kept.values().any(&is_it),
        };
        in_flight || self.waiting().any(|message| is_it(&message.header.caller))
    }

    /// Whether no message is held and the path is clear.
    pub(crate) fn is_quiet(&self) -> bool {
        let clear = matches!(&self.path, Path::Direct { leaving: None, kept, .. } if kept.is_empty());
        clear && self.held.is_empty()
    }
}
