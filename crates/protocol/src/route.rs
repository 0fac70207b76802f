//! Where a node sends messages for an actor, and when it may change that without one message overtaking another.
//!
//! A message is meant for one activation, and the node that hosts another one (or none) returns it. So what a sender has
//! sent to one activation is either in that activation's queue, which moves along with the actor, or it comes back. Only
//! when each message has done one or the other does the sender turn to a later activation: first with what came back, then
//! with what has been held. The acknowledgement of the last frame says that all have, because what is returned, or kept for
//! the time being, is so before the frame that carried it is acknowledged.
//!
//! Through the directory goes one message at a time, and the rest waits until it has landed: on that path two messages
//! could end up at different activations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, CallId, Caller, Message, NodeId};

/// The path to one actor.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: Path,
    /// Messages that wait, in order. Bounded by [`Limits::held_per_actor`](crate::Limits::held_per_actor).
    pub(crate) held: VecDeque<Arc<Message>>,
}

/// Where messages go.
#[derive(Debug)]
pub(crate) enum Path {
    /// Nowhere: the slot has no owner that lives.
    Blocked,
    /// One is on its way through the directory.
    Asking(Asking),
    /// Straight to the host.
    Direct {
        node: NodeId,
        epoch: ActivationEpoch,
        /// The number of the last frame sent to it.
        last: u64,
        /// Set when it is not the right place any more. Boxed, because it rarely is.
        leaving: Option<Box<Leaving>>,
        /// Messages that are kept there until it is clear where the actor is, with their senders; an empty map costs nothing.
        kept: BTreeMap<CallId, Caller>,
    },
}

/// A message on its way through the directory.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) call: CallId,
    pub(crate) caller: Caller,
    /// The nodes that may have it.
    pub(crate) at: Vec<NodeId>,
    /// How often it came back.
    pub(crate) returns: u32,
}

/// What is to be done when everything sent along a path is accounted for.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) next: Place,
    /// What came back, in order.
    pub(crate) returned: VecDeque<Arc<Message>>,
    /// Whether the node was asked to acknowledge at once.
    pub(crate) pinged: bool,
}

/// Where to send next.
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

    /// Learns of a place; of two activations the later one counts.
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
    /// The messages that are at this node, in no particular order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arc<Message>> {
        let returned = match &self.path {
            Path::Direct {
                leaving: Some(leaving), ..
            } => Some(&leaving.returned),
            _ => None,
        };
        self.held.iter().chain(returned.into_iter().flatten())
    }

    /// Whether something that this caller sent has no place in its receiver's queue yet, as far as the route knows.
    pub(crate) fn waits_for(&self, is_it: impl Fn(&Caller) -> bool) -> bool {
        let under_way = match &self.path {
            Path::Blocked => false,
            Path::Asking(asking) => is_it(&asking.caller),
            Path::Direct { kept, .. } => kept.values().any(&is_it),
        };
        under_way || self.waiting().any(|message| is_it(&message.header.caller))
    }

    /// Whether nothing waits, and nothing keeps the path from being used.
    pub(crate) fn is_quiet(&self) -> bool {
        let clear = matches!(&self.path, Path::Direct { leaving: None, kept, .. } if kept.is_empty());
        clear && self.held.is_empty()
    }
}
